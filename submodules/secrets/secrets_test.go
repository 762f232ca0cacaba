package secrets

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	"filippo.io/age/armor"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/submodules/config"
)

// device is one that has keys.
type device struct {
	Settings
	recipient *age.X25519Recipient
	key       string
}

func newDevice(t *testing.T) device {
	id, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	d := device{recipient: id.Recipient(), key: id.String()}
	d.Identity = filepath.Join(t.TempDir(), "identity.age")
	d.Settings.Dir = tmpfs(t)
	require.NoError(t, os.WriteFile(d.Identity, []byte("# created: now\n\n"+d.key+"\n"), 0o600))
	return d
}

// tmpfs returns a directory on a tmpfs that is not there yet.
func tmpfs(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "mender-app-test-*")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "run", "secrets")
}

func (d device) keys(t *testing.T) *Keys {
	k, err := d.Keys(t.Context())
	require.NoError(t, err)
	return k
}

func seal(t *testing.T, text string, to ...age.Recipient) []byte {
	var b bytes.Buffer
	w, err := age.Encrypt(&b, to...)
	require.NoError(t, err)
	_, err = w.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

func armored(t *testing.T, sealed []byte) []byte {
	var b bytes.Buffer
	w := armor.NewWriter(&b)
	_, err := w.Write(sealed)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

func TestDecrypt(t *testing.T) {
	d, other := newDevice(t), newDevice(t)
	k := d.keys(t)
	long := strings.Repeat("a secret ", 20000)
	for name, sealed := range map[string][]byte{
		"alone":   seal(t, long, d.recipient),
		"several": seal(t, long, other.recipient, d.recipient),
		"armored": armored(t, seal(t, long, d.recipient)),
	} {
		text, err := k.Decrypt(bytes.NewReader(sealed), names.MaxSecret)
		require.NoError(t, err, name)
		require.Equal(t, long, string(text), name)
	}
	text, err := k.Decrypt(bytes.NewReader(seal(t, "", d.recipient)), names.MaxSecret)
	require.NoError(t, err)
	require.Empty(t, text)
}

// What is wrong with an encrypted file is said without a word of it.
func TestDecryptRefuses(t *testing.T) {
	d, other := newDevice(t), newDevice(t)
	good := seal(t, "hunter2-and-more", d.recipient)
	changed := bytes.Clone(good)
	changed[len(changed)-1]++
	var many []age.Recipient
	for range 700 {
		many = append(many, other.recipient)
	}
	for name, c := range map[string]struct {
		sealed []byte
		says   string
	}{
		"another key": {seal(t, "hunter2-and-more", other.recipient), "not encrypted to this device's key (" + d.Identity},
		"cut off":     {good[:len(good)-5], "cut off or changed"},
		"cut header":  {good[:40], "is damaged"},
		"cut armor":   {armored(t, good)[:60], "armor is not complete"},
		"changed":     {changed, "cut off or changed"},
		"plain":       {[]byte("hunter2-and-more"), "not encrypted with age"},
		"empty":       {nil, "not encrypted with age"},
		"too large":   {seal(t, strings.Repeat("hunter2", 200), d.recipient), "too large: more than 1000 bytes"},
		"huge":        {bytes.Repeat([]byte("hunter2"), 100_000), "too large"},
		"header":      {seal(t, "hunter2-and-more", append(many, d.recipient)...), "its header is larger than 64 KiB"},
	} {
		text, err := d.keys(t).Decrypt(bytes.NewReader(c.sealed), 1000)
		require.ErrorContains(t, err, c.says, name)
		require.NotContains(t, err.Error(), "hunter2", name)
		require.Empty(t, text, name)
	}
}

// Only files of the tree are decrypted.
func TestDecryptFileStaysInside(t *testing.T) {
	d := newDevice(t)
	dir := t.TempDir()
	outside := filepath.Join(dir, "outside.age")
	require.NoError(t, os.WriteFile(outside, seal(t, "x", d.recipient), 0o600))
	tree := filepath.Join(dir, "tree")
	require.NoError(t, os.Mkdir(tree, 0o700))
	require.NoError(t, os.Symlink(outside, filepath.Join(tree, "absolute.age")))
	require.NoError(t, os.Symlink("../outside.age", filepath.Join(tree, "relative.age")))
	require.NoError(t, os.Mkdir(filepath.Join(tree, "dir.age"), 0o700))
	root, err := os.OpenRoot(tree)
	require.NoError(t, err)
	defer root.Close()
	for _, name := range []string{"absolute.age", "relative.age", "../outside.age", outside, "dir.age"} {
		_, _, err := d.keys(t).DecryptFile(root, name, names.MaxSecret)
		require.Error(t, err, name)
	}
}

func TestKeys(t *testing.T) {
	d, other := newDevice(t), newDevice(t)
	k := d.keys(t)
	require.NoError(t, k.Check(nil))
	require.NoError(t, k.Check([]string{other.recipient.String(), d.recipient.String()}))
	err := k.Check([]string{other.recipient.String()})
	require.ErrorContains(t, err, "--encrypt-secrets-to "+d.recipient.String())

	// An older key still decrypts what was encrypted to it.
	require.NoError(t, os.WriteFile(d.Identity, []byte(other.key+"\n"+d.key+"\n"), 0o600))
	text, err := d.keys(t).Decrypt(bytes.NewReader(seal(t, "x", d.recipient)), names.MaxSecret)
	require.NoError(t, err)
	require.Equal(t, "x", string(text))

	missing := Settings{Identity: filepath.Join(t.TempDir(), "none")}
	_, err = missing.Keys(t.Context())
	require.ErrorContains(t, err, "age-keygen -o "+missing.Identity)
	_, err = Settings{Identity: t.TempDir()}.Keys(t.Context())
	require.ErrorContains(t, err, "is not a file")

	for mode, ok := range map[fs.FileMode]bool{0o600: true, 0o400: true, 0o640: false, 0o604: false, 0o620: false} {
		require.NoError(t, os.Chmod(d.Identity, mode))
		_, err := d.Keys(t.Context())
		if ok {
			require.NoError(t, err, mode)
		} else {
			require.ErrorContains(t, err, "chmod 600 "+d.Identity, mode)
		}
	}
	require.NoError(t, os.Chmod(d.Identity, 0o600))
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(d.Identity, 65534, 65534))
		_, err := d.Keys(t.Context())
		require.ErrorContains(t, err, "chown root")
		require.NoError(t, os.Chown(d.Identity, 0, 0))
	}
	for text, says := range map[string]string{
		"":                             "has no key",
		"# nothing\n":                  "has no key",
		d.key + "\n" + d.key[:40]:      "line 2 is not a key",
		strings.Repeat("#", 70<<10):    "too large",
		strings.Repeat(d.key+"\n", 17): "more than 16 keys",
	} {
		require.NoError(t, os.WriteFile(d.Identity, []byte(text), 0o600))
		_, err := d.Keys(t.Context())
		require.ErrorContains(t, err, says)
		require.NotContains(t, err.Error(), d.key[16:30])
	}
}

func TestIdentityCommand(t *testing.T) {
	d := newDevice(t)
	read := func(text string) Settings {
		f, err := config.Parse("test.conf", []byte(text))
		require.NoError(t, err)
		s, err := ReadSettings(f)
		require.NoError(t, err)
		return s
	}
	require.Equal(t, Settings{Identity: DefaultIdentity, Dir: DefaultTmpfs}, read(""))
	require.Equal(t, Settings{Identity: "/a", Dir: "/b"}, read("[secrets]\nidentity = \"/a\"\ndir = \"/b\"\n"))

	k, err := read("SECRETS_IDENTITY_COMMAND='cat " + d.Identity + "'\n").Keys(t.Context())
	require.NoError(t, err)
	require.NoError(t, k.Check([]string{d.recipient.String()}))

	script := filepath.Join(t.TempDir(), "key")
	for text, says := range map[string]string{
		"echo " + d.key + "; echo " + d.key + " >&2; exit 3": "exit status 3",
		"yes " + d.key: "prints more than",
		"echo x":       "line 1 is not a key",
	} {
		require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\n"+text+"\n"), 0o755))
		_, err := Settings{Command: []string{script}}.Keys(t.Context())
		require.ErrorContains(t, err, says)
		require.ErrorContains(t, err, "SECRETS_IDENTITY_COMMAND")
		require.NotContains(t, err.Error(), d.key[16:30])
	}
	_, err = Settings{Command: []string{"/nonexistent"}}.Keys(t.Context())
	require.ErrorContains(t, err, "SECRETS_IDENTITY_COMMAND")
}

func TestName(t *testing.T) {
	a, b := newDevice(t).keys(t), newDevice(t).keys(t)
	f := File{Text: []byte("x"), Mode: 0o400}
	require.Equal(t, a.Name(f), a.Name(f))
	require.Regexp(t, `^[0-9a-f]{32}$`, a.Name(f))
	seen := map[string]bool{a.Name(f): true}
	for _, name := range []string{
		b.Name(f), a.Name(File{Text: []byte("y"), Mode: 0o400}), a.Name(File{Text: []byte("x"), Mode: 0o440}),
		a.Name(File{Text: []byte("x"), Mode: 0o400, UID: 1}), a.Name(File{Text: []byte("x"), Mode: 0o400, GID: 1}),
	} {
		require.False(t, seen[name])
		seen[name] = true
	}
}

func TestDir(t *testing.T) {
	d := newDevice(t)
	k := d.keys(t)
	records := filepath.Join(t.TempDir(), "secrets")
	dir := d.ForApplication("shop", records)
	f := File{Text: []byte("hunter2"), Mode: 0o440}
	if os.Geteuid() == 0 {
		f.UID, f.GID = 103, 104
	}
	name := k.Name(f)
	put := func() bool {
		t.Helper()
		require.NoError(t, dir.Ready())
		made, err := dir.Put(name, f)
		require.NoError(t, err)
		text, err := os.ReadFile(dir.Path(name))
		require.NoError(t, err)
		require.Equal(t, "hunter2", string(text))
		info, err := os.Stat(dir.Path(name))
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o440), info.Mode())
		require.True(t, dir.same(dir.Path(name), f))
		for _, at := range []string{d.Settings.Dir, filepath.Dir(dir.Path(name))} {
			info, err := os.Stat(at)
			require.NoError(t, err)
			require.Equal(t, fs.ModeDir|0o700, info.Mode())
		}
		return made
	}
	require.NoError(t, dir.Record(name, f, seal(t, "hunter2", d.recipient)))
	require.True(t, put())
	require.False(t, put())

	// What an engine makes of a file that it misses; a changed file.
	require.NoError(t, os.RemoveAll(d.Settings.Dir))
	require.NoError(t, os.MkdirAll(dir.Path(name), 0o755))
	require.True(t, put())
	require.NoError(t, os.Chmod(dir.Path(name), 0o600))
	require.NoError(t, os.WriteFile(dir.Path(name), []byte("hunter3"), 0o600))
	require.True(t, put())

	// A restart of the machine.
	require.NoError(t, os.RemoveAll(d.Settings.Dir))
	have, err := dir.Recorded()
	require.NoError(t, err)
	require.True(t, have)
	require.NoError(t, dir.Restore(k))
	require.False(t, put())

	// Records have nothing of the text.
	require.NoError(t, filepath.WalkDir(records, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NotContains(t, string(b), "hunter")
		}
		return err
	}))

	// One that cannot be decrypted does not keep the others back.
	bad := strings.Repeat("0", 32)
	require.NoError(t, dir.Record(bad, f, seal(t, "x", newDevice(t).recipient)))
	require.NoError(t, os.RemoveAll(d.Settings.Dir))
	require.ErrorContains(t, dir.Restore(k), "secret "+bad)
	require.False(t, put())

	require.NoError(t, dir.Sweep(func(n string) bool { return n == name }))
	require.False(t, put())
	require.NoError(t, dir.Restore(k))
	require.NoError(t, dir.Sweep(func(string) bool { return false }))
	require.NoFileExists(t, dir.Path(name))
	require.NoDirExists(t, records)

	require.NoError(t, dir.Record(name, f, seal(t, "hunter2", d.recipient)))
	put()
	require.NoError(t, dir.Remove())
	require.NoDirExists(t, filepath.Dir(dir.Path(name)))
	require.NoDirExists(t, records)
	require.NoError(t, dir.Remove())
	require.NoError(t, dir.Restore(k))
	require.NoError(t, d.ForApplication("shop", "").Remove())
}

func TestDirRefuses(t *testing.T) {
	d := newDevice(t)
	disk := t.TempDir()
	if onTmpfs(t, disk) {
		t.Skip("the temporary directory is a tmpfs itself")
	}
	err := Settings{Dir: filepath.Join(disk, "secrets")}.ForApplication("shop", "").Ready()
	require.ErrorContains(t, err, "is not on a tmpfs")
	require.ErrorContains(t, err, "SECRETS_DIR")

	// A link in its place leads to a disk.
	require.NoError(t, os.MkdirAll(d.Settings.Dir, 0o700))
	require.NoError(t, os.Symlink(disk, filepath.Join(d.Settings.Dir, "shop")))
	require.ErrorContains(t, d.ForApplication("shop", "").Ready(), "is not a directory of root")
	if os.Geteuid() == 0 {
		other := filepath.Join(d.Settings.Dir, "other")
		require.NoError(t, os.Mkdir(other, 0o777))
		require.NoError(t, os.Chown(other, 65534, 65534))
		require.ErrorContains(t, d.ForApplication("other", "").Ready(), "is not a directory of root")
	}
}

// onTmpfs reports whether a directory is on a tmpfs, without what is tested.
func onTmpfs(t *testing.T, dir string) bool {
	t.Helper()
	var st unix.Statfs_t
	require.NoError(t, unix.Statfs(dir, &st))
	return int64(st.Type) == unix.TMPFS_MAGIC // its type depends on the machine
}
