package imagestore

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/mender-app/mender-app/artifact/image"
)

// outgoing writes the archive for the engine: the layers in the order in which they
// arrive, then the manifests.
type outgoing struct {
	pw      *io.PipeWriter
	tw      *tar.Writer
	done    chan error // the result of the engine's load
	written map[string]bool
}

// errAborted is the read error that the engine gets when the load is aborted.
var errAborted = errors.New("the load was aborted")

func begin(ctx context.Context, t Target) *outgoing {
	pr, pw := io.Pipe()
	o := &outgoing{pw: pw, tw: tar.NewWriter(pw), done: make(chan error, 1), written: map[string]bool{}}
	go func() {
		// Hide the pipe's Close: an HTTP client would call it, and "closed pipe"
		// would replace the engine's own error.
		err := t.Load(ctx, struct{ io.Reader }{pr})
		if err != nil {
			pr.CloseWithError(err)
		} else {
			// An engine need not read the end of a tar; our writer must not wait.
			_, _ = io.Copy(io.Discard, pr)
		}
		o.done <- err
	}()
	return o
}

// blobDir is where an OCI layout has its blobs.
const blobDir = "blobs/sha256/"

func blobName(d image.Digest) string { return blobDir + d.Hex() }

func (o *outgoing) has(name string) bool { return o.written[name] }

func (o *outgoing) header(name string, size int64) error {
	o.written[name] = true
	return o.tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644, ModTime: time.Unix(0, 0)})
}

// layer writes one layer of exactly size bytes.
func (o *outgoing) layer(name string, size int64, r io.Reader) error {
	return o.layerTo(o.tw, name, size, r)
}

// layerTo writes a layer through w, which ends in the archive.
func (o *outgoing) layerTo(w io.Writer, name string, size int64, r io.Reader) error {
	if err := o.header(name, size); err != nil {
		return err
	}
	n, err := io.Copy(w, r)
	if err == nil && n != size {
		err = fmt.Errorf("layer %s: %d bytes of %d: %w", name, n, size, io.ErrUnexpectedEOF)
	}
	return err
}

// archived describes an image whose layers have been written.
type archived struct {
	config  []byte
	id      Identity
	names   []string // of each layer in the archive; "" if it was left out
	sizes   []int64  // of each layer's tar, -1 where unknown
	present map[image.Digest]image.Descriptor
}

// byDigest reports whether every layer that was written is named by its diffID.
func (a archived) byDigest() bool {
	for i, d := range a.id.DiffIDs {
		if a.names[i] != "" && a.names[i] != blobName(d) {
			return false
		}
	}
	return true
}

// finish writes the manifests. Everything before it has been verified.
func (o *outgoing) finish(a archived, tags []string) error {
	if a.byDigest() {
		return o.finishHybrid(a, tags)
	}
	// Layers that are not named by their digests make a docker-archive. Every
	// engine loads that, if all layers are in it.
	config := a.id.Config.Hex() + ".json"
	names := make([]string, len(a.names))
	for i, d := range a.id.DiffIDs {
		if names[i] = a.names[i]; names[i] == "" {
			names[i] = blobName(d)
		}
	}
	manifest, err := json.Marshal([]any{map[string]any{"Config": config, "RepoTags": tags, "Layers": names}})
	if err != nil {
		return err
	}
	for _, m := range []struct {
		name string
		data []byte
	}{{config, a.config}, {"manifest.json", manifest}} {
		if err := o.layer(m.name, int64(len(m.data)), bytes.NewReader(m.data)); err != nil {
			return err
		}
	}
	return o.tw.Close()
}

// finishHybrid writes the manifests as image.WriteArchive does for an image
// without layers: the layers have been written before, as blobs.
func (o *outgoing) finishHybrid(a archived, tags []string) error {
	layers := make([]image.Layer, len(a.id.DiffIDs))
	omit := map[image.Digest]image.Descriptor{}
	for i, d := range a.id.DiffIDs {
		layers[i] = image.Layer{DiffID: d, Size: a.sizes[i]}
		if desc := a.present[d]; a.names[i] == "" && desc.Digest != "" {
			omit[d] = desc
		} else {
			omit[d] = image.Descriptor{MediaType: image.MediaTypeLayer, Digest: d, Size: max(a.sizes[i], 0)}
		}
	}
	img, err := image.New(a.config, layers)
	if err != nil {
		return err
	}
	var buf bytes.Buffer
	if err := image.WriteArchive(&buf, image.ArchiveSpec{Image: img, RepoTags: tags, Omit: omit}); err != nil {
		return err
	}
	tr := tar.NewReader(&buf)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return o.tw.Close()
		}
		if err != nil {
			return err
		}
		if o.written[h.Name] {
			continue
		}
		if err := o.layer(h.Name, h.Size, tr); err != nil {
			return err
		}
	}
}

// end closes the archive and returns the engine's error. If err is not nil the
// archive is aborted. If the engine failed first, its error is the cause of err
// and is returned.
func (o *outgoing) end(err error) error {
	if err != nil {
		_ = o.pw.CloseWithError(errAborted)
	} else {
		err = o.pw.Close()
	}
	engine := <-o.done
	if engine != nil && !errors.Is(engine, errAborted) && (err == nil || errors.Is(err, engine)) {
		return engine
	}
	return err
}
