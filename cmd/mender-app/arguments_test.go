package main

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/cmd/internal/device"
)

// TestArguments gives each command too few arguments, and too many.
func TestArguments(t *testing.T) {
	t.Setenv("MENDER_APP_CONFIG", t.TempDir()+"/none.conf")
	tried := 0
	try := func(c *cobra.Command, args ...string) {
		line := append(strings.Fields(c.CommandPath())[1:], args...)
		var stderr strings.Builder
		require.Equal(t, device.ExitUsage, run(line, strings.NewReader(""), io.Discard, &stderr), "%s: %s", line, &stderr)
		require.Regexp(t, `^error: usage: .*(needs |unexpected argument|unknown command|takes no words|there is no help).*; .`, stderr.String(), line)
		tried++
	}
	var each func(c *cobra.Command)
	each = func(c *cobra.Command) {
		words := c.Use
		if i := strings.Index(words, " "); i >= 0 && strings.Contains("ABCDEFGHIJKLMNOPQRSTUVWXYZ", words[i+1:i+2]) {
			try(c)
		}
		if !strings.ContainsAny(words, ".…") && c.Name() != "conformance" && c.Name() != "completion" {
			try(c, "one", "two", "three")
		}
		for _, sub := range c.Commands() {
			each(sub)
		}
	}
	each((&program{}).root())
	require.Greater(t, tried, 40)
}
