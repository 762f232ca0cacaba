package k8s

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
)

// sealedSecret is a Secret, encrypted to a key.
func sealedSecret(t *testing.T, text string, to *age.X25519Identity) []byte {
	var b bytes.Buffer
	w, err := age.Encrypt(&b, to.Recipient())
	require.NoError(t, err)
	_, err = w.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

// TestEncryptedSecrets: an encrypted Secret is decrypted in memory and applied.
// Without the key, nothing is.
func TestEncryptedSecrets(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	key, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	other, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "identity.age")
	a := newAPIStub(t)
	m := a.module(func(s *Settings) { s.Secrets.Identity = file })
	var mu sync.Mutex // objects are removed side by side
	said := ""
	request := func(text string, to *age.X25519Identity) submodules.Request {
		req := a.request("shop", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: plain}\n")
		req.Log = func(l string) {
			mu.Lock()
			defer mu.Unlock()
			said += l + "\n"
		}
		require.NoError(t, os.WriteFile(filepath.Join(req.Dir, "secret.yaml.age"), sealedSecret(t, text, to), 0o600))
		return req
	}
	const secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: pin}\ndata: {pin: aHVudGVyMg==}\n"
	const at = "/api/v1/namespaces/default/secrets/pin"

	err = m.Rollout(ctx, request(secret, key))
	require.ErrorIs(t, err, submodules.ErrContent)
	require.ErrorContains(t, err, "secret.yaml.age: this device has no key for encrypted secrets")
	require.NoError(t, os.WriteFile(file, []byte(other.String()+"\n"), 0o600))
	err = m.Rollout(ctx, request(secret, key))
	require.ErrorIs(t, err, submodules.ErrContent)
	require.ErrorContains(t, err, "secret.yaml.age: it is not encrypted to this device's key")
	require.Nil(t, a.get("/api/v1/namespaces/default/configmaps/plain"), "nothing is changed")

	require.NoError(t, os.WriteFile(file, []byte(key.String()+"\n"), 0o600))
	req := request(secret, key)
	require.NoError(t, m.Rollout(ctx, req))
	require.Equal(t, map[string]any{"pin": "aHVudGVyMg=="}, a.get(at)["data"])
	require.Equal(t, "shop", a.get(at)["metadata"].(map[string]any)["labels"].(map[string]any)["mender-app.io/app"])

	// Exported as it was shipped, and nowhere else but in the Secret itself.
	out := t.TempDir()
	require.NoError(t, m.ExportManifest(ctx, submodules.Request{App: "shop", Dir: out}))
	for _, dir := range []string{out, req.Dir, req.TempDir} {
		require.NoError(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				b, err := os.ReadFile(path)
				require.NoError(t, err)
				require.NotContains(t, string(b), "aHVudGVyMg", path)
			}
			return err
		}))
	}
	require.FileExists(t, filepath.Join(out, "secret.yaml.age"))
	require.NotContains(t, said, "aHVudGVyMg")

	// A changed one is applied; what the server says of a bad one is not repeated.
	require.NoError(t, m.Rollout(ctx, request("apiVersion: v1\nkind: Secret\nmetadata: {name: pin}\ndata: {pin: aHVudGVyMw==}\n", key)))
	require.Equal(t, map[string]any{"pin": "aHVudGVyMw=="}, a.get(at)["data"])
	a.refuseSecrets(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":422,"reason":"Invalid","message":"data[pin]: Invalid value: \"hunter2\"",` +
		`"details":{"causes":[{"field":"data[pin]","message":"Invalid value: \"hunter2\""}]}}`)
	err = m.Rollout(ctx, request(secret, key))
	require.ErrorContains(t, err, "secret.yaml.age:1: Secret/pin: the API server refuses it (Invalid, data[pin])")
	require.NotContains(t, err.Error(), "hunter2")
	a.refuseSecrets("")

	require.NoError(t, m.Purge(ctx, submodules.PurgeRequest{Request: submodules.Request{App: "shop", Log: req.Log}}))
	require.Nil(t, a.get(at))
}
