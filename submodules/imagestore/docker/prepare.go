package docker

import (
	"archive/tar"
	"bytes"
	"context"

	"github.com/mender-app/mender-app/artifact/image"
)

// Prepare implements imagestore.Preparer. Where a load breaks off within a
// layer, Docker's containerd store keeps the bytes that came, under the name of
// the member and its size, and the next load of a member of that name and size
// goes on after them without a look (28.5: an ingest "tar-blobs/sha256/…"). A
// forged layer that was broken off would spoil the genuine one. A member of
// another size makes the store begin anew, and is whole at once, so that nothing
// stays to be resumed. The engine finds no image in the archive and says so.
func (t target) Prepare(ctx context.Context, diffIDs []image.Digest) error {
	if ctd, err := t.e.containerd(ctx); err != nil || !ctd {
		return err
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, d := range diffIDs {
		// A tar has at least 1024 bytes: no layer has this size.
		_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "blobs/sha256/" + d.Hex(), Mode: 0o644, Size: 1})
		_, _ = w.Write([]byte{0})
	}
	_ = w.Close()
	_ = t.Load(ctx, &b)
	return ctx.Err()
}
