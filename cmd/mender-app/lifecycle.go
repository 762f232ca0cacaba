package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/modules/deploy"
	"github.com/mender-app/mender-app/modules/view"
	"github.com/mender-app/mender-app/store"
)

func (p *program) stopCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "stop APP",
		Short: "Stop an application; nothing is removed",
		Long: `Stops an application. It stays stopped, also after a reboot, until "mender-app start" or
the commit of an update.`,
		Example:           "  mender-app stop shop",
		ValidArgsFunction: completeApps,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := p.engine().Stop(cmd.Context(), args[0]); err != nil {
				return err
			}
			return p.printResult(map[string]string{"application": args[0], "state": view.Stopped}, "%s is stopped", args[0])
		},
	}
}

func (p *program) startCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "start APP",
		Short:             "Start a stopped application, and wait until it is healthy",
		Example:           "  mender-app start shop",
		ValidArgsFunction: completeApps,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := p.engine().Start(cmd.Context(), args[0]); err != nil {
				return err
			}
			return p.printResult(map[string]string{"application": args[0], "state": view.Installed}, "%s runs and is healthy", args[0])
		},
	}
}

func (p *program) restartCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "restart APP [SERVICE]",
		Short: "Stop an application, or one of its services, and start it again",
		Long: `Stops an application and starts it again, and returns when it is healthy. With SERVICE,
only the containers of that service are recreated. Data stays. If it is interrupted,
"mender-app resume" starts what was stopped.`,
		Example:           "  mender-app restart shop\n  mender-app restart shop web",
		ValidArgsFunction: completeServices,
		RunE: func(cmd *cobra.Command, args []string) error {
			doc, what := map[string]string{"application": args[0], "state": view.Installed}, args[0]
			service := ""
			if len(args) == 2 {
				service = args[1]
				doc["service"], what = service, service+" of "+args[0]
			}
			if err := p.engine().Restart(cmd.Context(), args[0], service); err != nil {
				return err
			}
			return p.printResult(doc, "%s was restarted and is healthy", what)
		},
	}
}

func (p *program) purgeCommand() *cobra.Command {
	var data, force bool
	cmd := &cobra.Command{
		Use:   "purge APP",
		Short: "Remove a stopped application with all its releases",
		Long: `Removes an application with all its releases, its images and containers. Its data stays,
unless --data is given. The application must be stopped, and no other application's
policy may need it, unless --force is given. Its history stays. If the purge is
interrupted, the same command continues it. It also removes what an older version left
of a first installation that failed.`,
		Example:           "  mender-app stop shop\n  mender-app purge shop\n  mender-app purge shop --data --force",
		ValidArgsFunction: completeApps,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := p.settled(func() error { return p.engine().Purge(cmd.Context(), args[0], data, force) })
			if errors.Is(err, deploy.ErrRunning) {
				return fmt.Errorf("%w: %w: mender-app stop %s, or --force", device.ErrUsage, err, args[0])
			}
			if err != nil {
				return err
			}
			p.warnOfClient()
			kept := ", its data is kept"
			if data {
				kept = " with its data"
			}
			return p.printResult(map[string]any{"application": args[0], "status": store.StatusPurged, "data": data}, "%s is removed%s", args[0], kept)
		},
	}
	cmd.Flags().BoolVar(&data, "data", false, "also remove the application's data")
	cmd.Flags().BoolVar(&force, "force", false, "stop the application first, and remove it even if another one needs it")
	return cmd
}

func (p *program) healthCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "health [APP]",
		Short: "Show the health of applications; exit with 6 if one is not healthy",
		Long: `Asks the sub-module for the health of one application, or of all: "healthy",
"unhealthy" if everything runs but something is wrong, "down" if something that
should run does not. A stopped application is none of these.`,
		Example:           "  mender-app status --health\n  mender-app status --health shop --json",
		ValidArgsFunction: completeApps,
		RunE:              func(cmd *cobra.Command, names []string) error { return p.health(cmd.Context(), names) },
	}
}

// appHealth is what the command health prints for one application.
type appHealth struct {
	Application string `json:"application"`
	State       string `json:"state"` // as in status
	Health      string `json:"health,omitempty"`
	Problem     string `json:"problem,omitempty"`
}

func (p *program) health(ctx context.Context, names []string) error {
	s := p.config.OpenStore()
	all := len(names) == 0
	if all {
		var err error
		if names, err = s.Apps(); err != nil {
			return err
		}
	}
	list := []appHealth{}
	var rows [][]string
	var wrong error
	for _, name := range names {
		o, err := p.viewer().Overview(ctx, s, name)
		if err != nil {
			return err
		}
		if o.Health == view.Unknown && !all {
			return o.Wrong
		}
		h := appHealth{Application: name, State: o.State, Health: o.Health}
		if o.Health == view.Unknown {
			h.Problem = device.OneLine(o.Wrong.Error())
		}
		wrong = cmp.Or(wrong, o.Wrong)
		list = append(list, h)
		rows = append(rows, []string{h.Application, h.State, h.Health, h.Problem})
	}
	var err error
	if p.json {
		err = p.printJSON(list)
	} else {
		err = p.table("APPLICATION\tSTATE\tHEALTH\tPROBLEM", rows)
	}
	return errors.Join(err, wrong)
}

// viewer makes the viewer of the commands.
func (p *program) viewer() *view.Viewer {
	v := p.config.Viewer(p.log)
	v.Statement = p.statement
	return v
}

// warnOfClient warns, on a device with a Mender client, that the client does not
// learn of manual changes.
func (p *program) warnOfClient() {
	if name, _ := device.MenderClient(); name != "" {
		p.log.Warn("the Mender client does not learn of this: it reports the artifact that it installed", "client", name)
	}
}
