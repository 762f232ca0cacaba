package generator

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/generator/source"
)

// encoded is a delta in a temporary file.
type encoded struct {
	path   string
	report *delta.Report
}

// encodeTo encodes a delta into the temporary directory.
func (g *generation) encodeTo(ctx context.Context, what string, olds []delta.Image, next delta.Image) (encoded, error) {
	f, err := os.CreateTemp(g.temp, "delta-*")
	if err != nil {
		return encoded{}, &WriteError{err}
	}
	e := encoded{path: f.Name()}
	e.report, err = delta.Encode(ctx, f, olds, next, delta.Options{
		TempDir: g.temp, FilesOnly: g.FilesOnly,
		Progress: func(done, total int64) { g.tell("encode", what, done, total) },
	})
	if cerr := f.Close(); err == nil && cerr != nil {
		err = &WriteError{cerr}
	}
	return e, err
}

func (e encoded) size() int64 { return e.report.Size }

// way is an image in several deltas, one for each of its bases.
type way struct {
	shared *encoded // made first, of whichever base there is; nil: there is none
	temp   int64    // bytes that what is shared takes unpacked
	deltas []encoded
}

// total is what it takes in the artifact.
func (w way) total() (n int64) {
	if w.shared != nil {
		n = w.shared.size()
	}
	for _, d := range w.deltas {
		n += d.size()
	}
	return n
}

func (w way) remove() {
	if w.shared != nil {
		os.Remove(w.shared.path)
	}
	for _, d := range w.deltas {
		os.Remove(d.path)
	}
}

// ways encodes image i against each of its bases, once apart and once with what
// they have in common taken out, and returns the smaller.
func (g *generation) ways(ctx context.Context, i int) (way, error) {
	img := g.images[i]
	next := deltaImage(img.URL, img.Image)
	var before []delta.Image // what is there by then, whatever the base
	for _, f := range g.old(i) {
		before = append(before, deltaImage(f.URL, f.Image))
	}
	encode := func(more ...delta.Image) (w way, err error) {
		for _, b := range img.bases {
			olds := append([]delta.Image{deltaImage(b.URL, b.Image)}, more...)
			d, err := g.encodeTo(ctx, img.URL+" over "+b.From.String(), append(olds, before...), next)
			if err != nil {
				w.remove()
				return w, fmt.Errorf("over %s: %w", b.From, err)
			}
			w.deltas = append(w.deltas, d)
		}
		return w, nil
	}
	apart, err := encode()
	if err != nil || len(img.bases) < 2 {
		return apart, err
	}
	base, content, err := g.common(ctx, img)
	if err != nil || content == nil {
		return apart, err
	}
	defer os.Remove(base.path)
	defer os.Remove(content.path)
	shared, err := g.encodeTo(ctx, img.URL+", what the bases share", append([]delta.Image{base.image(delta.SharedBase)}, before...), content.image(delta.SharedContent))
	if err != nil {
		return apart, err
	}
	together, err := encode(content.image(delta.SharedContent))
	if err != nil {
		return apart, err
	}
	together.shared, together.temp = &shared, content.size
	if together.total() >= apart.total() {
		together.remove()
		return apart, nil
	}
	apart.remove()
	return together, nil
}

// addVariants packs an image that devices take in different ways.
func (g *generation) addVariants(ctx context.Context, w *artifact.ImagesWriter, i int, sent *counter) (*artifact.Component, error) {
	img := g.images[i]
	plan := &g.result.Components[i]
	c := &artifact.Component{
		URL: img.URL, Type: artifact.ComponentImage, Digest: img.digest(), Platform: img.Image.Platform.String(),
		ConfigSize: int64(len(img.Image.Config)), Format: artifact.FormatVariants,
	}
	for _, l := range img.Image.Layers {
		c.Layers = append(c.Layers, artifact.Layer{DiffID: l.DiffID, Size: l.Size, Encoding: artifact.EncodingVariant})
	}
	info := artifact.ImageInfo{Digest: img.digest(), URLNew: img.URL, URLCurrent: img.URL, SumNew: img.digest(), SumCurrent: img.digest()}
	made, err := g.ways(ctx, i)
	if err != nil {
		return nil, err
	}
	defer made.remove()
	var extra int64 // of what is shared
	if made.shared != nil {
		extra = made.shared.size()
		plan.Shared = extra
		info.Kind = artifact.KindShared
		if err := addFile(w, info, made.shared.path, extra); err != nil {
			return nil, err
		}
		c.PayloadBytes += extra
	}
	for n, d := range made.deltas {
		base := img.bases[n]
		v := artifact.Variant{
			Format: artifact.FormatDelta, Shared: made.shared != nil, PayloadBytes: d.size() + extra, Engine: c.ConfigSize,
			Temp: d.report.Header.Temp, Memory: d.report.Header.Memory,
			Bases: []artifact.Base{{URL: base.URL, Digest: base.Image.ConfigDigest}},
		}
		if v.Shared {
			v.Bases[0].DiffIDs = base.Image.DiffIDs
			v.Temp = made.temp + max(d.report.Header.Temp, made.shared.report.Header.Temp)
			v.Memory = max(v.Memory, made.shared.report.Header.Memory)
		}
		for _, o := range d.report.Objects {
			if o.Index == 0 { // the config
				continue
			}
			v.Layers = append(v.Layers, artifact.VariantLayer{Encoding: artifact.Encoding(o.Encoding), Bytes: o.Total()})
			if o.Encoding != delta.Omitted {
				v.Engine += o.Size
			}
		}
		c.Variants = append(c.Variants, v)
		c.PayloadBytes += d.size()
		info.Kind, info.Variant = artifact.KindDelta, n+1
		if err := addFile(w, info, d.path, d.size()); err != nil {
			return nil, err
		}
		plan.Variants[n].Bytes = d.size()
	}
	if g.Fallback {
		before := sent.n
		var whole artifact.Component
		info.Kind, info.Variant = artifact.KindFull, -1
		if err := g.addFull(ctx, w, img, info, &whole); err != nil {
			return nil, err
		}
		v := artifact.Variant{Format: artifact.FormatFull, PayloadBytes: whole.PayloadBytes, Engine: c.ConfigSize}
		for _, l := range whole.Layers {
			v.Layers = append(v.Layers, artifact.VariantLayer{Encoding: l.Encoding, Bytes: l.Bytes})
			v.Engine += l.Size
		}
		c.Variants = append(c.Variants, v)
		c.PayloadBytes += whole.PayloadBytes
		plan.Variants[len(plan.Variants)-1].Bytes = sent.n - before
	}
	return c, nil
}

func addFile(w *artifact.ImagesWriter, info artifact.ImageInfo, path string, size int64) error {
	f, err := os.Open(path)
	if err != nil {
		return &WriteError{err}
	}
	defer f.Close()
	return w.Add(info, size, f)
}

// packed is a tar of files in the temporary directory.
type packed struct {
	path   string
	digest delta.Digest
	size   int64
}

func (p *packed) image(name string) delta.Image {
	return delta.Image{Name: name, Objects: []delta.Object{{
		Digest: p.digest, Size: p.size, Kind: delta.Tar, Open: func() (io.ReadCloser, error) { return os.Open(p.path) },
	}}}
}

// common finds what the deltas of an image over its bases have in common: base
// has the files that all bases have, content those of the new image that more
// than one delta would make, and that can be made as well from base. content is
// nil if there are none.
func (g *generation) common(ctx context.Context, img *planned) (base, content *packed, err error) {
	trees := make([]*files, len(img.bases))
	for i, b := range img.bases {
		if trees[i], err = readFiles(ctx, b.Image, nil); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", b.From, err)
		}
	}
	inAll := func(d image.Digest) bool {
		for _, b := range img.bases {
			if holder([]*source.Found{b}, d) == nil {
				return false
			}
		}
		return true
	}
	next, err := readFiles(ctx, img.Image, inAll)
	if err != nil {
		return nil, nil, err
	}
	same := trees[0].alike(trees[1:])
	share := next.worthSharing(trees, same)
	if len(share) == 0 {
		return nil, nil, nil
	}
	if content, err = g.pack(ctx, share, false); err != nil {
		return nil, nil, err
	}
	base, err = g.pack(ctx, same, true)
	return base, content, err
}
