package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// unpack reads an archive of a report: the texts by name, without the directory.
func unpack(t *testing.T, archive io.Reader) map[string]string {
	t.Helper()
	zip, err := gzip.NewReader(archive)
	require.NoError(t, err)
	parts := map[string]string{}
	for in := tar.NewReader(zip); ; {
		head, err := in.Next()
		if err == io.EOF {
			return parts
		}
		require.NoError(t, err)
		require.EqualValues(t, 0o600, head.Mode)
		_, name, _ := strings.Cut(head.Name, "/")
		text, err := io.ReadAll(in)
		require.NoError(t, err)
		parts[name] = string(text)
	}
}

// A report tells how the device is, and none of the secrets that it has: wherever
// they are kept, and although a service wrote all of them.
func TestReport(t *testing.T) {
	d := installed(t)
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(d.Dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	auth := base64.StdEncoding.EncodeToString([]byte("user:registry-pass"))
	manifests := "store/shop/releases/1-shop-1/manifests/"
	write(manifests+".env", "DB=env-value-1\nexport QUOTED=\"env value 2\"\nMODE=production\nNAME=shop\n")
	write(manifests+"config/db.env", "OTHER=env-value-3\n")
	write(manifests+"secrets/db.txt", "file-secret-4\n")
	write(manifests+"compose.override.yaml", "services:\n  web:\n    environment:\n      DB_PASSWORD: compose-secret-5\n")
	write("run/shop/api", "decrypted-6 \"quoted\"\n")
	write("identity.age", "# created\nAGE-SECRET-KEY-1SEVENTH\n")
	write("docker/config.json", `{"auths":{"r.example":{"auth":"`+auth+`"}},"proxies":{"default":{"httpsProxy":"http://u:proxy-pass-8@p:1"}}}`)
	write("mender.conf", `{"ServerURL":"https://hosted.example","TenantToken":"tenant-token-9","HttpsClient":{"Key":"pkcs11:x?pin-value=pin-10"}}`)
	write("mender-app-docker-compose.conf", "# SECRET_OLD=comment-11\nSECRETS_DIR=\""+d.Dir+"/run\"\nSECRETS_IDENTITY=\""+d.Dir+"/identity.age\"\nSECRETS_IDENTITY_COMMAND=\"get --pin command-12\"\nLOG_LINES=7\n")
	write("mender-app-k8s.conf", "K8S_IMAGE_TARGET=\"registry://u:push-13@h/p\"\n")
	write("mender-docker-compose.conf", "PERSISTENT_STORE="+d.Dir+"/other\n")
	write("other/current/manifests/.env", "IN=other-store-17\n")
	known := []string{"other-store-17", "env-value-1", "env value 2", "env-value-3", "file-secret-4", "compose-secret-5", `decrypted-6 "quoted"`, "AGE-SECRET-KEY-1SEVENTH",
		"registry-pass", auth, "proxy-pass-8", "tenant-token-9", "pin-10", "push-13", "env-proxy-14"}
	said, err := json.Marshal([]map[string]any{{"service": "web", "instance": "shop-web-1", "health": "healthy", "restarts": 1,
		"failure": "production of shop failed: " + strings.Join(known, " , ") + " password=guess-15 https://a:guess-16@b/"}})
	require.NoError(t, err)
	write("fake/services", string(said))

	env := []string{"DOCKER_CONFIG=" + d.Dir + "/docker", "HTTPS_PROXY=http://me:env-proxy-14@proxy:3128"}
	_, stderr, err := d.Run(env, "mender-app", "report", "-o", "report.tar.gz")
	require.NoError(t, err, stderr)
	path := filepath.Join(d.Dir, "report.tar.gz")
	st, err := os.Stat(path)
	require.NoError(t, err)
	require.EqualValues(t, 0o600, st.Mode().Perm())
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	parts := unpack(t, bytes.NewReader(data))
	for _, name := range []string{"versions.txt", "doctor.json", "status.json", "history/shop.json", "releases/shop.json", "journal.txt",
		"config/app.conf", "config/mender.conf", "config/mender-app-docker-compose.conf", "config/mender-app-k8s.conf"} {
		require.NotEmpty(t, parts[name], name)
	}
	for name, text := range parts {
		for _, secret := range append(known, `decrypted-6`, "comment-11", "command-12", "guess-15", "guess-16") {
			require.NotContains(t, text, secret, name)
		}
		if strings.HasSuffix(name, ".json") {
			require.True(t, json.Valid([]byte(text)), "%s: %s", name, text)
		}
	}
	require.Contains(t, parts["status.json"], `"failure": "production of shop failed: [removed] , [removed]`)
	require.Contains(t, parts["status.json"], `"release": "1-shop-1"`)
	require.Contains(t, parts["config/mender.conf"], `"ServerURL": "https://hosted.example"`)
	require.Contains(t, parts["config/mender-app-docker-compose.conf"], "LOG_LINES = 7")
	require.Contains(t, parts["config/mender-app-k8s.conf"], `"registry://[removed]@h/p"`)
	require.Contains(t, parts["history/shop.json"], `"status": "installed"`)

	// A configuration that is no JSON is not shown, and its token stays a secret.
	write("mender.conf", `{"TenantToken": "tenant-token-9",}`)
	out, stderr, err := d.Run(env, "mender-app", "report", "-o", "-")
	require.NoError(t, err, stderr)
	for name, text := range unpack(t, strings.NewReader(out)) {
		require.NotContains(t, text, "tenant-token-9", name)
	}

	// To standard output it is the same; nothing is left where it cannot be written.
	out, stderr, err = d.Run(env, "mender-app", "report", "-o", "-")
	require.NoError(t, err, stderr)
	require.Len(t, unpack(t, strings.NewReader(out)), len(parts))
	_, _, err = d.Run(env, "mender-app", "report", "-o", "none/report.tar.gz")
	require.Error(t, err)
	left, err := filepath.Glob(filepath.Join(d.Dir, ".mender-app-report-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// A report is bounded: of what is too long the end stays.
func TestReportIsBounded(t *testing.T) {
	r := &report{}
	r.add("long", strings.Repeat("x", maxReportPart)+"end")
	require.True(t, strings.HasSuffix(r.parts[0].text, "end"))
	for range 100 {
		r.add("more", strings.Repeat("y", maxReportPart))
	}
	require.Less(t, r.size, maxReport+200*100)
	size := 0
	for _, p := range r.parts {
		size += len(p.text)
	}
	require.Equal(t, r.size, size)
}

// Of every setting somebody has decided whether a report shows it.
func TestReportKnowsEverySetting(t *testing.T) {
	removed := []string{"secrets_identity_command", "engine_restart_command", "xdelta3_command"} // their words may be secret
	files, err := filepath.Glob("../../packaging/etc/*.conf")
	require.NoError(t, err)
	require.Len(t, files, 3)
	setting := regexp.MustCompile(`(?m)^#(\w+) ?=`)
	for _, file := range files {
		sample, err := os.ReadFile(file)
		require.NoError(t, err)
		show := moduleSettings
		if filepath.Base(file) == "mender-app.conf" {
			show = appSettings
		}
		for _, m := range setting.FindAllStringSubmatch(string(sample), -1) {
			require.Contains(t, slices.Concat(show, removed), strings.ToLower(m[1]), file)
		}
	}
}

// The commands of the operator's pages are there, with the options that these use.
func TestOperatingDocuments(t *testing.T) {
	for page, least := range map[string]int{"OPERATING.md": 10, "SETTINGS.md": 10} {
		text, err := os.ReadFile("../../docs/" + page)
		require.NoError(t, err)
		found := regexp.MustCompile("(?m)(?:^    [$] |`)mender-app ([a-z][^`\n]*)").FindAllStringSubmatch(string(text), -1)
		require.Greater(t, len(found), least, page)
		for _, m := range found {
			cmd, args, err := (&program{}).root().Find(strings.Fields(m[1]))
			require.NoError(t, err, m[1])
			require.True(t, cmd.HasParent(), m[1])
			if err := cmd.ParseFlags(args); !errors.Is(err, pflag.ErrHelp) {
				require.NoError(t, err, m[1])
			}
		}
	}
}
