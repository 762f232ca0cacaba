package generator

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/generator/inspect"
	"github.com/mender-app/mender-app/generator/manifests"
)

func newIdentity(t *testing.T) *age.X25519Identity {
	id, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	return id
}

// secretsOptions make an artifact of manifests alone.
func secretsOptions(t *testing.T, orchestrator string, files map[string]string, to ...string) Options {
	dir := t.TempDir()
	for name, text := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o640))
	}
	return Options{
		Application: Application{Name: "shop", Orchestrator: orchestrator, ManifestsDir: dir, Platform: image.Platform{OS: "linux", Arch: "amd64"}, EncryptTo: to},
		Images:      Images{Skip: true},
		Artifact:    Artifact{Name: "shop-1", DeviceTypes: []string{"gateway"}},
		Build:       Build{Output: filepath.Join(t.TempDir(), "shop-1.mender"), Provenance: filepath.Join(t.TempDir(), "p.json")},
	}
}

// unpackManifests returns what a device gets.
func unpackManifests(t *testing.T, path string) (*artifact.Metadata, string) {
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	r, err := mender.NewReader(f, mender.ReadOptions{})
	require.NoError(t, err)
	meta, _, err := artifact.ParseMetadata(r.Header().MetaData)
	require.NoError(t, err)
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	for {
		file, err := r.Next()
		if err == io.EOF {
			return meta, dir
		}
		require.NoError(t, err)
		require.Equal(t, artifact.ManifestsPayload, file.Name)
		_, err = artifact.ReadManifests(r, root, artifact.ManifestLimits{})
		require.NoError(t, err)
	}
}

func decrypted(t *testing.T, path string, id age.Identity) string {
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	r, err := age.Decrypt(bytes.NewReader(b), id)
	require.NoError(t, err)
	text, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(text)
}

// Secrets are encrypted on their way into the artifact, to each recipient; the
// manifests directory stays as it is.
func TestEncryptSecrets(t *testing.T) {
	first, second, third := newIdentity(t), newIdentity(t), newIdentity(t)
	list := filepath.Join(t.TempDir(), "devices.txt")
	require.NoError(t, os.WriteFile(list, []byte("# two devices\n\n"+second.Recipient().String()+"\n "+third.Recipient().String()+" \n"+first.Recipient().String()+"\n"), 0o644))
	const compose = "services: {a: {image: 'a:${TAG}', secrets: [s]}}\nsecrets: {s: {file: ./deep/key}, again: {file: deep/key}, own: {file: /etc/key}}\n"
	const secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {key: hunter2-plain}\n"
	for orchestrator, c := range map[string]struct {
		file  string
		files map[string]string
		same  string
	}{
		Compose:    {"deep/key", map[string]string{"compose.yaml": compose, "deep/key": "hunter2-plain", "deep/other": "o"}, "compose.yaml"},
		Kubernetes: {"secret.yaml", map[string]string{"secret.yaml": secret, "map.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n"}, "map.yaml"},
	} {
		o := secretsOptions(t, orchestrator, c.files, first.Recipient().String(), list)
		o.Application.Compose.Environ = []string{"TAG=1"}
		result, err := Generate(t.Context(), o, false)
		require.NoError(t, err)
		for _, w := range result.Warnings {
			require.NotContains(t, w, "plain")
		}
		plain, err := os.ReadFile(filepath.Join(o.Application.ManifestsDir, c.file))
		require.NoError(t, err)
		require.Equal(t, c.files[c.file], string(plain), "the developer's file stays")
		require.NoFileExists(t, filepath.Join(o.Application.ManifestsDir, c.file+".age"))

		meta, dir := unpackManifests(t, o.Build.Output)
		require.Equal(t, artifact.VersionCurrent, meta.Version)
		require.Equal(t, []string{artifact.FeatureSecrets}, meta.Requires)
		require.Equal(t, []string{first.Recipient().String(), second.Recipient().String(), third.Recipient().String()}, meta.Recipients)
		require.NoFileExists(t, filepath.Join(dir, c.file))
		for _, id := range []age.Identity{first, second, third} {
			require.Equal(t, c.files[c.file], decrypted(t, filepath.Join(dir, c.file+".age"), id))
		}
		info, err := os.Stat(filepath.Join(dir, c.file+".age"))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o640), info.Mode())
		same, err := os.ReadFile(filepath.Join(dir, c.same))
		require.NoError(t, err)
		require.Equal(t, c.files[c.same], string(same))
		for _, path := range []string{o.Build.Output, o.Build.Provenance} {
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NotContains(t, string(b), "hunter2")
		}
		require.NoError(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				b, err := os.ReadFile(path)
				require.NoError(t, err)
				require.NotContains(t, string(b), "hunter2", path)
			}
			return err
		}))

		// Encrypted by the developer: shipped as they are, the device's reader needs to know.
		sealed := map[string]string{c.same: c.files[c.same], c.file + ".age": "x"}
		o = secretsOptions(t, orchestrator, sealed)
		o.Application.Compose.Environ = []string{"TAG=1"}
		_, err = Generate(t.Context(), o, false)
		require.NoError(t, err)
		meta, _ = unpackManifests(t, o.Build.Output)
		require.Equal(t, []string{artifact.FeatureSecrets}, meta.Requires)
		require.Empty(t, meta.Recipients)
		d, err := inspect.Artifact(t.Context(), o.Build.Output, nil, "")
		require.NoError(t, err)
		require.Empty(t, d.Warnings)
	}
}

func TestEncryptSecretsRefuses(t *testing.T) {
	id := newIdentity(t)
	to := id.Recipient().String()
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "recipients")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	var many strings.Builder
	for range artifact.MaxRecipients + 1 {
		fmt.Fprintln(&many, newIdentity(t).Recipient())
	}
	files := map[string]string{"compose.yaml": "services: {a: {image: 'a:1'}}\nsecrets: {s: {file: key}}\n", "key": "k"}
	for name, c := range map[string]struct{ to, says string }{
		"a typo":      {to[:len(to)-1] + map[bool]string{true: "p", false: "q"}[to[len(to)-1] == 'q'], "not an X25519 recipient"},
		"no file":     {"/nonexistent", "no such file"},
		"a directory": {t.TempDir(), "is not a file of recipients"},
		"empty":       {file("# nobody\n"), "has no recipient"},
		"a key":       {id.String(), "a secret key is given"},
		"a key file":  {file("# created\n" + id.String() + "\n"), ":2: not an X25519 recipient"},
		"ssh":         {file("ssh-ed25519 AAAA\n"), "keys of SSH"},
		"too many":    {file(many.String()), ":257: more than 256 recipients"},
	} {
		_, err := Generate(t.Context(), secretsOptions(t, Compose, files, c.to), false)
		var usage *UsageError
		require.ErrorAs(t, err, &usage, name)
		require.Contains(t, usage.Text+": "+usage.Hint, c.says, name)
		require.NotContains(t, usage.Text, id.String()[20:40], name)
	}
	_, err := Generate(t.Context(), secretsOptions(t, "own", files, to), false)
	require.ErrorContains(t, err, "cannot be read")

	files["compose.yaml"] = "services: {a: {image: 'a:1'}}\n"
	result, err := Generate(t.Context(), secretsOptions(t, Compose, files, to), false)
	require.NoError(t, err)
	require.Contains(t, strings.Join(result.Warnings, "\n"), "no secret to encrypt")

	files["compose.yaml"] = "services: {a: {image: 'a:1'}}\nsecrets: {s: {environment: P}}\n"
	_, err = Generate(t.Context(), secretsOptions(t, Compose, files, to), false)
	var m *ManifestError
	require.ErrorAs(t, err, &m)
	var e *manifests.Error
	require.ErrorAs(t, err, &e)
	require.Contains(t, e.Text, "cannot be encrypted")
}
