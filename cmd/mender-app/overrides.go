package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/artifact/clip"
	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/cmd/internal/table"
	"github.com/mender-app/mender-app/modules/settings"
	"github.com/mender-app/mender-app/modules/view"
	"github.com/mender-app/mender-app/submodules"
)

func (p *program) overridesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "overrides",
		Short: "Change an application's manifests on this device, over updates",
		Long: `Keeps changes of an application's manifests on the device, over updates and rollbacks.
With docker-compose they are Compose override files, which may change everything but the
images, and may reach no more than the manifests may; with k8s they are patches of the
objects in the manifests. They are applied in this order: the files *.yaml in
/etc/mender/mender-app/overrides.d/APP (the device's), and then that of "overrides set"
(the operator's).

An update that they do not fit is refused, with a line that says what to do. A release
whose policy says keep.overrides = false starts without the operator's.`,
		Example: "  mender-app overrides set shop memory.yaml\n  mender-app overrides show shop --combined",
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	combined := false
	show := &cobra.Command{
		Use:               "show APP",
		Short:             "Show the overrides of an application",
		Long:              "Shows the overrides of the current release, in the order of their application.",
		Example:           "  mender-app overrides show shop\n  mender-app overrides show shop --combined",
		ValidArgsFunction: completeApps,
		RunE:              func(cmd *cobra.Command, args []string) error { return p.showOverrides(cmd, args[0], combined) },
	}
	show.Flags().BoolVar(&combined, "combined", false, "show the manifests as they are with the overrides")
	cmd.AddCommand(&cobra.Command{
		Use:   "set APP FILE",
		Short: "Replace the operator's override of an application",
		Long: `Checks an override against the current release, stores it in place of the previous one,
and restarts the services that it changes. If the application does not become healthy,
the previous override comes back. A stopped application stays stopped. FILE may be - for
standard input. While an update is open, the exit code is 75.`,
		Example: `  mender-app overrides set shop limits.yaml
  echo 'services: {web: {mem_limit: 64m}}' | mender-app overrides set shop -`,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, to string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return completeApps(cmd, args, to)
			}
			return nil, cobra.ShellCompDirectiveDefault
		},
		RunE: func(cmd *cobra.Command, args []string) error { return p.setOverrides(cmd, args[0], args[1]) },
	}, show, &cobra.Command{
		Use:               "clear APP",
		Short:             "Remove the operator's override of an application",
		Long:              "Removes the override of \"overrides set\", and restarts the services that it changed.",
		Example:           "  mender-app overrides clear shop",
		ValidArgsFunction: completeApps,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := p.engine().SetOverrides(cmd.Context(), args[0], ""); err != nil {
				return err
			}
			return p.printResult(map[string]any{"application": args[0], "overrides": false}, "%s has no override of an operator", args[0])
		},
	})
	return cmd
}

func (p *program) setOverrides(cmd *cobra.Command, app, file string) error {
	var text string
	if file == "-" {
		data, err := io.ReadAll(io.LimitReader(p.stdin, submodules.MaxOverride+1))
		if err != nil {
			return err
		}
		text = string(data)
	} else {
		var err error
		if text, err = settings.ReadLayer(file); err != nil {
			return err
		}
	}
	switch {
	case text == "":
		return fmt.Errorf("%w: %s is empty: mender-app overrides clear %s removes the override", device.ErrUsage, file, app)
	case len(text) > submodules.MaxOverride:
		return fmt.Errorf("%w: it is longer than %d KiB", device.ErrUsage, submodules.MaxOverride>>10)
	}
	if err := p.engine().SetOverrides(cmd.Context(), app, text); err != nil {
		return err
	}
	return p.printResult(map[string]any{"application": app, "overrides": true}, "%s runs with the override", app)
}

func (p *program) showOverrides(cmd *cobra.Command, app string, combined bool) error {
	a, err := view.Read(p.config.OpenStore(), app)
	if err != nil {
		return err
	}
	if combined {
		text, err := p.viewer().Render(cmd.Context(), a)
		if err != nil {
			return err
		}
		if p.json {
			return p.printResult(map[string]any{"application": app, "combined": string(text)}, "")
		}
		_, err = p.forReader().Write(text)
		return err
	}
	layers, bad := p.viewer().Overrides(a)
	if p.json {
		type layer struct {
			Name string `json:"name"`
			Text string `json:"text"`
		}
		list := []layer{}
		for _, l := range layers {
			list = append(list, layer(l))
		}
		return errors.Join(p.printResult(map[string]any{"application": app, "overrides": list}, ""), bad)
	}
	for i, l := range layers {
		if i > 0 {
			fmt.Fprintln(p.stdout, "---")
		}
		fmt.Fprintf(p.forReader(), "# %s\n%s", l.Name, l.Text)
		if l.Text != "" && l.Text[len(l.Text)-1] != '\n' {
			fmt.Fprintln(p.stdout)
		}
	}
	if len(layers) == 0 && bad == nil {
		fmt.Fprintf(p.stdout, "# %s has no overrides\n", app)
	}
	return bad
}

// forReader is standard output for a text of others, which is as it was written in a pipe.
func (p *program) forReader() io.Writer {
	if table.IsTerminal(p.stdout) {
		return clip.TextWriter(p.stdout)
	}
	return p.stdout
}
