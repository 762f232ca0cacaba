package containerd

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
)

// passwords is what htpasswd -B writes for edge and s3cret.
const passwords = "edge:$2a$05$jXTDLHTl.ZQqQBPz9RERm.83jzmaXpBfLgK8GnUgRGs9gKt0.Qtii\n"

// secureRegistry is Debian's docker-registry on an address of this machine, over
// TLS with an authority of its own, for those who have the password.
func secureRegistry(t *testing.T) (host, ca string) {
	t.Helper()
	if _, err := exec.LookPath("docker-registry"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("missing in CI: docker-registry")
		}
		t.Skip("needs docker-registry (make setup)")
	}
	ip := address(t)
	dir := t.TempDir()
	write := func(name, kind string, data []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600))
		return path
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{ip}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	ca = write("ca.pem", "CERTIFICATE", der)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "htpasswd"), []byte(passwords), 0o600))
	for try := range 20 {
		host = net.JoinHostPort(ip.String(), fmt.Sprint(20000+(os.Getpid()+97*try)%10000)) // below what the kernel gives away
		l, err := net.Listen("tcp", host)
		if err == nil {
			require.NoError(t, l.Close())
			break
		}
	}
	conf := filepath.Join(dir, "config.yml")
	require.NoError(t, os.WriteFile(conf, fmt.Appendf(nil, `version: 0.1
log: {level: error}
storage: {filesystem: {rootdirectory: %[1]s/root}, delete: {enabled: true}}
auth: {htpasswd: {realm: edge, path: %[1]s/htpasswd}}
http: {addr: "%[2]s", tls: {certificate: %[3]s, key: %[4]s}}
`, dir, host, ca, write("key.pem", "PRIVATE KEY", private)), 0o600))
	cmd := exec.Command("docker-registry", "serve", conf)
	cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	g, err := NewRegistry("registry://"+host, ca)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return g.Ping(context.Background()) == nil }, 2*time.Minute, 50*time.Millisecond)
	return host, ca
}

// address is one of this machine that is not loopback, where no TLS is expected.
func address(t *testing.T) net.IP {
	t.Helper()
	all, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() {
			return n.IP
		}
	}
	t.Fatal("this machine has no IPv4 address beside loopback")
	return nil
}

// TestSecureRegistry: over TLS, and with a password.
func TestSecureRegistry(t *testing.T) {
	s := openStore(t)
	host, ca := secureRegistry(t)
	ctx := context.Background()
	seed := time.Now().UnixNano()
	app, url := fmt.Sprint("a", seed), fmt.Sprintf("secure-%d:1", seed)
	img := build(t, "1", pack(t, file{"base", text(seed, 100_000)}))
	_, err := receive(t, s, app, url, archived(t, img), id(img))
	require.NoError(t, err)

	for name, c := range map[string]struct{ target, ca, says string }{
		"a stranger's authority": {"registry://edge:s3cret@" + host, "", "K8S_REGISTRY_CA may name its certificate authority"},
		"no password":            {"registry://" + host, ca, "may require authorization"},
		"a wrong password":       {"registry://edge:wr0ng@" + host, ca, "401 Unauthorized"},
		"no TLS":                 {"registry+http://edge:s3cret@" + host, ca, "400"},
	} {
		g, err := NewRegistry(c.target, c.ca)
		require.NoError(t, err)
		err = s.Push(ctx, g, app, id(img))
		require.ErrorIs(t, err, submodules.ErrRequirement, name)
		require.ErrorContains(t, err, c.says, name)
		require.NotContains(t, err.Error(), "wr0ng")
		require.NotContains(t, err.Error(), "s3cret")
	}
	_, err = NewRegistry("registry://"+host, filepath.Join(t.TempDir(), "none"))
	require.ErrorContains(t, err, "the registry's certificate authority")

	g, err := NewRegistry("registry://edge:s3cret@"+host+"/some/where", ca)
	require.NoError(t, err)
	there, err := s.InRegistry(ctx, g, app, id(img))
	require.NoError(t, err)
	require.False(t, there)
	for range 2 { // the second sends nothing
		require.NoError(t, s.Push(ctx, g, app, id(img)))
	}
	there, err = s.InRegistry(ctx, g, app, id(img))
	require.NoError(t, err)
	require.True(t, there)
	ref, err := s.RegistryRef(ctx, g, app, id(img))
	require.NoError(t, err)
	require.NoError(t, g.RemoveFromRegistry(ctx, ref))
	there, err = s.InRegistry(ctx, g, app, id(img))
	require.NoError(t, err)
	require.False(t, there)
	require.NoError(t, g.RemoveFromRegistry(ctx, ref), "again is no error")
}
