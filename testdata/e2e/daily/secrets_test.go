package daily

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"io/fs"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// canary is in each secret of TestDeviceSecretsAppearNowhere, and in nothing else.
const canary = "canary7b1f"

// secretServer serves a directory, over TLS to who has the token of the mirrors, and in plain
// to who has the user and password of a URL. Each request is noted as "NAME STATUS".
const secretServer = `
import base64, http.server, os, ssl, sys, threading
place, log, cert, key = sys.argv[1:5]
word = open(sys.argv[5]).read()
basic = "Basic " + base64.b64encode((word + "-user:" + word + "-password").encode()).decode()
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        path, _, query = self.path.partition("?")
        if self.server.server_port == 8098:
            ok = self.headers.get("Authorization") == "Bearer " + word + "-token"
        else:
            ok = self.headers.get("Authorization") == basic and query == "token=" + word + "-query"
        name = os.path.join(place, os.path.basename(path))
        status = 200 if ok and os.path.exists(name) else 404 if ok else 401
        body = open(name, "rb").read() if status == 200 else b""
        with open(log, "a") as f: f.write(os.path.basename(path) + " " + str(status) + "\n")
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args): pass
tls = http.server.ThreadingHTTPServer(("127.0.0.1", 8098), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(cert, key)
tls.socket = context.wrap_socket(tls.socket, server_side=True)
threading.Thread(target=tls.serve_forever, daemon=True).start()
http.server.ThreadingHTTPServer(("127.0.0.1", 8099), Handler).serve_forever()
`

// certify writes a certificate for 127.0.0.1 and its key.
func certify(t *testing.T, cert, key string) {
	t.Helper()
	private, ok := e2e.ECDSAKey(t).(*ecdsa.PrivateKey)
	require.True(t, ok)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "mirror"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	require.NoError(t, err)
	e2e.WritePEM(t, cert, "CERTIFICATE", der)
	text, err := x509.MarshalECPrivateKey(private)
	require.NoError(t, err)
	e2e.WritePEM(t, key, "EC PRIVATE KEY", text)
}

// A device is given a secret in each place where it takes one: values of the device and of
// the operator, overrides of both, .env of the manifests, the token of mirrors, the user,
// the password and the query of the URL of an artifact, and of a mirror, where it is refused.
// Updates succeed, fail and are refused meanwhile, under systemd, whose journal gets what our
// programs and the Mender client tell it. Nothing that is printed, logged, kept in the history, reported, served or seen in the list of processes has any of them, and the
// only files with them are those whose purpose it is.
func TestDeviceSecretsAppearNowhere(t *testing.T) {
	d := e2e.Device(t)
	d.StartSystemd(t)
	write := func(name, text string) {
		t.Helper()
		require.NoError(t, os.MkdirAll(filepath.Dir(d.Path(name)), 0o755))
		require.NoError(t, os.WriteFile(d.Path(name), []byte(text), 0o600))
	}
	read := func(name string) string {
		t.Helper()
		text, err := os.ReadFile(d.Path(name))
		require.NoError(t, err)
		return string(text)
	}
	seen := bed.Processes(t, canary)
	var said strings.Builder
	run := func(fails bool, stdin, name string, args ...string) string {
		t.Helper()
		cmd := d.Command(t.Context(), "env", append([]string{"JOURNAL_STREAM=8:1", name}, args...)...)
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		require.Equal(t, fails, err != nil, "%s %v: %s", name, args, out)
		said.Write(out)
		return string(out)
	}

	// What is signed may come over plain HTTP.
	key := filepath.Join(t.TempDir(), "key")
	private, ok := e2e.ECDSAKey(t).(*ecdsa.PrivateKey)
	require.True(t, ok)
	der, err := x509.MarshalECPrivateKey(private)
	require.NoError(t, err)
	e2e.WritePEM(t, key, "EC PRIVATE KEY", der)
	public, err := x509.MarshalPKIXPublicKey(private.Public())
	require.NoError(t, err)
	e2e.WritePEM(t, d.Path("/etc/mender/key.pub"), "PUBLIC KEY", public)
	write("/etc/mender/mender.conf", `{"ArtifactVerifyKey": "/etc/mender/key.pub"}`)

	release := func(version, mode string) string {
		t.Helper()
		manifests := t.TempDir()
		text := strings.Replace(e2e.Compose(version), "  web:\n", "  web:\n    environment: {OF_ENV: '${OF_ENV}', OF_VALUE: '${OF_VALUE}', OF_OPERATOR: '${OF_OPERATOR}'}\n", 1)
		for name, text := range map[string]string{
			"docker-compose.yml": text, ".env": "OF_ENV=" + canary + "-dotenv\nOF_VALUE=\nOF_OPERATOR=\n",
		} {
			require.NoError(t, os.WriteFile(filepath.Join(manifests, name), []byte(text), 0o644))
		}
		return e2e.AppGen(t, d, "shop-"+version, manifests, "--application-name", "shop", "--software-version", version,
			"--orchestrator", "docker-compose", "--key", key, e2e.Archive(t, e2e.Web(t, version, mode)), e2e.Archive(t, e2e.Stock(t)))
	}
	place := d.Share("place")
	programs, err := bed.Programs()
	require.NoError(t, err)
	reference := func(artifact string) string {
		out := strings.TrimSuffix(artifact, ".mender") + "-reference.mender"
		text, err := exec.Command(filepath.Join(programs, "app-gen"), "by-reference", artifact, place, "--key", key, "-o", out).CombinedOutput()
		require.NoError(t, err, "%s", text)
		return out
	}
	one, two, bad := reference(release("1", "")), release("2", ""), release("3", "crash")
	require.NoError(t, os.Rename(two, filepath.Join(place, "shop-2.mender")))
	certify(t, d.Path("/etc/mender/mirror.pem"), d.Share("mirror.key"))
	script := filepath.Join(t.TempDir(), "server.py")
	word := d.Share("word")
	for name, text := range map[string]string{script: secretServer, word: canary} {
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	asked := d.Share("asked")
	program, err := os.ReadFile(script)
	require.NoError(t, err)
	server := d.Command(t.Context(), "python3", "-c", string(program), place, asked, "/etc/mender/mirror.pem", d.Share("mirror.key"), word)
	require.NoError(t, server.Start())
	t.Cleanup(func() { _ = server.Process.Kill() })
	bed.Eventually(t, time.Minute, "the server answers", func() bool {
		r, err := d.Run("bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/8099")
		return err == nil && r.Code == 0
	})

	// A URL with a password in content_mirrors is refused, with all commands.
	conf := read("/etc/mender/mender-app.conf")
	write("/etc/mender/mender-app.conf", conf+"\ncontent_mirrors = [\"https://"+canary+":"+canary+"@127.0.0.1/m?token="+canary+"\"]\n")
	run(true, "", "mender-app", "status")
	run(true, "", "mender", "install", one)
	run(true, "", "mender-app", "doctor")

	write("/etc/mender/mirror-token", canary+"-token\n")
	write("/etc/mender/mender-app.conf", conf+"\ncontent_mirrors = [\"https://127.0.0.1:8098/m\"]\ncontent_ca = \"/etc/mender/mirror.pem\"\ncontent_token_file = \"/etc/mender/mirror-token\"\n")
	write("/etc/mender/mender-app/values.d/shop/10-device.env", "OF_VALUE="+canary+"-value\n")
	write("/etc/mender/mender-app/overrides.d/shop/10-device.yaml", "services: {web: {environment: {OF_OVERRIDE: "+canary+"-override}}}\n")
	write("/etc/mender/mender-app/hooks.d/pre-rollout/10-look", "#!/bin/sh\nenv >>/root/of-hook\necho rolling out\nsleep 0.2\n")
	require.NoError(t, os.Chmod(d.Path("/etc/mender/mender-app/hooks.d/pre-rollout/10-look"), 0o755))
	run(false, "", "mender-app", "check", one)
	run(false, "", "mender", "install", one)
	run(false, "", "mender", "commit")
	require.Contains(t, read(asked), " 200\n", "the mirror was asked with the token")
	run(false, "services: {web: {environment: {OF_OPERATOR_TOO: "+canary+"-set}}}\n", "mender-app", "overrides", "set", "shop", "-")
	require.Empty(t, seen())

	// Who gives a value as an argument shows it while the command runs, and only there.
	run(false, "", "mender-app", "values", "set", "--app", "shop", "OF_OPERATOR="+canary+"-operator")
	run(false, "", "mender-app", "restart", "shop")
	of := d.MustRun(t, "docker", "inspect", "shop-web-1")
	for _, part := range []string{"dotenv", "value", "override", "set", "operator"} {
		require.Contains(t, of, canary+"-"+part, "the service has it")
	}

	// An update that fails, one whose overrides do not fit, and a mirror that says no.
	run(true, "", "mender", "install", bad)
	write("/etc/mender/mender-app/overrides.d/shop/20-unfit.yaml", "services: {gone: {environment: {OF_OVERRIDE: "+canary+"-unfit}}}\n")
	run(true, "", "mender", "install", one)
	run(true, "services: {web: {environment: {A: [{"+canary+"-bad}]}}}\n", "mender-app", "overrides", "set", "shop", "-")
	for _, text := range []string{canary + ": [\n", canary + "\n", "services: {web: {environment: {A: *" + canary + "}}}\n", "services: {web: {environment: {A: {{" + canary + "}}}}}\n"} {
		run(true, text, "mender-app", "overrides", "set", "shop", "-")
	}
	require.NoError(t, os.Remove(d.Path("/etc/mender/mender-app/overrides.d/shop/20-unfit.yaml")))
	write("/etc/mender/mender-app/values.d/shop/20-bad.env", "OF_VALUE="+canary+"'s\n"+canary+" has no name\n")
	run(false, "", "mender-app", "restart", "shop") // without the values of that file
	require.NoError(t, os.Remove(d.Path("/etc/mender/mender-app/values.d/shop/20-bad.env")))
	write("/etc/mender/mirror-token", canary+"-wrong\n")
	require.Contains(t, run(true, "", "mender", "install", reference(release("4", ""))), "no place has it: https://127.0.0.1:8098/m: ")

	// An artifact from a URL.
	require.NoError(t, d.WithoutMender())
	url := "http://" + canary + "-user:" + canary + "-password@127.0.0.1:8099/shop-2.mender?token=" + canary + "-query"
	for _, wrong := range []string{strings.Replace(url, "password", "wrong", 1), strings.Replace(url, "shop-2", "gone", 1), strings.Replace(url, "http:", "ftp:", 1)} {
		run(true, wrong, "mender-app", "install", "--source-stdin")
	}
	run(false, url, "mender-app", "check", "--source-stdin")
	run(false, url, "mender-app", "stage", "add", "--source-stdin")
	run(false, "", "mender-app", "stage", "list")
	run(false, url, "mender-app", "install", "--source-stdin", "--commit")
	require.Contains(t, read(asked), "shop-2.mender 200\n")

	// What may be seen of all that.
	for _, args := range [][]string{
		{"status"}, {"--json", "status"}, {"status", "shop"}, {"status", "shop", "--json"}, {"status", "--stored", "--json"}, {"status", "--health", "--json"}, {"releases", "shop", "--json"},
		{"history"}, {"history", "shop", "--json"}, {"history", "shop", "1"}, {"events", "shop"}, {"events", "--json"}, {"logs", "shop"}, {"metrics"}, {"inventory"}, {"queue", "--json"},
		{"verify"}, {"report", "-o", d.Share("report.tar.gz")},
	} {
		run(false, "", "mender-app", args...)
	}
	run(false, "", "sh", "-c", "mender-app serve --idle 3s --socket /run/s & for i in $(seq 100); do [ -S /run/s ] && break; sleep 0.1; done; "+
		"for p in status apps apps/shop history queue staged; do curl -s --unix-socket /run/s http://localhost/v1/$p; done; curl -s --unix-socket /run/s http://localhost/metrics; wait")
	report, err := exec.Command("tar", "xOzf", d.Share("report.tar.gz")).Output()
	require.NoError(t, err)
	require.Contains(t, string(report), "content_mirrors")
	said.Write(report)
	said.WriteString(read("/root/of-hook"))
	journal := d.MustRun(t, "journalctl", "--no-pager", "--all", "--output=export")
	for _, has := range []string{"\nMENDER_APP_APPLICATION=shop\n", "\nMENDER_APP_ERROR=", "\nSYSLOG_IDENTIFIER=mender\n"} {
		require.Contains(t, journal, has)
	}
	said.WriteString(journal)
	for line := range strings.Lines(said.String()) {
		require.NotContains(t, line, canary)
	}
	for _, text := range seen() {
		require.Contains(t, text, "mender-app values set", "a program has it in its arguments")
	}

	// Where the secrets are on the device.
	left, err := d.LeftInTmp()
	require.NoError(t, err)
	require.Empty(t, left)
	given := []string{"etc/mender/mirror-token", "etc/mender/mender-app/values.d/*/*", "etc/mender/mender-app/overrides.d/*/*"}
	kept := []string{
		"data/mender-app/shop/app.json", "data/mender-app/shop/app.json.copy", "data/mender-app/shop/releases/*/manifests/.env", "data/mender-app/.mender-app/values/values.json",
	}
	for _, top := range []string{"etc", "data", "var/log", "var/tmp", "run", "var/lib/mender"} {
		root := d.Path("/" + top)
		require.NoError(t, filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() && path == d.Path("/run/docker") {
				return fs.SkipDir // what the engine keeps of containers
			}
			if err != nil || !e.Type().IsRegular() {
				return nil // it may be gone, and some places are not on each machine
			}
			if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), canary) {
				rel, err := filepath.Rel(root, path)
				require.NoError(t, err)
				rel = filepath.Join(top, rel)
				require.True(t, slices.ContainsFunc(append(given, kept...), func(pattern string) bool {
					ok, _ := filepath.Match(pattern, rel)
					return ok
				}), rel)
				info, err := e.Info()
				require.NoError(t, err)
				if strings.HasPrefix(rel, "etc/") {
					require.Zero(t, info.Mode().Perm()&0o077, rel)
				}
			}
			return nil
		}))
	}
}
