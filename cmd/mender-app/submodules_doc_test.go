package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The commands of docs/SUBMODULES.md do what it says.
func TestSubmodulesDocument(t *testing.T) {
	if testing.Short() {
		t.Skip("it plays the life of an application")
	}
	bin := t.TempDir()
	out, err := exec.Command("go", "build", "-o", bin, "../app-conformance", ".", "../app-gen").CombinedOutput()
	require.NoError(t, err, "%s", out)
	text, err := os.ReadFile("../../docs/SUBMODULES.md")
	require.NoError(t, err)
	script := "set -eux\n"
	blocks := regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllSubmatch(text, -1)
	require.Len(t, blocks, 5)
	for _, b := range blocks {
		script += string(b[1])
	}
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "TMPDIR="+t.TempDir())
	out, err = cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, 4, strings.Count(string(out), ", 0 failed, "), "%s", out)
}
