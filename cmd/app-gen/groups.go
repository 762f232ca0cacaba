package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// optionGroups are the options of app-gen as --help shows them. Options that are in none
// come last, as others.
var optionGroups = []struct{ name, options string }{
	{"Everyday", "application-name application-version artifact-name device-type platform orchestrator manifests-dir output-path image fast best smallest link for-device dry-run replace strict quiet json"},
	{"Bases", "base bases-from last require-base split content full-fallback no-depends files-only decode-budget for-version for"},
	{"Signing and secrets", "key sign-command public-key expires revocations encrypt-secrets-to plain-secret"},
	{"Reports", "sbom provenance"},
	{"Compose", "compose-file profile env-file env-from-host compose-version"},
	{"Kubernetes", "k8s-ctr-address k8s-namespace values"},
	{"Mender", "software-name software-version software-filesystem provides depends script compression reboot"},
}

// groupOptions makes a command print its options in groups.
func groupOptions(c *cobra.Command) {
	plain := (&cobra.Command{}).UsageFunc()
	c.SetUsageFunc(func(c *cobra.Command) error {
		if c.Flags().Lookup("manifests-dir") == nil { // a command with other options
			return plain(c)
		}
		w := c.OutOrStdout()
		fmt.Fprintf(w, "Usage:\n  %s\n", c.UseLine())
		if c.HasAvailableSubCommands() {
			fmt.Fprintf(w, "  %s [command]\n\nExamples:\n%s\n\nAvailable Commands:\n", c.CommandPath(), c.Example)
			for _, sub := range c.Commands() {
				if sub.IsAvailableCommand() || sub.Name() == "help" {
					fmt.Fprintf(w, "  %-*s %s\n", sub.NamePadding(), sub.Name(), sub.Short)
				}
			}
		}
		grouped := map[string]bool{}
		for _, g := range optionGroups {
			set := pflag.NewFlagSet(g.name, pflag.ContinueOnError)
			set.SortFlags = false
			for _, name := range strings.Fields(g.options) {
				if f := c.Flags().Lookup(name); f != nil {
					set.AddFlag(f)
					grouped[f.Name] = true
				}
			}
			fmt.Fprintf(w, "\n%s:\n%s", g.name, set.FlagUsages())
		}
		rest := pflag.NewFlagSet("Others", pflag.ContinueOnError)
		rest.SortFlags = false
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !grouped[f.Name] && !f.Hidden {
				rest.AddFlag(f)
			}
		})
		fmt.Fprintf(w, "\nOthers:\n%s", rest.FlagUsages())
		return nil
	})
}
