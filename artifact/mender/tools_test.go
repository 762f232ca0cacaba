package mender

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/internal/rig"
	"github.com/mender-app/mender-app/testdata/peers"
)

// appMetaData is metadata with everything in it that app-gen writes.
func appMetaData(t *testing.T) []byte {
	t.Helper()
	digest := func(s string) image.Digest { return digest.Of([]byte(s)) }
	m := artifact.Metadata{
		Version: artifact.VersionCurrent, ApplicationName: "web", Orchestrator: "k8s", Platform: "linux/arm/v7",
		Images: []string{digest("new").Hex(), digest("old").Hex()}, Env: map[string]string{"K8S_NAMESPACE": "prod"},
		ApplicationVersion: "2.0", Reboot: true,
		Components: []artifact.Component{{
			URL: "docker.io/library/web:2", Type: artifact.ComponentImage, Digest: digest("new"), Platform: "linux/arm/v7", ConfigSize: 1000,
			Layers: []artifact.Layer{{DiffID: digest("layer"), Size: 10240, Encoding: artifact.EncodingDelta, Bytes: 200}},
			Format: artifact.FormatDelta, Bases: []artifact.Base{{URL: "docker.io/library/web:1", Digest: digest("old")}}, PayloadBytes: 2100,
		}},
		Sizes:    &artifact.Sizes{ImagesPayload: 6000, ManifestsPayload: 4096, Manifests: 100, Temp: 1, Engine: 2},
		Requires: []string{artifact.FeatureDelta},
	}
	if m.Images[0] > m.Images[1] {
		m.Images[0], m.Images[1] = m.Images[1], m.Images[0]
	}
	b, err := m.Encode()
	require.NoError(t, err)
	return b
}

// TestMenderArtifactChanges has mender-artifact, Debian's and the newest, do to
// an App Artifact what people do with it between build host and server. What it
// makes is read again, with the same metadata and files.
func TestMenderArtifactChanges(t *testing.T) {
	tools := map[string]func(name string) (string, error){"3.9": exec.LookPath, "newest": peers.Own}
	spec := sampleSpec()
	spec.MetaData = appMetaData(t)
	want, _, err := artifact.ParseMetadata(spec.MetaData)
	require.NoError(t, err)
	_, files, err := read(write(t, spec, Options{}))
	require.NoError(t, err)
	key, other := newKey(t, "RSA"), newKey(t, "ECDSA")

	for version, find := range tools {
		t.Run(version, func(t *testing.T) {
			tool, err := find("mender-artifact")
			if err != nil && version == "newest" {
				t.Skip(err)
			} else if err != nil {
				rig.Skip(t, "mender-artifact is not installed")
			}
			check := func(t *testing.T, path, name string, keys ...keyPair) {
				t.Helper()
				require.NotContains(t, rig.Run(t, tool, "read", path), "Invalid")
				validate := []string{tool, "validate", path}
				for _, k := range keys {
					validate = append(validate, "-k", k.public)
				}
				require.Contains(t, rig.Run(t, validate...), "validated successfully")
				b, err := os.ReadFile(path)
				require.NoError(t, err)
				h, got, err := read(b)
				require.NoError(t, err)
				require.Equal(t, name, h.Name)
				m, _, err := artifact.ParseMetadata(h.MetaData)
				require.NoError(t, err)
				require.Equal(t, want, m)
				require.Equal(t, files, got)
				for _, k := range keys {
					_, _, err := read(b, k.signer.Public())
					require.NoError(t, err)
				}
			}
			made := func(t *testing.T, o Options) string {
				path := filepath.Join(t.TempDir(), "a.mender")
				require.NoError(t, os.WriteFile(path, write(t, spec, o), 0o644))
				return path
			}
			t.Run("read and validate", func(t *testing.T) { check(t, made(t, Options{}), spec.Name) })
			t.Run("sign", func(t *testing.T) {
				path := made(t, Options{})
				rig.Run(t, tool, "sign", "-k", key.private, path)
				check(t, path, spec.Name, key)
			})
			t.Run("sign again", func(t *testing.T) {
				path := made(t, Options{Key: key.signer})
				rig.Run(t, tool, "sign", "--force", "-k", other.private, path)
				check(t, path, spec.Name, other)
			})
			t.Run("rename", func(t *testing.T) {
				path := made(t, Options{})
				rig.Run(t, tool, "modify", "--artifact-name", "renamed", path)
				check(t, path, "renamed")
			})
			t.Run("rename and sign", func(t *testing.T) {
				path := made(t, Options{})
				rig.Run(t, tool, "modify", "--artifact-name", "renamed", "-k", key.private, path)
				check(t, path, "renamed", key)
			})
			t.Run("take apart and make again", func(t *testing.T) {
				path, dir := made(t, Options{}), t.TempDir()
				out := rig.Run(t, tool, "dump", "--files", dir, "--meta-data", dir, "--print0-cmdline", path)
				args := strings.Split(strings.TrimSuffix(strings.TrimSuffix(out, "\n"), "\x00"), "\x00")
				again := filepath.Join(dir, "again.mender")
				rig.Run(t, append(append([]string{tool}, args...), "--output-path", again)...)
				check(t, again, spec.Name)
			})
		})
	}
}
