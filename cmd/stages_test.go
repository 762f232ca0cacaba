package cmd

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An end-to-end test chooses its stage by its directory. Each directory has a stage in the
// Makefile, except for the benchmarks, and no test is outside of them.
func TestEndToEndTestsHaveAStage(t *testing.T) {
	makefile, err := os.ReadFile("../Makefile")
	require.NoError(t, err)
	entries, err := os.ReadDir("../testdata/e2e")
	require.NoError(t, err)
	stages := 0
	for _, e := range entries {
		require.False(t, strings.HasSuffix(e.Name(), "_test.go"), "put %s into the directory of a stage", e.Name())
		if !e.IsDir() || e.Name() == "benchmarks" {
			continue
		}
		stages++
		require.Regexp(t, `(?m)[ \t]\./testdata/e2e/`+e.Name()+`(\s|$)`, string(makefile), "no target of the Makefile runs it")
	}
	require.Greater(t, stages, 3)
}
