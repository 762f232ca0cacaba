package manifests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Secrets that everybody who has the artifact can read are warned of; those of
// the device are not.
func TestPlainSecrets(t *testing.T) {
	found, err := Compose(t.Context(), writeFiles(t, map[string]string{
		".env": "PASSWORD=x\n", "key": "k",
		"compose.yaml": `
services: {a: {image: "a:1", secrets: [shipped, variable, device]}}
secrets:
  shipped: {file: ./key}
  variable: {environment: PASSWORD}
  device: {file: /etc/key}
  outside: {external: true}
`,
	}), ComposeOptions{})
	require.NoError(t, err)
	const text = ` is shipped in plain, and whoever has the artifact can read it: `
	require.Equal(t, []string{
		`compose.yaml:6: secret device /etc/key is a file of the device: it refuses this release unless ALLOW_OUTSIDE in its mender-app-docker-compose.conf has secret`,
		`compose.yaml:4: secret "shipped"` + text + `encrypt it with --encrypt-secrets-to, or name a file of the device by its absolute path`,
		`compose.yaml:5: secret "variable"` + text + `name a file of the device by its absolute path instead`,
	}, found.Warnings)

	found, err = Kubernetes(writeFiles(t, map[string]string{"a.yaml": `apiVersion: v1
kind: Secret
metadata: {name: empty}
---
{apiVersion: v1, kind: Secret, metadata: {name: encoded}, data: {key: eA==}}
---
apiVersion: v1
kind: Secret
metadata: {name: text}
stringData: {key: x}
`}), KubernetesOptions{})
	require.NoError(t, err)
	require.Len(t, found.Warnings, 2)
	require.Equal(t, `a.yaml:5: Secret "encoded" is shipped in plain, and whoever has the artifact can read it: encrypt it with --encrypt-secrets-to, or create it on the device`, found.Warnings[0])
}

// What is to be encrypted is found, and what cannot be is refused.
func TestEncrypt(t *testing.T) {
	compose := func(services, secrets string) map[string]string {
		return map[string]string{
			"key": "k", "deep/key": "k", "sealed.age": "x", ".env": "PASSWORD=x\n", "twice": "k", "twice.age": "x",
			"compose.yaml": "services: {a: {image: 'a:1'" + services + "}}\nsecrets:\n  s: {" + secrets + "}\n",
		}
	}
	for name, c := range map[string]struct {
		services, secrets string
		encrypt           []string
		sealed            bool
		says              string
	}{
		"file":           {"", "file: ./key", []string{"key"}, false, ""},
		"below":          {", volumes: ['./data:/data']", "file: deep/key", []string{"deep/key"}, false, ""},
		"sealed":         {"", "file: sealed", nil, true, ""},
		"of the device":  {"", "file: /etc/key", nil, false, ""},
		"external":       {"", "external: true", nil, false, ""},
		"variable":       {"", "environment: PASSWORD", nil, false, "the variable PASSWORD, which cannot be encrypted"},
		"missing":        {"", "file: none", nil, false, "does not exist"},
		"twice":          {"", "file: twice", nil, false, "remove twice or twice.age"},
		"outside":        {"", "file: ../key", nil, false, "leaves the manifests directory"},
		"a directory":    {"", "file: deep", nil, false, "is not a file"},
		"a link":         {"", "file: link", nil, false, "behind a link"},
		"through a link": {"", "file: links/key", nil, false, "behind a link"},
		"large":          {"", "file: large", nil, false, "more than the 1048576"},
		"mounted":        {", volumes: ['./key:/key']", "file: key", nil, false, `service "a": bind mount has this file too`},
		"mounted above":  {", volumes: ['./deep:/deep']", "file: deep/key", nil, false, `service "a": bind mount has this file too`},
		"an env file":    {", env_file: key", "file: key", nil, false, `service "a": env_file has this file too`},
	} {
		files := compose(c.services, c.secrets)
		files["large"] = strings.Repeat("x", 1<<20+1)
		dir := writeFiles(t, files)
		require.NoError(t, os.Symlink("key", filepath.Join(dir, "link")), name)
		require.NoError(t, os.Symlink("deep", filepath.Join(dir, "links")), name)
		found, err := Compose(t.Context(), dir, ComposeOptions{Encrypt: true})
		if c.says != "" {
			var e *Error
			require.ErrorAs(t, err, &e, name)
			require.Contains(t, e.Text+": "+e.Hint, c.says, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, c.encrypt, found.Encrypt, name)
		require.Equal(t, c.sealed, found.Encrypted, name)
		if c.encrypt != nil {
			require.Empty(t, found.Ship, name)
		}
	}

	const secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {key: x}\n"
	const other = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n"
	found, err := Kubernetes(writeFiles(t, map[string]string{
		"a.yaml": secret + "---\n" + strings.Replace(secret, "name: s", "name: t", 1), "b.yml": other, "c.json": `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Secret","metadata":{"name":"l"},"data":{"k":"eA=="}}]}`,
		"d.yaml.age": "x", "e.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: empty}\n",
	}), KubernetesOptions{Encrypt: true})
	require.NoError(t, err)
	require.Equal(t, []string{"a.yaml", "c.json"}, found.Encrypt)
	require.True(t, found.Encrypted)
	require.Empty(t, found.Warnings)
	_, err = Kubernetes(writeFiles(t, map[string]string{"a.yaml": other + "---\n" + secret}), KubernetesOptions{Encrypt: true})
	require.ErrorContains(t, err, "a.yaml:5: this Secret cannot be encrypted: its file has other objects")
	_, err = Kubernetes(writeFiles(t, map[string]string{"a.yaml": secret, "a.yaml.age": "x"}), KubernetesOptions{Encrypt: true})
	require.ErrorContains(t, err, "occurs twice")
}
