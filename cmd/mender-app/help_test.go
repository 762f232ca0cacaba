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
