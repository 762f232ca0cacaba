package daily

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	digests "github.com/mender-app/mender-app/artifact/digest"
	deltas "github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/encoder"
	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// Deltas of a file, made by each of the three encoders.
var fileDeltas = map[string]func(t *testing.T, old, next string) []byte{
	"ours": func(t *testing.T, old, next string) []byte {
		blob := func(s string) deltas.Image {
			return deltas.Image{Name: "file", Objects: []deltas.Object{{Digest: digests.Of([]byte(s)), Size: int64(len(s)), Kind: deltas.Blob,
				Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader([]byte(s))), nil }}}}
		}
		var out bytes.Buffer
		_, err := encoder.Encode(t.Context(), &out, []deltas.Image{blob(old)}, blob(next), encoder.Options{})
		require.NoError(t, err)
		return out.Bytes()
	},
	"xdelta3": func(t *testing.T, old, next string) []byte {
		return byProgram(t, old, next, "xdelta3", "-e", "-s")
	},
	"bsdiff": func(t *testing.T, old, next string) []byte { return byProgram(t, old, next, "bsdiff") },
}

func byProgram(t *testing.T, old, next, name string, args ...string) []byte {
	t.Helper()
	bed.Require(t, name)
	at := t.TempDir()
	path := func(name string) string { return filepath.Join(at, name) }
	require.NoError(t, os.WriteFile(path("old"), []byte(old), 0o600))
	require.NoError(t, os.WriteFile(path("new"), []byte(next), 0o600))
	out, err := exec.Command(name, append(args, path("old"), path("new"), path("delta"))...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	b, err := os.ReadFile(path("delta"))
	require.NoError(t, err)
	return b
}

// deltaRelease writes an artifact of the one file "tool" as a delta over the same
// URL. In the reference's form the name of the current one ends with its digest.
func deltaRelease(t *testing.T, d *bed.Device, version, old, next string, patch []byte, reference bool) string {
	t.Helper()
	was, is := digests.Of([]byte(old)), digests.Of([]byte(next))
	h := bed.Handmade{Name: "tool-" + version, Software: "tool"}
	dir, current, member := "images/"+is.Hex(), "tool@"+was.String(), "image.img"
	meta := map[string]any{"version": "1.0", "application_name": "tool", "orchestrator": "plain", "platform": bed.Platform(), "images": []string{is.Hex()}}
	if !reference {
		current, member = "tool", "image.delta"
		components, err := json.Marshal([]map[string]any{{
			"url": "tool", "type": "binary", "digest": is, "platform": bed.Platform(), "size": len(next), "format": "delta",
			"bases": []map[string]any{{"url": "tool", "digest": was, "size": len(old)}}, "payload_bytes": len(patch),
		}})
		require.NoError(t, err)
		meta["version"], meta["components"], meta["requires"] = "1.1", string(components), []string{"delta/1", "files/1"}
	}
	text, err := json.Marshal(meta)
	require.NoError(t, err)
	h.Metadata = string(text)
	h.Images = []bed.Member{
		{Name: "images/", Type: tar.TypeDir}, {Name: dir + "/", Type: tar.TypeDir},
		{Name: dir + "/url-new.txt", Data: []byte("tool\n")}, {Name: dir + "/url-current.txt", Data: []byte(current + "\n")},
		{Name: dir + "/sums-new.txt", Data: []byte(is.Hex() + "\n")}, {Name: dir + "/sums-current.txt", Data: []byte(was.Hex() + "\n")},
		{Name: dir + "/" + member, Data: patch},
	}
	h.Manifests = []bed.Member{{Name: "manifests/", Type: tar.TypeDir}, {Name: "manifests/files.list", Data: []byte("tool\n")}}
	path := d.Share("tool-" + version + ".mender")
	require.NoError(t, h.Write(path))
	return path
}

// Deltas of files update an application whose sub-module knows no deltas, made by
// each encoder and in both forms. A failing release and a rollback on request bring
// the old files back.
func TestFileDeltas(t *testing.T) {
	t.Parallel()
	bed.Require(t, "mender-artifact")
	if _, err := exec.LookPath("mender"); err != nil {
		t.Skip("the orders are those of the Go client: needs mender")
	}
	d := bed.StartWithoutEngine(t)
	require.NoError(t, os.WriteFile(d.Share("plain"), []byte(e2e.PlainSubmodule), 0o755))
	d.MustRun(t, "install", "-m755", d.Share("plain"), "/usr/share/mender/app-modules/v1/plain")
	r := rand.New(rand.NewPCG(1, 2))
	text := make([]byte, 200_000)
	for i := range text {
		text[i] = byte('c' + r.IntN(20)) // never "bad"
	}
	content := func(what string) string { return what + string(text) + what }
	at := func(want, where string) {
		t.Helper()
		for _, dir := range []string{"/data/plain/tool/", "/data/plain/tool.runs/"} {
			require.Equal(t, digests.Of([]byte(want)).Hex(), strings.TrimSpace(d.MustRun(t, "sh", "-c", "sha256sum <"+dir+"tool | cut -d' ' -f1")), where)
		}
		require.Empty(t, strings.TrimSpace(d.MustRun(t, "sh", "-c", "ls -d /data/mender-app/.*/tmp/* 2>/dev/null || true")), "temporary files")
	}
	now := content("one")
	e2e.Mender(t, d, "install", e2e.PlainRelease(t, d, "1", map[string]string{"tool": now}))
	e2e.Mender(t, d, "commit")
	at(now, "installed")
	for kind, encode := range fileDeltas {
		for _, reference := range []bool{false, true} {
			if reference && kind == "ours" {
				continue // the reference's form has no place for it
			}
			name := kind + map[bool]string{true: " in the reference's form"}[reference]
			release := func(what string) (string, string) {
				next := content(what)
				return deltaRelease(t, d, what, now, next, encode(t, now, next), reference), next
			}
			bad, _ := release("bad")
			e2e.MenderFails(t, d, "install", bad)
			at(now, name+": the failing release went back")
			file, next := release("next-" + kind)
			e2e.Mender(t, d, "install", file)
			at(next, name)
			e2e.Mender(t, d, "rollback")
			at(now, name+": rolled back")
			file, next = release(kind + map[bool]string{true: "-reference", false: "-1.1"}[reference])
			killedInDelta(t, d, file, func(where string) { at(now, name+", "+where) })
			e2e.Mender(t, d, "install", file)
			e2e.Mender(t, d, "commit")
			old := now
			now = next
			newer := e2e.CurrentRelease(t, d)
			d.MustRun(t, "mender-app", "rollback", "tool")
			at(old, name+": days later")
			d.MustRun(t, "mender-app", "rollback", "tool", newer)
			at(now, name+": forth again")
			require.Contains(t, e2e.MenderFails(t, d, "install", bad), "it is bad", "the base is the copy that the kept release has")
			at(now, name+": back again")
		}
	}
	d.MustRun(t, "mender-app", "verify", "tool")
}

// killedInDelta installs an artifact, and kills app alone and with the client before
// and after it applies the delta. back asserts that the old release is in place.
func killedInDelta(t *testing.T, d *bed.Device, file string, back func(where string)) {
	t.Helper()
	for _, point := range []string{"rebuild.component", "rebuilt.component"} {
		for _, who := range []string{"kill", "kill-both"} {
			fault := "app Download/" + point + ":1:" + who
			r, err := d.Run("env", "MENDER_APP_FAULT="+fault, "mender", "--no-syslog", "install", file)
			require.NoError(t, err)
			require.NotZero(t, r.Code, fault)
			d.MustRun(t, "mender-app", "resume")
			back(fault)
		}
	}
}
