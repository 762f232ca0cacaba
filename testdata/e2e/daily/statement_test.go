package daily

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/x509"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	container "github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/artifact/statement"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// restated writes an artifact again with other metadata, signed with a key: what the
// holder of a key that the Mender client trusts can do.
func restated(t *testing.T, file string, key crypto.Signer, change func(*artifact.Metadata), header ...func(*container.Spec)) {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	r, err := container.NewReader(f, container.ReadOptions{})
	require.NoError(t, err)
	h := r.Header()
	spec := container.Spec{
		Name: h.Name, DeviceTypes: h.DeviceTypes, PayloadType: h.PayloadType, Provides: h.Provides, Depends: h.Depends,
		ClearsProvides: h.ClearsProvides,
	}
	for {
		info, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		b, err := io.ReadAll(r)
		require.NoError(t, err)
		spec.Files = append(spec.Files, container.File{Name: info.Name, Size: int64(len(b)), Open: func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(b)), nil
		}})
	}
	m := metaOf(t, file)
	change(m)
	for _, change := range header {
		change(&spec)
	}
	spec.MetaData, err = m.Encode()
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, container.Write(&out, spec, container.Options{Key: key}))
	require.NoError(t, os.WriteFile(file, out.Bytes(), 0o644))
}

func metaOf(t *testing.T, file string) *artifact.Metadata {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	r, err := container.NewReader(f, container.ReadOptions{})
	require.NoError(t, err)
	m, _, err := artifact.ParseMetadata(r.Header().MetaData)
	require.NoError(t, err)
	return m
}

func statementOf(t *testing.T, file string) statement.Statement {
	t.Helper()
	s, err := statement.Parse(metaOf(t, file).Statement)
	require.NoError(t, err)
	return s.Statement
}

// Under the Mender client, which trusts one key for all artifacts, the key of the
// statement decides which application may be replaced. A refusal changes nothing; a
// whole artifact and a delta with the shop's statement are installed.
func TestStatements(t *testing.T) {
	d := e2e.Device(t)
	conf, err := os.ReadFile(d.Path("/etc/mender/mender-app.conf"))
	require.NoError(t, err)
	keys, files := map[string]crypto.Signer{}, map[string]string{}
	for _, name := range []string{"fleet", "shop", "till"} {
		key, ok := e2e.ECDSAKey(t).(*ecdsa.PrivateKey)
		require.True(t, ok)
		private, err := x509.MarshalECPrivateKey(key)
		require.NoError(t, err)
		keys[name], files[name] = key, filepath.Join(t.TempDir(), name+".key")
		e2e.WritePEM(t, files[name], "EC PRIVATE KEY", private)
		public, err := x509.MarshalPKIXPublicKey(key.Public())
		require.NoError(t, err)
		e2e.WritePEM(t, d.Path("/etc/mender/"+name+".pub"), "PUBLIC KEY", public)
		if name != "fleet" {
			conf = append(conf, "\n[[keys]]\nfile = \"/etc/mender/"+name+".pub\"\napplications = [\""+name+"*\"]\n"...)
		}
	}
	require.NoError(t, os.WriteFile(d.Path("/etc/mender/mender-app.conf"), conf, 0o644))
	require.NoError(t, os.WriteFile(d.Path("/etc/mender/mender.conf"), []byte(`{"ArtifactVerifyKey": "/etc/mender/fleet.pub"}`), 0o644))
	edited := func(file string, change func(*artifact.Metadata), header ...func(*container.Spec)) string {
		restated(t, file, keys["fleet"], change, header...)
		return file
	}
	provides := func(file, key string) string {
		as := d.Share(key + ".mender")
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(as, data, 0o644))
		return edited(as, func(*artifact.Metadata) {}, func(s *container.Spec) { s.Provides[key] = "9" })
	}
	same := func(*artifact.Metadata) {}
	whole := func(version, key string) string {
		options := []string{"--application-version", version, "--output-path", d.Share("shop-" + version + "-" + key + ".mender")}
		if key != "" {
			options = append(options, "--key", files[key])
		}
		e2e.Generate(t, d, "shop", "shop-"+version, version, e2e.Compose(version), append(options, e2e.Archive(t, e2e.Web(t, version, "")), e2e.Archive(t, e2e.Stock(t)))...)
		return options[3]
	}
	one := whole("1", "shop")
	first := metaOf(t, one).Statement
	require.NotNil(t, first)

	// The real mender-artifact signs it again with the fleet's key.
	signed := d.Share("one.mender")
	out, err := exec.Command("mender-artifact", "sign", "-k", files["fleet"], "-o", signed, "--force", one).CombinedOutput()
	require.NoError(t, err, "%s", out)
	e2e.Mender(t, d, "install", signed)
	e2e.Mender(t, d, "commit")
	w := e2e.Watch(t, d)
	e2e.Says(t, w, "web 1")
	show := d.MustRun(t, "mender-app", "show", "shop")
	require.Contains(t, show, "signed by /etc/mender/shop.pub sha256:")

	before := e2e.Unchanging(d.MustState(t))
	refused := map[string]string{
		edited(whole("2", ""), same):     "no signed statement, but keys are bound to applications",
		edited(whole("2", "till"), same): `till.pub may not sign for application "shop", only for till*`,
		edited(whole("2", "fleet"), func(m *artifact.Metadata) { m.Statement = first }): `it is about version "1", and the artifact has "2"`,
		// What the client would record of the system and of others is signed too.
		provides(whole("3", "shop"), "rootfs-image.version"):         `the artifact's provides "rootfs-image.version" is not what it says`,
		provides(whole("3", "shop"), "data-partition.kiosk.version"): `the artifact's provides "data-partition.kiosk.version" is not what it says`,
	}
	for file := range refused {
		e2e.MenderFails(t, d, "install", file)
		require.Equal(t, before, e2e.Unchanging(d.MustState(t)), file)
	}
	history := d.MustRun(t, "mender-app", "history", "shop", "--status", "refused")
	for _, text := range refused {
		require.Contains(t, history, text)
	}

	// A delta of release 2 carries the same statement as the whole artifact.
	small := d.Share("delta.mender")
	e2e.Generate(t, d, "shop", "shop-2", "2", e2e.Compose("2"), "--application-version", "2", "--key", files["shop"], "--output-path", small,
		e2e.Delta(t, e2e.Web(t, "1", ""), e2e.Web(t, "2", "")), e2e.Delta(t, e2e.Stock(t), e2e.Stock(t)))
	require.Equal(t, statementOf(t, whole("2", "shop")), statementOf(t, small))
	e2e.Mender(t, d, "install", edited(small, same))
	e2e.Mender(t, d, "commit")
	e2e.Says(t, w, "web 2")
	verify := d.MustRun(t, "mender-app", "verify", "shop")
	require.Contains(t, verify, "2-shop-2: statement signed by /etc/mender/shop.pub sha256:")
	require.Contains(t, verify, "1-shop-1: statement signed by /etc/mender/shop.pub sha256:")
}
