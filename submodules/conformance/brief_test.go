package conformance

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
)

// The calls of docs/PROTOCOL-IN-BRIEF.md do what it says, one after the other, and are
// all verbs of protocol 1.0.
func TestProtocolInBrief(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/PROTOCOL-IN-BRIEF.md")
	require.NoError(t, err)
	block := regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindSubmatch(text)
	require.NotNil(t, block)

	bin, work := t.TempDir(), t.TempDir()
	write := func(path, text string) {
		t.Helper()
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o755))
	}
	write(filepath.Join(bin, "files"), example(t))
	for _, release := range []string{"1", "2"} {
		write(filepath.Join(work, "tool-"+release+".bin"), "tool "+release)
		write(filepath.Join(work, "v"+release, "files"), "tool\n")
		write(filepath.Join(work, "v"+release, "check"), "true\n")
		write(filepath.Join(work, "v"+release, "release"), release)
	}
	require.NoError(t, os.Mkdir(filepath.Join(work, "out"), 0o755))

	var verbs []string
	installed := filepath.Join(work, "root", "door")
	for line := range strings.Lines(string(block[1])) {
		call, _, explained := strings.Cut(line, "#")
		require.True(t, explained, line)
		words := strings.Fields(call)
		require.Equal(t, "files", words[0], line)
		if !slices.Contains(verbs, words[1]) {
			verbs = append(verbs, words[1])
		}
		cmd := exec.Command(filepath.Join(bin, "files"), words[1:]...)
		cmd.Dir, cmd.Env = work, append(os.Environ(), "EXAMPLE_ROOT="+filepath.Join(work, "root"))
		out, err := cmd.Output()
		require.NoError(t, err, line)
		switch words[1] {
		case "ALIVE", "HEALTHY":
			require.Equal(t, "true\n", string(out), line)
		case "REQS":
			require.Contains(t, string(out), ":error\n")
		case "LIST":
			require.Contains(t, string(out), `"url":"tool"`)
		case "ROLLOUT", "ROLLBACK":
			got, err := os.ReadFile(filepath.Join(installed, "current", "release"))
			require.NoError(t, err)
			require.Equal(t, words[3], "v"+string(got), line)
		case "PURGE":
			require.NoDirExists(t, installed)
		default:
			require.Empty(t, out, line)
		}
	}
	copied, err := os.ReadFile(filepath.Join(work, "copy.bin"))
	require.NoError(t, err)
	require.Equal(t, "tool 1", string(copied))
	require.FileExists(t, filepath.Join(work, "out", "release"))
	require.Len(t, verbs, 13)
	for _, code := range []int{submodules.CodeUsage, submodules.CodeRequirement, submodules.CodeNotFound, submodules.CodeContent, submodules.CodeUnhealthy,
		submodules.CodeSpace, submodules.CodeBase, submodules.CodeDeadline} {
		require.Regexp(t, fmt.Sprintf(`[ ,]%d \(`, code), string(text))
	}
}
