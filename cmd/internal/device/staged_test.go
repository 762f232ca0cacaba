package device

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/modules/staging"
)

// TestStagedFirst: what the device installs first must be signed as what a person installs,
// for nobody else checks it. Without keys it is as when it was staged.
func TestStagedFirst(t *testing.T) {
	dir := t.TempDir()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	text, err := mender.EncodePublicKey(key.Public())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.pub"), []byte(text), 0o644))
	keys := "artifact_verify_key = \"" + dir + "/a.pub\"\n"
	bound := "[[keys]]\nfile = \"" + dir + "/a.pub\"\napplications = [\"shop\"]\n"

	for name, c := range map[string]struct {
		conf    string
		key     ed25519.PrivateKey
		reboot  bool
		scripts bool
		says    string // "" if it is allowed
	}{
		"no keys":              {},
		"signed":               {conf: keys, key: key},
		"not signed":           {conf: keys, says: "signature"},
		"for another":          {conf: bound, key: key, says: `may not sign for application "db"`},
		"keys cannot be read":  {conf: "artifact_verify_key = \"/no/such/key\"\n", says: "/no/such/key"},
		"asks for a restart":   {reboot: true, says: "it needs a restart of the machine"},
		"it has state scripts": {scripts: true, says: "it has state scripts"},
	} {
		t.Run(name, func(t *testing.T) {
			conf, err := load(t, "mender_conf = \""+dir+"/none\"\npersistent_store = \""+t.TempDir()+"/store\"\nstaging_free_mib = 0\n"+c.conf)
			require.NoError(t, err)
			var manifests, file bytes.Buffer
			_, err = artifact.WriteManifests(&manifests, fstest.MapFS{"compose.yaml": {Data: []byte("{}")}})
			require.NoError(t, err)
			meta, err := (&artifact.Metadata{
				Version: artifact.VersionCurrent, ApplicationName: "db", Orchestrator: "fake", Platform: "linux/amd64", ApplicationVersion: "2", Reboot: c.reboot,
			}).Encode()
			require.NoError(t, err)
			open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(manifests.Bytes())), nil }
			spec := mender.Spec{
				Name: "db-2", DeviceTypes: []string{"board"}, PayloadType: mender.PayloadTypeApp, MetaData: meta,
				Files: []mender.File{{Name: artifact.ManifestsPayload, Size: int64(manifests.Len()), Open: open}},
			}
			if c.scripts {
				spec.Scripts = []mender.Script{{Name: "ArtifactInstall_Enter_00", Data: []byte("#!/bin/sh\n")}}
			}
			options := mender.Options{}
			if c.key != nil {
				options.Key = c.key
			}
			require.NoError(t, mender.Write(&file, spec, options))
			change, err := conf.StagingArea().Begin(context.Background())
			require.NoError(t, err)
			_, err = change.Add(staging.Source{Reader: &file}, func(r io.Reader) (*mender.Reader, error) { return mender.NewReader(r, mender.ReadOptions{}) })
			change.End()
			require.NoError(t, err)

			s := &stagedArtifacts{conf, slog.New(slog.DiscardHandler)}
			list, err := s.List()
			require.NoError(t, err)
			require.Len(t, list, 1)
			x, err := s.Open("db", "db-2")
			if c.says != "" {
				require.ErrorContains(t, err, c.says)
				return
			}
			require.NoError(t, err)
			defer x.Close()
			stream, err := x.Payload.Next()
			require.NoError(t, err)
			require.Equal(t, artifact.ManifestsPayload, stream.Name)
			_, err = io.Copy(io.Discard, stream)
			require.NoError(t, err)
			_, err = x.Payload.Next()
			require.ErrorIs(t, err, io.EOF)
			_, err = s.Open("db", "db-3")
			require.True(t, errors.Is(err, staging.ErrNone))
		})
	}
}
