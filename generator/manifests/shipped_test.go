package manifests

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/compose-spec/compose-go/v2/dotenv"
	"github.com/stretchr/testify/require"
)

// paths lists the files and directories of a tree.
func paths(t *testing.T, dir string) []string {
	t.Helper()
	var list []string
	require.NoError(t, fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if name != "." {
			list = append(list, name)
		}
		return err
	}))
	return list
}

func TestCheckTree(t *testing.T) {
	dir := tree(t, "a/compose.yaml", "x", "b", "y")
	require.NoError(t, os.Symlink("../b", filepath.Join(dir, "a/link")))
	require.NoError(t, CheckTree(dir, nil))

	for target, want := range map[string]string{
		"../../b":     "a/out: link to ../../b leaves",
		"/etc/passwd": "a/out: link to /etc/passwd leaves",
	} {
		link := filepath.Join(dir, "a/out")
		require.NoError(t, os.Symlink(target, link))
		require.ErrorContains(t, CheckTree(dir, nil), want)
		require.NoError(t, os.Remove(link))
	}
	require.NoError(t, os.Symlink("none", filepath.Join(dir, ".env")))
	require.NoError(t, CheckTree(dir, nil))
	for needs, want := range map[string]string{".env": ".env: link to none leads to nothing", ".": "", "a": ""} {
		only, err := (*Ignore)(nil).Select(dir, []string{needs})
		require.NoError(t, err)
		if err = CheckTree(dir, only); want == "" {
			require.NoError(t, err)
			if needs == "." {
				require.Equal(t, []string{".env"}, only.Lost())
			} else {
				require.Empty(t, only.Lost())
			}
			to := filepath.Join(t.TempDir(), "copy")
			require.NoError(t, CopyTree(dir, to, only))
			require.NotContains(t, paths(t, to), ".env")
		} else {
			require.ErrorContains(t, err, want)
		}
	}
	require.ErrorContains(t, CheckTree(filepath.Join(dir, "b"), nil), "is a file")
	require.ErrorContains(t, CheckTree(filepath.Join(dir, "none"), nil), "no such file")
}

func TestIgnoredIsNotShipped(t *testing.T) {
	dir := tree(t, "compose.yaml", "c", ".git/config", "g", "web/node_modules/x/index.js", "n", "web/app.js", "a",
		"logs/old.log", "l", "logs/keep.log", "k", "logs/deep/x.log", "l",
		IgnoreFile, "# not for devices\n.git\n**/node_modules\nlogs\n!logs/keep.log\n")
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, ".git/pipe"), 0o600))
	ignore, err := ReadIgnore(dir)
	require.NoError(t, err)
	require.NoError(t, CheckTree(dir, ignore), "a pipe that is not shipped")
	to := filepath.Join(t.TempDir(), "copy")
	require.NoError(t, CopyTree(dir, to, ignore))
	require.Equal(t, []string{"compose.yaml", "logs", "logs/keep.log", "web", "web/app.js"}, paths(t, to))
	require.True(t, ignore.Ignored(".git/config"))
	require.False(t, ignore.Ignored("compose.yaml"))
}

func TestMalformedIgnoreFiles(t *testing.T) {
	ignore, err := ReadIgnore(tree(t, "a", "b"))
	require.NoError(t, err)
	require.False(t, ignore.Ignored("a"))
	for name, text := range map[string]string{"pattern": "a[", "exclamation mark": "!", "size": strings.Repeat("a\n", maxIgnoreFile)} {
		_, err := ReadIgnore(tree(t, IgnoreFile, text))
		var e *Error
		require.ErrorAs(t, err, &e, name)
		require.Equal(t, IgnoreFile, e.Place.File, name)
	}
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, IgnoreFile), 0o755))
	_, err = ReadIgnore(dir)
	require.ErrorContains(t, err, "is not a file")
}

func TestUmaskDoesNotChangeCopies(t *testing.T) {
	dir := tree(t, "conf/run", "x", "compose.yaml", "c")
	require.NoError(t, os.Chmod(filepath.Join(dir, "conf/run"), 0o755))
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	to := filepath.Join(t.TempDir(), "copy")
	require.NoError(t, CopyTree(dir, to, nil))
	require.NoError(t, AddVariables(to, []Variable{{Name: "A", Value: "1"}}))
	for name, mode := range map[string]fs.FileMode{"conf": fs.ModeDir | 0o755, "conf/run": 0o755, "compose.yaml": 0o644, ".env": 0o644} {
		info, err := os.Stat(filepath.Join(to, name))
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode(), name)
	}
}

func TestVariablesAreReadBack(t *testing.T) {
	for _, v := range []string{"", "plain", "a b", `it's`, `"x"`, "$HOME", `back\slash`, "it's $HOME \"q\" \\ \n end", "#no comment"} {
		dir := t.TempDir()
		require.NoError(t, AddVariables(dir, []Variable{{Name: "NAME", Value: v}}))
		// as compose on the device reads it
		env, err := dotenv.GetEnvFromFile(map[string]string{}, []string{filepath.Join(dir, ".env")})
		require.NoError(t, err)
		require.Equal(t, v, env["NAME"], "%q", v)
	}
}

func TestSuspects(t *testing.T) {
	key := "-----BEGIN EC PRIVATE KEY-----\nMHc\n"
	dir := tree(t, "compose.yaml", "c", ".git/objects/pack", strings.Repeat("g", 12_345), ".git/HEAD", "ref",
		"web/node_modules/x/index.js", "n", "tls/server.pem", key, "pin.pem", key, ".npmrc", "//registry/:_authToken=x",
		"readme", "not -----BEGIN EC a key", "keys.txt", "# created\nAGE-SECRET-KEY-1QQ")
	list, err := Suspects(dir, []string{"pin.pem"})
	require.NoError(t, err)
	require.Len(t, list, 5, "%s", list)
	for i, want := range []string{
		".git is shipped: the history of the project, 2 files with 12.3 kB; name it in .menderappignore",
		"web/node_modules is shipped: packages of npm, 1 file with 1 B",
		".npmrc (24 B) is shipped in plain",
		"keys.txt (",
		"tls/server.pem (35 B) is shipped in plain, and whoever has the artifact can read it: it is a private key",
	} {
		require.Contains(t, list[i], want)
	}
	for i := range 30 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "k"+strings.Repeat("x", i)+".pem"), []byte(key), 0o600))
	}
	list, err = Suspects(dir, nil)
	require.NoError(t, err)
	require.Len(t, list, 2+maxWarnings+1)
	require.Contains(t, list[len(list)-1], "and 24 more")
}
