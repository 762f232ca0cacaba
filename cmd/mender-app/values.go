package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/modules/deploy"
	"github.com/mender-app/mender-app/modules/hooks"
	"github.com/mender-app/mender-app/modules/settings"
	"github.com/mender-app/mender-app/modules/view"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// valuesEvent is what reconcile is told when values were changed.
const valuesEvent = "values"

func (p *program) valuesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "values",
		Short: "Set values for hooks and manifests, for all applications or one",
		Long: `Keeps values on the device, over updates and rollbacks. Hooks get them in the file
MENDER_APP_VALUES, and Compose files as variables, such as ${LANGUAGE}. The last of
these wins: the device's value for all applications and for one (the files *.env in
/etc/mender/mender-app/values.d and values.d/APP), the operator's for all, and for one.

The value "enabled" is true or false, and says whether a managed application runs at
all. A change rolls out the managed applications whose manifests name the changed value.
Others get it at their next start.`,
		Example: "  mender-app values set --app shop LANGUAGE=sv\n  mender-app values show",
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	app := ""
	scope := func(c *cobra.Command) *cobra.Command {
		c.Flags().StringVar(&app, "app", "", "only for this application")
		_ = c.RegisterFlagCompletionFunc("app", completeApps)
		return c
	}
	cmd.AddCommand(scope(&cobra.Command{
		Use:   "set NAME=VALUE...",
		Short: "Set values, and roll out the applications that use them",
		Long: `Sets values of the operator, and runs "mender-app reconcile". A name is that of a
variable; a value is one line without a single quote. While an update is open, the exit
code is 75.`,
		Example: "  mender-app values set LANGUAGE=sv\n  mender-app values set --app shop CURRENCY=SEK LIMIT=20",
		RunE: func(cmd *cobra.Command, args []string) error {
			set := map[string]string{}
			for _, a := range args {
				name, value, ok := strings.Cut(a, "=")
				if !ok {
					return fmt.Errorf("%w: %s is not NAME=VALUE", device.ErrUsage, device.OneLine(a))
				}
				if err := cmp.Or(submodules.CheckValue(name, value), hooks.CheckEnabled(name, value)); err != nil {
					return fmt.Errorf("%w: %w", device.ErrUsage, err)
				}
				set[name] = value
			}
			return p.changeValues(cmd.Context(), app, set, nil)
		},
	}), scope(&cobra.Command{
		Use:     "unset NAME...",
		Short:   "Remove the operator's values, and roll out the applications that used them",
		Long:    `Removes values of "values set", and runs "mender-app reconcile".`,
		Example: "  mender-app values unset --app shop LIMIT",
		ValidArgsFunction: func(_ *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			return p.valueNames(app)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.changeValues(cmd.Context(), app, nil, args)
		},
	}), scope(&cobra.Command{
		Use:     "show",
		Short:   "Show the effective values, and who set them",
		Long:    "Shows the values for all applications, or with --app the effective ones of one.",
		Example: "  mender-app values show --app shop\n  mender-app values show --json",
		RunE:    func(*cobra.Command, []string) error { return p.showValues(app) },
	}))
	return cmd
}

// changeValues changes values, and lets reconcile roll out what uses them.
func (p *program) changeValues(ctx context.Context, app string, set map[string]string, remove []string) error {
	_, switches := set[settings.Enabled]
	used := len(set) > 1 || len(set) == 1 && !switches // by manifests
	if err := p.valuesPermitted(ctx, app, used); err != nil {
		return err
	}
	err := p.config.Values().Change(ctx, app, set, remove)
	if errors.Is(err, settings.ErrNoValue) {
		return submodules.Mark(err, submodules.ErrNotFound)
	}
	if err != nil {
		return err
	}
	return p.raise(ctx, valuesEvent)
}

// valuesPermitted refuses a change while an update is open, and values that are used for an
// application that cannot use them.
func (p *program) valuesPermitted(ctx context.Context, app string, used bool) error {
	c := p.config
	s := c.OpenStore()
	names := []string{app}
	if app == "" {
		var err error
		if names, err = s.Apps(); err != nil {
			return err
		}
	}
	for _, name := range names {
		a, err := view.Read(s, name)
		if app != "" && errors.Is(err, store.ErrNoApp) {
			return err
		}
		if err != nil { // it says so itself
			continue
		}
		if d := a.Deployment; d != nil {
			return fmt.Errorf("%w: %s is %s", deploy.ErrOpen, d.ArtifactName, d.Phase)
		}
		if app == "" || a.Committed == "" || !used {
			continue
		}
		r, err := a.Release(a.Committed)
		if err != nil {
			return err
		}
		m, err := submodules.Find(c.SubmodulesDir, r.Orchestrator)
		if err != nil {
			return err
		}
		info, err := m.Client().Describe(ctx)
		if err != nil {
			return err
		}
		if err := settings.LacksValues(app, info, r.Orchestrator); err != nil {
			return submodules.Mark(err, submodules.ErrRequirement)
		}
	}
	return nil
}

func (p *program) showValues(app string) error {
	list, bad := p.config.Values().List(app)
	if p.json {
		return errors.Join(p.printResult(append([]settings.Value{}, list...), ""), bad)
	}
	if len(list) == 0 {
		return errors.Join(p.printResult(nil, "no values are set"), bad)
	}
	var rows [][]string
	for _, v := range list {
		rows = append(rows, []string{v.Name, v.Value, v.Of, v.For})
	}
	return errors.Join(p.table("NAME\tVALUE\tSET BY\tFOR", rows), bad)
}

// valueNames completes the names of values.
func (p *program) valueNames(app string) (names []string, d cobra.ShellCompDirective) {
	c, err := device.Load()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	list, _ := c.Values().List(app)
	for _, v := range list {
		if v.Of == settings.Operator && v.For == app {
			names = append(names, v.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
