package daily

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/generator/gentest"
	"github.com/mender-app/mender-app/testdata/bed"
)

// Who has read only README is within ten minutes at a broken release of an own project that
// was rolled back. The commands are those of README, and QUICKSTART shows what they print.
func TestTryOfAnOwnProject(t *testing.T) {
	bed.Require(t)
	programs, err := bed.Programs()
	require.NoError(t, err)
	home, project := t.TempDir(), filepath.Join(t.TempDir(), "shop")
	registry := gentest.Registry(t, "", "")
	for _, name := range []string{"web", "api", "db"} {
		made, err := bed.Shop{Ref: "shop/" + name + ":1", Service: name, Version: "1"}.Image()
		require.NoError(t, err)
		image, err := made.Build()
		require.NoError(t, err)
		gentest.Push(t, registry+"/shop/"+name+":1", image, "", "")
	}
	// The images are named as on Docker Hub, and this is its mirror.
	require.NoError(t, os.MkdirAll(filepath.Join(home, ".config/containers"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(home, ".config/containers/registries.conf"),
		[]byte("[[registry]]\nprefix = \"docker.io\"\nlocation = \""+registry+"\"\ninsecure = true\n"), 0o644))
	require.NoError(t, os.Mkdir(project, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(project, "compose.yaml"),
		[]byte("services:\n  web: {image: \"shop/web:1\"}\n  api: {image: \"shop/api:1\"}\n  db: {image: \"shop/db:1\"}\n"), 0o644))

	commands := commandsBelow(t, "README.md", "## Try it")
	require.Contains(t, commands, "app-gen try")
	host := hostState(t)
	begun := time.Now()
	cmd := exec.Command("bash", "-euc", commands)
	cmd.Dir = project
	temp := t.TempDir()
	cmd.Env = []string{"PATH=" + programs + ":" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + temp, "XDG_CACHE_HOME=" + home + "/.cache"}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	took := time.Since(begun)
	t.Logf("from the first command to the release that was rolled back: %.1f min\n%s", took.Minutes(), out)
	require.Less(t, took, 10*time.Minute)
	require.Equal(t, host, hostState(t), "nothing touches the host")
	left, err := os.ReadDir(temp)
	require.NoError(t, err)
	require.Empty(t, left)

	quick, err := os.ReadFile(filepath.Join(bed.Repository(), "docs/QUICKSTART.md"))
	require.NoError(t, err)
	_, shown, ok := strings.Cut(string(quick), "\n    $ sudo app-gen try\n")
	require.True(t, ok)
	var want []string
	for line := range strings.Lines(shown) {
		if strings.TrimSpace(line) != "" && !strings.HasPrefix(line, "    ") {
			break
		}
		want = append(want, strings.TrimSpace(line))
	}
	_, printed, ok := strings.Cut(string(out), "Three releases")
	require.True(t, ok)
	require.Regexp(t, "^"+strings.ReplaceAll(regexp.QuoteMeta(plain(strings.Join(want, "\n"))), "…", ".*")+"$", plain("Three releases"+printed))
}

// What a machine lacks is named, and nothing is left.
func TestTryRefuses(t *testing.T) {
	bed.Require(t, "setpriv")
	programs, err := bed.Programs()
	require.NoError(t, err)
	dir, temp := t.TempDir(), t.TempDir()
	require.NoError(t, os.Chmod(temp, 0o777))
	refused := func(path string, argv ...string) string {
		t.Helper()
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Dir, cmd.Env = dir, []string{"PATH=" + path, "TMPDIR=" + temp, "HOME=" + dir}
		out, err := cmd.CombinedOutput()
		require.Error(t, err, "%s", out)
		left, err := os.ReadDir(temp)
		require.NoError(t, err)
		require.Empty(t, left)
		return string(out)
	}
	app := filepath.Join(t.TempDir(), "app-gen") // without the device's programs beside it
	program, err := os.ReadFile(filepath.Join(programs, "app-gen"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(app, program, 0o755))
	path := os.Getenv("PATH")
	require.Contains(t, refused("/nonexistent", app, "try"), "needs dockerd")
	require.Contains(t, refused(path, app, "try", "--programs", dir), "there is no "+dir)
	require.Contains(t, refused(path, filepath.Join(programs, "app-gen"), "try"), "there is no app-gen.toml in this directory")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "app-gen.toml"), nil, 0o644))
	require.Contains(t, refused(path, filepath.Join(programs, "app-gen"), "try"), "the release cannot be made")
}

// commandsBelow are the lines of the first indented block below a heading of a document.
func commandsBelow(t *testing.T, file, heading string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(bed.Repository(), file))
	require.NoError(t, err)
	_, below, ok := strings.Cut(string(text), "\n"+heading+"\n")
	require.True(t, ok, heading)
	var lines []string
	for line := range strings.Lines(below) {
		if command, ok := strings.CutPrefix(line, "    "); ok {
			lines = append(lines, strings.TrimPrefix(command, "sudo "))
		} else if len(lines) > 0 {
			break
		}
	}
	return strings.Join(lines, "")
}

// plain is a text without indentation, empty lines and the width of columns.
func plain(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) > 0 {
			lines = append(lines, strings.Join(words, " "))
		}
	}
	return strings.Join(lines, "\n")
}

// hostState is what a private machine must not change here.
func hostState(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("bash", "-c", `ip -br link; hostname; ls -A /run/docker* /var/run/docker.sock /etc/docker /etc/mender /data /usr/share/mender 2>&1; findmnt -rno TARGET`).CombinedOutput()
	if err != nil {
		t.Log(string(out))
	}
	return string(out)
}
