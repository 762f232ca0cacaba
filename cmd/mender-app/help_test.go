package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/cmd/internal/usage"
)

// The help of each command has an example, and fits 80 columns.
func TestHelp(t *testing.T) {
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		if !c.Hidden && c.Name() != "help" && c.Name() != "completion" && c.Parent() != nil {
			require.NotEmpty(t, c.Example, c.CommandPath())
		}
		var text bytes.Buffer
		c.SetOut(&text)
		require.NoError(t, c.Help())
		require.NotEmpty(t, text.String())
		for line := range strings.Lines(text.String()) {
			require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, "\n")), usage.Columns, "%s: %s", c.CommandPath(), line)
		}
		if c.Name() == "completion" { // its commands are cobra's
			return
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit((&program{}).root())
}

// Each command that --help shows is in a group, and each group has commands alone that there are.
func TestGroups(t *testing.T) {
	root := (&program{}).root()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	var named []string
	for _, g := range groups {
		named = append(named, g.commands...)
	}
	var there []string
	for _, c := range root.Commands() {
		if c.Hidden {
			continue
		}
		require.NotEmpty(t, c.GroupID, "%s: cmd/mender-app/groups.go", c.Name())
		there = append(there, c.Name())
	}
	require.ElementsMatch(t, named, there)
}
