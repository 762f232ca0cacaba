package generator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/encoder"
	"github.com/mender-app/mender-app/generator/bases"
	"github.com/mender-app/mender-app/generator/manifests"
	"github.com/mender-app/mender-app/generator/source"
)

// payload is the payload of the artifact, in temporary files.
type payload struct {
	images     string        // path; "" if no images are shipped
	manifests  string        // path
	digest     digest.Digest // of the manifests
	components []artifact.Component
	sealed     bool     // there are encrypted secrets among the manifests
	recipients []string // of those encrypted here
	sizes      artifact.Sizes
}

// execute encodes, packs and writes, in the order of the plan. It returns the size
// of each image in the artifact.
func (r *run) execute(ctx context.Context, p *plan, used *manifests.Found) ([]Sent, error) {
	out := &payload{}
	var sent []Sent
	if len(p.images)+len(p.files) > 0 {
		err := r.limit.Least(func(thrift int) (_ int64, err error) {
			out, r.thrift = &payload{}, thrift
			sent, err = r.packImages(ctx, p, out)
			return decodingOf(&out.sizes, out.components), err
		})
		var much *tooMuchError
		if errors.As(err, &much) {
			return nil, &UsageError{Text: "--decode-budget: " + err.Error(), Hint: "--decode-budget " + much.Enough() + " would do; what travels whole is not decoded: images without --base and CURRENT, with --deep-delta=false"}
		}
		if err != nil {
			return nil, err
		}
	}
	if used == nil {
		used = &manifests.Found{}
	}
	if err := r.packManifests(used, out); err != nil {
		return nil, err
	}
	out.sizes.Engine += p.engineGrowth()
	return sent, r.write(ctx, p, out)
}

// imagesPacker writes the images payload.
type imagesPacker struct {
	*run
	w     *artifact.ImagesWriter
	sizes *artifact.Sizes
	// entries says for each Add to w which member of which image it wrote.
	entries []entry
	images  int                   // how many images the plan has
	files   []*artifact.Component // those packed
}

// entry is one member of the images payload.
type entry struct {
	image   int // index in the plan: of an image, or after those of a file
	variant int // index in the component's variants; -1 if it is of no single variant
	shared  bool
}

func (r *run) packImages(ctx context.Context, p *plan, out *payload) (sent []Sent, err error) {
	f, err := os.Create(filepath.Join(r.temp, artifact.ImagesPayload))
	if err != nil {
		return nil, &WriteError{Err: err}
	}
	defer func() {
		if cerr := f.Close(); err == nil && cerr != nil {
			err = &WriteError{Err: cerr}
		}
	}()
	pack := &imagesPacker{run: r, w: artifact.NewImagesWriter(f), sizes: &out.sizes, images: len(p.images)}
	if r.Artifact.Reader == ReaderShellModule {
		pack.w.CompressBest()
	}
	for i := range p.images {
		img := &p.images[i]
		if img.sameAs >= 0 {
			c := out.components[img.sameAs]
			c.URL = img.URL
			out.components = append(out.components, c)
			continue
		}
		c, err := pack.image(ctx, i, img)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", img.URL, err)
		}
		for n := range c.Layers {
			c.Layers[n].Unpacked = p.layers[c.Layers[n].DiffID].Unpacked
		}
		out.components = append(out.components, *c)
	}
	for i := range p.files {
		c, err := pack.file(ctx, i, &p.files[i])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.files[i].URL, err)
		}
		out.components = append(out.components, *c)
	}
	if err := pack.w.Close(); err != nil {
		return nil, &WriteError{Err: err}
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
		return &WriteError{Err: err}
	}
	defer f.Close()
	return pack.add(e, info, d.size(), f)
}

// image packs image i.
func (pack *imagesPacker) image(ctx context.Context, i int, img *plannedImage) (*artifact.Component, error) {
	c := &artifact.Component{
		URL: img.URL, Type: artifact.ComponentImage, Digest: img.digest(), Platform: img.Image.Platform.String(),
		ConfigSize: int64(len(img.Image.Config)), Format: img.format,
	}
	info := artifact.ImageInfo{
		Digest: img.digest(), URLNew: img.URL, URLCurrent: img.current().URL,
		SumNew: img.digest(), SumCurrent: img.current().Image.ConfigDigest,
	}
	switch img.format {
	case artifact.FormatVariants:
		return c, pack.variants(ctx, i, img, info, c)
	case artifact.FormatDelta:
		return c, pack.delta(ctx, i, img, info, c)
	}
	var err error
	c.PayloadBytes, c.Layers, err = pack.full(ctx, entry{image: i, variant: -1}, img, info)
	return c, err
}

// delta packs an image as one delta.
func (pack *imagesPacker) delta(ctx context.Context, i int, img *plannedImage, info artifact.ImageInfo, c *artifact.Component) error {
	made, err := pack.encode(ctx, img.URL, deltaImages(img.known), bases.DeltaImage(img.URL, img.Image))
	if err != nil {
		return err
	}
	defer made.remove()
	c.PayloadBytes = made.size()
	for _, o := range made.report.Objects {
		if o.Index == 0 { // the config
			continue
		}
		c.Layers = append(c.Layers, artifact.Layer{DiffID: o.Digest, Size: o.Size, Encoding: artifact.Encoding(o.Encoding), Bytes: o.Total()})
	}
	c.Bases = usedBases(made.report, img.required)
	pack.sizes.Temp = max(pack.sizes.Temp, made.report.Header.Temp)
	pack.sizes.Memory = max(pack.sizes.Memory, made.report.Header.Memory)
	pack.sizes.Decode += made.decode()
	info.Kind = artifact.KindDelta
	return pack.addDelta(entry{image: i, variant: -1}, info, made)
}

// full writes a whole image archive directly into the payload. The archive has all
// names of the image, because the shell reference uses those.
func (pack *imagesPacker) full(ctx context.Context, e entry, img *plannedImage, info artifact.ImageInfo) (size int64, layers []artifact.Layer, err error) {
	spec := image.ArchiveSpec{Image: img.Image, RepoTags: img.tags}
	if size, err = image.ArchiveSize(spec); err != nil {
		return 0, nil, err
	}
	for _, l := range img.Image.Layers {
		layers = append(layers, artifact.Layer{DiffID: l.DiffID, Size: l.Size, Encoding: artifact.EncodingVerbatim, Bytes: l.Size})
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
	return size, layers, err
}

// usedBases lists those of the required images that the delta takes content
// from: it reads their content, or omits a layer because they have it.
func usedBases(report *encoder.Report, required []*source.Found) []artifact.Base {
	needed := map[*source.Found]bool{}
	need := func(d delta.Digest) {
		for _, f := range required {
			if f.Image.ConfigDigest == d || slices.Contains(f.Image.DiffIDs, d) {
				needed[f] = true
				return
			}
		}
	}
	for _, b := range report.Header.Bases {
		need(b.Digest)
	}
	for _, o := range report.Header.Objects {
		if o.Encoding == delta.Omitted {
			need(o.Digest)
		}
	}
	var list []artifact.Base
	for _, f := range required {
		if needed[f] {
			list = append(list, artifact.Base{URL: f.URL, Digest: f.Image.ConfigDigest})
		}
	}
	return list
}
