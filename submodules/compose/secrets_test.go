package compose

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
)

// secretsReader is a reader whose device has a key and a tmpfs.
type secretsReader struct {
	*reader
	key *age.X25519Identity
}

func newSecretsReader(t *testing.T) *secretsReader {
	r := &secretsReader{reader: newReader(t)}
	var err error
	r.key, err = age.GenerateX25519Identity()
	require.NoError(t, err)
	tmpfs, err := os.MkdirTemp("/dev/shm", "mender-app-test-*")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(tmpfs) })
	r.s.set.secrets.Identity = filepath.Join(t.TempDir(), "identity.age")
	r.s.set.secrets.Dir = filepath.Join(tmpfs, "secrets")
	require.NoError(t, os.WriteFile(r.s.set.secrets.Identity, []byte(r.key.String()+"\n"), 0o600))
	return r
}

func (r *secretsReader) seal(name, text string, to *age.X25519Identity) {
	r.Helper()
	var b bytes.Buffer
	w, err := age.Encrypt(&b, to.Recipient())
	require.NoError(r, err)
	_, err = w.Write([]byte(text))
	require.NoError(r, err)
	require.NoError(r, w.Close())
	r.write(name, b.String())
}

func (r *secretsReader) decrypt() (*project, error) {
	p, err := r.read()
	if err != nil {
		return nil, err
	}
	return p, r.s.decrypt(r.Context(), p)
}

const useSecrets = `services:
  a: {image: "a:1", secrets: [pin, {source: key, uid: "103", gid: "104", mode: 0440}]}
  b: {image: "a:1", secrets: [pin]}
  c: {image: "a:1"}
secrets:
  pin: {file: ./conf/pin}
  key: {file: "${KEY}"}
  plain: {file: ./plain}
`

// TestDecryptSecrets: what the manifests hold encrypted comes to the tmpfs, and
// the generated Compose file names it there. A new encryption of the same changes
// nothing; other content, owner or mode is another file and another label.
func TestDecryptSecrets(t *testing.T) {
	r := newSecretsReader(t)
	r.write("compose.yaml", useSecrets)
	r.write(".env", "KEY=./conf/key\n")
	r.write("plain", "plain")
	r.write("plain.age", "not looked at")
	r.seal("conf/pin.age", "hunter-pin", r.key)
	r.seal("conf/key.age", "hunter-key", r.key)
	label := func() (labels [3]string, text string) {
		t.Helper()
		p, err := r.decrypt()
		require.NoError(t, err)
		require.Len(t, p.sealed, 2)
		for i, name := range []string{"a", "b", "c"} {
			if labels[i], err = p.mounted(p.model.Services[name], false); err != nil {
				t.Fatal(err)
			}
		}
		over, err := p.override("evil", t.TempDir())
		require.NoError(t, err)
		b, err := os.ReadFile(over)
		require.NoError(t, err)
		require.NotContains(t, string(b), "hunter")
		require.NoError(t, r.s.putSecrets(p))
		for name, want := range map[string]string{"pin": "hunter-pin", "key": "hunter-key"} {
			secret := p.sealed[name]
			got, err := os.ReadFile(secret.path)
			require.NoError(t, err)
			require.Equal(t, want, string(got))
			require.Contains(t, string(b), `"file": "`+secret.path+`"`)
		}
		require.Equal(t, []any{103, 104, os.FileMode(0o440), 0, 0, os.FileMode(0o600)}, []any{
			p.sealed["key"].UID, p.sealed["key"].GID, p.sealed["key"].Mode, p.sealed["pin"].UID, p.sealed["pin"].GID, p.sealed["pin"].Mode,
		})
		return labels, string(b)
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give files away")
	}
	before, text := label()
	require.Empty(t, before[2])
	r.seal("conf/pin.age", "hunter-pin", r.key)
	after, again := label()
	require.Equal(t, before, after)
	require.Equal(t, text, again)

	r.write("compose.yaml", strings.Replace(useSecrets, "secrets: [pin]", "secrets: [key]", 1))
	_, err := r.decrypt()
	require.ErrorIs(t, err, submodules.ErrContent)
	require.ErrorContains(t, err, "services a and b want the encrypted secret key with another uid, gid or mode")

	r.write("compose.yaml", useSecrets)
	r.seal("conf/key.age", "hunter-other", r.key)
	p, err := r.decrypt()
	require.NoError(t, err)
	a, err := p.mounted(p.model.Services["a"], false)
	require.NoError(t, err)
	b, err := p.mounted(p.model.Services["b"], false)
	require.NoError(t, err)
	require.NotEqual(t, before[0], a, "the service of the changed secret")
	require.Equal(t, before[1], b, "the other one")
}

// TestRefusesSecrets: what cannot be decrypted is refused before anything changes.
func TestRefusesSecrets(t *testing.T) {
	if testing.Short() {
		t.Skip("asks Compose for each case; left out of -short")
	}
	other, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	for name, c := range map[string]struct {
		with func(r *secretsReader)
		says string
	}{
		"no key":      {func(r *secretsReader) { require.NoError(r, os.Remove(r.s.set.secrets.Identity)) }, "age-keygen -o"},
		"another key": {func(r *secretsReader) { r.seal("pin.age", "hunter2", other) }, "not encrypted to this device's key"},
		"cut off": {func(r *secretsReader) {
			require.NoError(r, os.Truncate(filepath.Join(r.dir, "pin.age"), 210))
		}, "is damaged"},
		"huge": {func(r *secretsReader) { r.seal("pin.age", strings.Repeat("hunter2", 200_000), r.key) }, "too large"},
		"a link out": {func(r *secretsReader) {
			require.NoError(r, os.Rename(filepath.Join(r.dir, "pin.age"), filepath.Join(r.dir, "..", "elsewhere")))
			require.NoError(r, os.Symlink("../elsewhere", filepath.Join(r.dir, "pin.age")))
		}, "escapes"},
		"a directory": {func(r *secretsReader) {
			require.NoError(r, os.Remove(filepath.Join(r.dir, "pin.age")))
			require.NoError(r, os.Mkdir(filepath.Join(r.dir, "pin.age"), 0o755))
		}, "is not a file"},
		"a user's name": {func(r *secretsReader) {
			r.write("compose.yaml", `{services: {a: {image: "a:1", secrets: [{source: pin, uid: root}]}}, secrets: {pin: {file: ./pin}}}`)
		}, `"root" is not a number`},
		"a mode": {func(r *secretsReader) {
			r.write("compose.yaml", `{services: {a: {image: "a:1", secrets: [{source: pin, mode: 04755}]}}, secrets: {pin: {file: ./pin}}}`)
		}, "is not one of permissions alone"},
		"outside": {func(r *secretsReader) {
			r.write("compose.yaml", `{services: {a: {image: "a:1", secrets: [pin]}}, secrets: {pin: {file: ../pin}}}`)
		}, "outside the manifests"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newSecretsReader(t)
			r.write("compose.yaml", `{services: {a: {image: "a:1", secrets: [pin]}}, secrets: {pin: {file: ./pin}}}`)
			r.seal("pin.age", "hunter2", r.key)
			c.with(r)
			_, err := r.decrypt()
			require.ErrorIs(t, err, submodules.ErrContent)
			require.ErrorContains(t, err, c.says)
			require.NotContains(t, err.Error(), "hunter2")
			require.NoDirExists(t, r.s.set.secrets.Dir)
		})
	}
}
