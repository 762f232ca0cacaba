package docker

import (
	"archive/tar"
	"bytes"
	"context"

	"github.com/mender-app/mender-app/artifact/image"
)

// Prepare implements imagestore.Preparer. If a load is aborted within a layer,
// Docker's containerd store keeps the bytes that it got, by the name and the size
// of the archive's member. The next load of a member with that name and size
// resumes after them without a check (28.5: an ingest "tar-blobs/sha256/…"). So an
// aborted forged layer would damage the genuine one. Prepare loads a member with this
// name and another size, which makes the store start again. That member is complete
// at once, so nothing is left to resume. The engine reports that the archive has no
// image, which is expected.
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
