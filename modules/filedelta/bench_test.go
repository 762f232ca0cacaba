package filedelta_test

import (
	"archive/zip"
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gabstv/go-bsdiff/pkg/bsdiff"
	"github.com/gabstv/go-bsdiff/pkg/bspatch"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/modules/filedelta"
)

// TestBench measures deltas of single files beside xdelta3, bsdiff and
// gabstv/go-bsdiff. The
// executable is app-gen, built with and without inlining of its own packages; the
// wheel has 120 modules, of which four changed.
func TestBench(t *testing.T) {
	if os.Getenv("MENDER_APP_BENCH") == "" {
		t.Skip("a benchmark: set MENDER_APP_BENCH=1")
	}
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, flags := range map[string]string{"executable.old": "-gcflags=github.com/mender-app/mender-app/...=-l", "executable.new": "-trimpath"} {
		out, err := exec.Command("go", "build", flags, "-o", at(name), "../../cmd/app-gen").CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	require.NoError(t, os.WriteFile(at("wheel.old"), wheel(t, false), 0o600))
	require.NoError(t, os.WriteFile(at("wheel.new"), wheel(t, true), 0o600))
	fmt.Print("\n| file | KiB | tool | delta KiB | encode CPU s | MiB | apply CPU s | MiB |\n|---|---|---|---|---|---|---|---|\n")
	for _, file := range []string{"executable", "wheel"} {
		old, next, patch, made := at(file+".old"), at(file+".new"), at("delta"), at("made")
		want, err := os.ReadFile(next)
		require.NoError(t, err)
		for _, tool := range []struct {
			name          string
			encode, apply *exec.Cmd
		}{
			{"ours", exec.Command(at("executable.new"), "delta", "encode", old, next, "-o", patch), nil},
			{"xdelta3", exec.Command("xdelta3", "-e", "-9", "-f", "-s", old, next, patch), exec.Command("xdelta3", "-d", "-f", "-s", old, patch, made)},
			{"bsdiff", exec.Command("bsdiff", old, next, patch), exec.Command("bspatch", old, made, patch)},
			{"BSDIFF40, applied here", exec.Command("bsdiff", old, next, patch), nil},
			{"gabstv/go-bsdiff", exec.Command(os.Args[0], goBsdiff, "diff", old, next, patch), exec.Command(os.Args[0], goBsdiff, "patch", old, made, patch)},
		} {
			require.NoError(t, os.RemoveAll(made))
			encode := cost(t, tool.encode)
			size, err := os.Stat(patch)
			require.NoError(t, err)
			if tool.apply == nil {
				tool.apply = applying(t, old, patch, made, int64(len(want)))
			}
			apply := cost(t, tool.apply)
			got, err := os.ReadFile(made)
			require.NoError(t, err)
			require.True(t, bytes.Equal(want, got), tool.name)
			fmt.Printf("| %s | %d | %s | %.1f | %s | %s |\n", file, len(want)>>10, tool.name, float64(size.Size())/1024, encode, apply)
		}
	}
}

// goBsdiff makes this program what gabstv/go-bsdiff's own program is.
const goBsdiff = "go-bsdiff"

// goBsdiffMain encodes or applies a delta: args are diff or patch, the old file, the new
// one and the delta.
func goBsdiffMain(args []string) int {
	work := map[string]func(old, next, patch string) error{"diff": bsdiff.File, "patch": bspatch.File}[args[0]]
	if err := work(args[1], args[2], args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// applying is the process that the update module starts.
func applying(t *testing.T, old, patch, made string, size int64) *exec.Cmd {
	t.Helper()
	content, err := os.ReadFile(old)
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0], filedelta.Verb, digest.Of(content).String(), fmt.Sprint(size), fmt.Sprint(size), "0")
	for _, f := range []struct {
		path string
		flag int
	}{{old, os.O_RDONLY}, {patch, os.O_RDONLY}, {made, os.O_WRONLY | os.O_CREATE}} {
		file, err := os.OpenFile(f.path, f.flag, 0o600)
		require.NoError(t, err)
		t.Cleanup(func() { file.Close() })
		cmd.ExtraFiles = append(cmd.ExtraFiles, file)
	}
	cmd.Env = []string{"GOMEMLIMIT=16MiB"}
	return cmd
}

// cost runs a command under GNU time, and returns its CPU time in seconds and its
// largest resident set in MiB, as two columns. A child of this test would begin with
// the test's own resident set as its peak.
func cost(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	report := filepath.Join(t.TempDir(), "cost")
	timed := exec.Command("/usr/bin/time", append([]string{"-f", "%U %S %M", "-o", report, cmd.Path}, cmd.Args[1:]...)...)
	timed.Env, timed.ExtraFiles = cmd.Env, cmd.ExtraFiles
	out, err := timed.CombinedOutput()
	require.NoError(t, err, "%s: %s", cmd, out)
	text, err := os.ReadFile(report)
	require.NoError(t, err)
	var user, system, kib float64
	_, err = fmt.Sscan(string(text), &user, &system, &kib)
	require.NoError(t, err)
	return fmt.Sprintf("%.2f | %.0f", user+system, kib/1024)
}

// wheel is a zip of modules of random words.
func wheel(t *testing.T, changed bool) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i := range 120 {
		r := rand.New(rand.NewPCG(7, uint64(i)))
		var text strings.Builder
		for range 5000 {
			fmt.Fprintf(&text, "word%d ", r.IntN(3000))
		}
		source := text.String()
		if changed && i%30 == 3 {
			source = strings.ReplaceAll(source, "word12", "name12")
		}
		w, err := z.Create(fmt.Sprintf("pkg/m%d.py", i))
		require.NoError(t, err)
		_, err = w.Write([]byte(source))
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	return b.Bytes()
}
