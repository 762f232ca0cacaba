package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mender-app/mender-app/cmd/internal/usage"
)

// former are the names of commands that have become verbs of a noun, or views of status.
// Each does what it always did, and no help and no completion shows it.
var former = []struct {
	use     string
	command func(*program) *cobra.Command
}{
	{"staged", (*program).stageListCommand},
	{"unstage NAME", (*program).stageRmCommand},
	{"unhold", (*program).holdReleaseCommand},
	{"enable APP SERVICE", (*program).serviceEnableCommand},
	{"disable APP SERVICE", (*program).serviceDisableCommand},
	{"list", (*program).listCommand},
	{"show APP", (*program).showCommand},
	{"health [APP]", (*program).healthCommand},
}

// formerCommands makes the commands with former names.
func (p *program) formerCommands() (list []*cobra.Command) {
	for _, f := range former {
		c := f.command(p)
		c.Use, c.Hidden = f.use, true
		list = append(list, c)
	}
	return list
}

// noun makes a command of verbs. If it was a command itself before it had verbs, alone is
// that command: without a verb the noun still does the same, with options that its help no
// longer shows.
func noun(help cobra.Command, alone *cobra.Command, verbs ...*cobra.Command) *cobra.Command {
	c := &help
	c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	if alone != nil {
		c.Args, c.RunE, c.ValidArgsFunction = alone.Args, alone.RunE, alone.ValidArgsFunction
		c.Flags().AddFlagSet(alone.Flags())
		c.Flags().VisitAll(func(f *pflag.Flag) { f.Hidden = true })
	}
	c.DisableFlagsInUseLine = true
	c.AddCommand(verbs...)
	return c
}

// meantCommand asks whether a similar command was meant, one with a former name too.
func meantCommand(root *cobra.Command, word string) string {
	for _, f := range former {
		c, _, _ := root.Find(strings.Fields(f.use)[:1])
		c.Hidden = false // cobra suggests no hidden command, and nothing follows this hint
	}
	return usage.MeantCommand(root, word)
}
