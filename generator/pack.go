package generator

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/generator/write"
)

// imagesPacker writes the images payload.
type imagesPacker struct {
	*run
	w *artifact.ImagesWriter
	// entries says for each Add to w which member of which image it wrote.
	entries []entry
}

// entry is one member of the images payload.
type entry struct {
	image   int // index in the plan: of an image, or after those of a file
	variant int // index in the component's variants; -1 if it is of no single variant
	shared  bool
}

// packImages writes what was encoded, and whole images and files, into the images
// payload. It returns the size of each image there.
func (r *run) packImages(ctx context.Context, p *plan, made *encoded, out *payload) (sent []Sent, err error) {
	f, err := os.Create(filepath.Join(r.temp, artifact.ImagesPayload))
	if err != nil {
		return nil, &write.Error{Err: err}
	}
	defer func() {
		if cerr := f.Close(); err == nil && cerr != nil {
			err = &write.Error{Err: cerr}
		}
	}()
	pack := &imagesPacker{run: r, w: artifact.NewImagesWriter(f)}
	if r.Artifact.Reader == ReaderShellModule {
		pack.w.CompressBest()
	}
	if r.Images.Coding == Fast {
		pack.w.CompressDeltas()
	}
	for i := range p.images {
		if err := pack.image(ctx, i, &p.images[i], made.images[i]); err != nil {
			return nil, fmt.Errorf("%s: %w", p.images[i].URL, err)
		}
	}
	for i := range p.files {
		if err := pack.file(ctx, len(p.images)+i, &p.files[i], made.files[i]); err != nil {
			return nil, fmt.Errorf("%s: %w", p.files[i].URL, err)
		}
	}
	if err := pack.w.Close(); err != nil {
		return nil, &write.Error{Err: err}
	}
	out.images = f.Name()
	out.sizes.ImagesPayload = pack.w.UnpackedSize()
	return pack.sent(p), nil
}

// sent adds up the bytes of each image.
func (pack *imagesPacker) sent(p *plan) []Sent {
	list := make([]Sent, len(p.images))
	for i := range p.Files {
		p.Files[i].Sent = 0
	}
	for i, c := range p.Components {
		if len(c.Variants) > 0 {
			list[i].Variants = make([]int64, len(c.Variants))
		}
	}
	for i, n := range pack.w.Sent() {
		e := pack.entries[i]
		if f := e.image - len(p.images); f >= 0 {
			p.Files[f].Sent += n
			continue
		}
		s := &list[e.image]
		s.Bytes += n
		switch {
		case e.shared:
			s.Shared += n
		case e.variant >= 0:
			s.Variants[e.variant] += n
		}
	}
	return list
}

// add writes one member.
func (pack *imagesPacker) add(e entry, info artifact.ImageInfo, size int64, r io.Reader) error {
	pack.entries = append(pack.entries, e)
	return pack.w.Add(info, size, r)
}

// addDelta writes a delta from its file.
func (pack *imagesPacker) addDelta(e entry, info artifact.ImageInfo, d *encodedDelta) error {
	f, err := os.Open(d.path)
	if err != nil {
		return &write.Error{Err: err}
	}
	defer f.Close()
	err = pack.add(e, info, d.size(), f)
	d.remove() // the payload has it, and the disk may be small
	return err
}

// image packs image i: nothing if an earlier one has the same content.
func (pack *imagesPacker) image(ctx context.Context, i int, img *plannedImage, made *imageDeltas) error {
	if img.sameAs >= 0 {
		return nil
	}
	info := artifact.ImageInfo{
		Digest: img.digest(), URLNew: img.URL, URLCurrent: img.current().URL,
		SumNew: img.digest(), SumCurrent: img.current().Image.ConfigDigest,
	}
	e := entry{image: i, variant: -1}
	switch img.format {
	case artifact.FormatVariants:
		return pack.variants(ctx, e, img, info, made)
	case artifact.FormatDelta:
		info.Kind = artifact.KindDelta
		return pack.addDelta(e, info, made.deltas[0])
	}
	return pack.full(ctx, e, img, info)
}

// variants packs an image in several variants: the content that they share, a delta
// over each base, and the whole image last, which needs no base.
func (pack *imagesPacker) variants(ctx context.Context, e entry, img *plannedImage, info artifact.ImageInfo, made *imageDeltas) error {
	if made.shared != nil {
		shared := e
		shared.shared = true
		info.Kind = artifact.KindShared
		if err := pack.addDelta(shared, info, made.shared); err != nil {
			return err
		}
	}
	info.Kind = artifact.KindDelta
	for n, d := range made.deltas {
		e.variant, info.Variant = n, n+1
		if err := pack.addDelta(e, info, d); err != nil {
			return err
		}
	}
	e.variant = len(made.deltas)
	switch {
	case made.whole != nil:
		info.Variant = e.variant + 1
		return pack.addDelta(e, info, made.whole)
	case img.whole:
		info.Variant = -1
		return pack.full(ctx, e, img, info)
	}
	return nil
}

// full writes a whole image archive directly into the payload. The archive has all
// names of the image, because the shell reference uses those.
func (pack *imagesPacker) full(ctx context.Context, e entry, img *plannedImage, info artifact.ImageInfo) error {
	spec := img.archive()
	size, err := image.ArchiveSize(spec)
	if err != nil {
		return err
	}
	r, pw := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := image.WriteArchive(pw, spec)
		pw.CloseWithError(err)
		done <- err
	}()
	info.Kind = artifact.KindFull
	err = pack.add(e, info, size, metered.Reader(ctx, r, metered.Sum(func(n int64) { pack.tell("encode", img.URL, n, size) })))
	r.CloseWithError(io.ErrClosedPipe)
	if werr := <-done; werr != nil && err == nil {
		err = werr
	}
	return err
}
