package main

import (
	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/modules/view"
)

const servicesHelp = `

The choice stays in later releases, unless the policy of one says keep.services = false,
and wins over services.disabled of the policy. "mender-app status" shows switched-off
services. The application is started as by "mender-app start": only changes are started
or stopped, and ended jobs run again. If the application does not become healthy, the
service is switched back. A stopped application stays stopped. While an update is open,
the exit code is 75.`

func (p *program) serviceCommand() *cobra.Command {
	return noun(cobra.Command{
		Use:     "service",
		Short:   "Switch single services of an application on and off",
		Example: "  mender-app service disable shop statistics\n  mender-app service enable shop statistics",
	}, nil, p.serviceEnableCommand(), p.serviceDisableCommand())
}

func (p *program) serviceEnableCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "enable APP SERVICE",
		Short:             "Switch a service of an application on",
		Long:              "Switches on a service that its release ships switched off, or that \"service disable\" switched off." + servicesHelp,
		Example:           "  mender-app service enable shop statistics",
		ValidArgsFunction: p.completeDisabled,
		RunE:              func(cmd *cobra.Command, args []string) error { return p.switchService(cmd, args[0], args[1], true) },
	}
}

func (p *program) serviceDisableCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "disable APP SERVICE",
		Short:             "Switch a service of an application off",
		Long:              "Switches a service off: its containers are removed, and its data and images stay." + servicesHelp,
		Example:           "  mender-app service disable shop statistics",
		ValidArgsFunction: completeServices,
		RunE:              func(cmd *cobra.Command, args []string) error { return p.switchService(cmd, args[0], args[1], false) },
	}
}

// completeDisabled completes an application and then a service that is switched off.
func (p *program) completeDisabled(cmd *cobra.Command, args []string, to string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return completeApps(cmd, args, to)
	}
	c, err := device.Load()
	if err != nil || len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	a, err := view.Read(c.OpenStore(), args[0])
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.SwitchedOff(), cobra.ShellCompDirectiveNoFileComp
}

func (p *program) switchService(cmd *cobra.Command, app, service string, on bool) error {
	if err := p.engine().SwitchService(cmd.Context(), app, service, on); err != nil {
		return err
	}
	word := "off"
	if on {
		word = "on"
	}
	return p.printResult(map[string]any{"application": app, "service": service, "enabled": on}, "%s of %s is switched %s", service, app, word)
}
