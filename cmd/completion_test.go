package cmd

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/cmd/internal/devicetest"
)

// completed are beginnings of command lines, and what the shells make of them.
var completed = map[string]string{
	"mender-app rollb":                                   "mender-app rollback",
	"mender-app history shop --status resto":             "mender-app history shop --status restored",
	"mender-app list --js":                               "mender-app list --json",
	"mender-app verify --repair --from shop-1":           "mender-app verify --repair --from shop-1.mender",
	"app-gen --orchestrator doc":                         "app-gen --orchestrator docker-compose",
	"app-gen --platform linux/arm6":                      "app-gen --platform linux/arm64",
	"app-gen --compression zs":                           "app-gen --compression zstd",
	"app-gen --manifests-dir shop --image registry.exam": "app-gen --manifests-dir shop --image registry.example/shop/web:2",
	"app-gen insp":                                       "app-gen inspect",
	"app-gen diff shop-1":                                "app-gen diff shop-1.mender",
	"app-conformance --fixt":                             "app-conformance --fixture",
}

// shellDir makes a directory for a shell: the programs in bin, the completions of a
// shell as make install names them in completions, and files to complete.
func shellDir(t *testing.T, shell, name string) string {
	t.Helper()
	if _, err := exec.LookPath(shell); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("missing in CI: " + shell)
		}
		t.Skip("needs " + shell + " (make setup)")
	}
	dir := t.TempDir()
	for _, d := range []string{"bin", "completions", "shop"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, d), 0o755))
	}
	for _, p := range []string{"mender-app", "app-gen", "app-conformance"} {
		program := built(t, p)
		script, err := exec.Command(program, "completion", shell).Output()
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "completions", strings.ReplaceAll(name, "*", p)), script, 0o644))
		// What a person would run is only noted.
		stub := "#!/bin/sh\ncase $1 in __complete*) exec " + program + " \"$@\" ;; esac\necho \"" + p + " $*\" >>" + dir + "/ran\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, "bin", p), []byte(stub), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "shop-1.mender"), nil, 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "shop", "compose.yaml"), []byte("services: {web: {image: \"registry.example/shop/web:2\"}}\n"), 0o644))
	return dir
}

func shellEnv(dir string) []string {
	return append(os.Environ(), "PATH="+dir+"/bin:"+os.Getenv("PATH"), "HOME="+dir, "ZDOTDIR="+dir, "XDG_CONFIG_HOME="+dir+"/config", "XDG_DATA_HOME="+dir+"/data", "TERM=vt100", "LC_ALL=C.UTF-8")
}

func TestFishCompletes(t *testing.T) {
	dir := shellDir(t, "fish", "*.fish")
	script := "set -p fish_complete_path " + dir + "/completions\n"
	for begun := range completed {
		script += "echo '> " + begun + "'\ncomplete -C '" + begun + "'\n"
	}
	cmd := exec.Command("fish", "--no-config", "-c", script)
	cmd.Dir, cmd.Env = dir, shellEnv(dir)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	got := map[string]string{} // a begun line → the values that fish offers
	begun := ""
	for line := range strings.Lines(string(out)) {
		if next, ok := strings.CutPrefix(line, "> "); ok {
			begun = strings.TrimSpace(next)
			continue
		}
		value, _, _ := strings.Cut(strings.TrimSpace(line), "\t") // a description follows
		got[begun] += begun[:strings.LastIndex(begun, " ")+1] + value
	}
	require.Equal(t, completed, got)
}

// zsh completes at a terminal only: type each beginning, TAB and ENTER there.
func TestZshCompletes(t *testing.T) {
	dir := shellDir(t, "zsh", "_*")
	rc := "fpath=(" + dir + "/completions $fpath)\nautoload -U compinit\ncompinit -u -d " + dir + "/dump\nPS1='ready> '\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".zshrc"), []byte(rc), 0o644))
	screen, terminal := devicetest.OpenTerminal(t, 200)
	cmd := exec.Command("zsh", "-o", "no_global_rcs", "-i")
	cmd.Dir, cmd.Env = dir, shellEnv(dir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, cmd.Start())
	require.NoError(t, terminal.Close())
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	var mu sync.Mutex
	var shown bytes.Buffer
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := screen.Read(buf)
			mu.Lock()
			shown.Write(buf[:n])
			mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	text := func() string {
		mu.Lock()
		defer mu.Unlock()
		return shown.String()
	}
	require.Eventually(t, func() bool { return strings.Contains(text(), "ready> ") }, 20*time.Second, 10*time.Millisecond, "the prompt")
	for begun, want := range completed {
		require.NoError(t, os.RemoveAll(filepath.Join(dir, "ran")))
		_, err := io.WriteString(screen, begun+"\t\r")
		require.NoError(t, err)
		var ran []byte
		require.Eventually(t, func() bool {
			ran, _ = os.ReadFile(filepath.Join(dir, "ran"))
			return bytes.HasSuffix(ran, []byte("\n"))
		}, 20*time.Second, 10*time.Millisecond, "%s", begun)
		require.Equal(t, want, strings.TrimSpace(string(ran)))
	}
}
