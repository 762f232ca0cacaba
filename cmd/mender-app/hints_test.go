package main

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// The commands that hints name exist, and no command has a name that a hint takes.
func TestHintsNameCommands(t *testing.T) {
	root := (&program{}).root()
	names := map[string]bool{}
	for _, c := range root.Commands() {
		names[c.Name()] = true
	}
	named := regexp.MustCompile(`mender-app ([a-z-]+) ?(?:APP|FILE|$|;|,|,? keeps|for)`)
	for word, hint := range otherNames {
		require.False(t, names[word], "%s is a command", word)
		found := named.FindAllStringSubmatch(hint, -1)
		require.NotEmpty(t, found, hint)
		for _, m := range found {
			require.True(t, names[m[1]], "%s: there is no command %s", hint, m[1])
		}
	}
}
