package generator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/generator/manifests"
	"github.com/mender-app/mender-app/generator/source"
)

// Names of the payload's files, as the reference has them.
const (
	imagesFile    = "images.tar.gz"
	manifestsFile = "manifests.tar.gz"
)

// payload is what execute has made so far.
type payload struct {
	images     string // path; empty with --skip-images
	manifests  string
	components []artifact.Component
	sizes      artifact.Sizes
}

// execute encodes, packs and writes, in the order of the plan.
func (g *generation) execute(ctx context.Context) error {
	p := &payload{}
	if len(g.images) > 0 {
		if err := g.packImages(ctx, p); err != nil {
			return err
		}
	}
	if err := g.packManifests(p); err != nil {
		return err
	}
	p.sizes.Engine = g.engineGrowth()
	return g.write(ctx, p)
}

func (g *generation) packImages(ctx context.Context, p *payload) (err error) {
	f, err := os.Create(filepath.Join(g.temp, imagesFile))
	if err != nil {
		return &WriteError{err}
	}
	defer func() {
		if cerr := f.Close(); err == nil && cerr != nil {
			err = &WriteError{cerr}
		}
	}()
	sent := &counter{}
	w := artifact.NewImagesWriter(io.MultiWriter(f, sent))
	made := map[image.Digest]artifact.Component{}
	last := 0
	for i, img := range g.images {
		if img.same != nil {
			c := made[img.digest()]
			c.URL = img.URL
			p.components = append(p.components, c)
			continue
		}
		last = i
		before := sent.n
		if img.format == artifact.FormatVariants {
			c, err := g.addVariants(ctx, w, i, sent)
			if err != nil {
				return fmt.Errorf("%s: %w", img.URL, err)
			}
			p.components = append(p.components, *c)
			made[c.Digest] = *c
			g.result.Components[i].Sent = sent.n - before
			continue
		}
		c := artifact.Component{
			URL:        img.URL,
			Type:       artifact.ComponentImage,
			Digest:     img.digest(),
			Platform:   img.Image.Platform.String(),
			ConfigSize: int64(len(img.Image.Config)),
			Format:     img.format,
		}
		info := artifact.ImageInfo{
			Digest:     img.digest(),
			URLNew:     img.URL,
			URLCurrent: img.current().URL,
			SumNew:     img.digest(),
			SumCurrent: img.current().Image.ConfigDigest,
		}
		if img.format == artifact.FormatDelta {
			info.Kind = artifact.KindDelta
			err = g.addDelta(ctx, w, i, info, &c, &p.sizes)
		} else {
			info.Kind = artifact.KindFull
			err = g.addFull(ctx, w, img, info, &c)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", img.URL, err)
		}
		p.components = append(p.components, c)
		made[c.Digest] = c
		g.result.Components[i].Sent = sent.n - before
	}
	if err := w.Close(); err != nil {
		return &WriteError{err}
	}
	// what the compressor still held belongs to the last image
	rest := sent.n
	for i := range g.images[:last] {
		rest -= g.result.Components[i].Sent
	}
	g.result.Components[last].Sent = rest
	p.images = f.Name()
	p.sizes.ImagesPayload = w.UnpackedSize()
	return nil
}

// names lists the tags that an image gets, in the order of the plan.
func (g *generation) names(img *planned) []string {
	list := []string{tagged(img.URL)}
	for _, other := range g.images {
		if other.same == img {
			list = append(list, tagged(other.URL))
		}
	}
	return list
}

// addFull packs a whole image archive, written straight into the payload. It
// bears all names of the image: the shell reference goes by those.
func (g *generation) addFull(ctx context.Context, w *artifact.ImagesWriter, img *planned, info artifact.ImageInfo, c *artifact.Component) error {
	spec := image.ArchiveSpec{Image: img.Image, RepoTags: g.names(img)}
	size, err := image.ArchiveSize(spec)
	if err != nil {
		return err
	}
	c.PayloadBytes = size
	for _, l := range img.Image.Layers {
		c.Layers = append(c.Layers, artifact.Layer{DiffID: l.DiffID, Size: l.Size, Encoding: artifact.EncodingVerbatim, Bytes: l.Size})
	}
	r, pw := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := image.WriteArchive(pw, spec)
		pw.CloseWithError(err)
		done <- err
	}()
	err = w.Add(info, size, &meter{ctx: ctx, r: r, tell: func(n int64) { g.tell("encode", img.URL, n, size) }})
	r.CloseWithError(io.ErrClosedPipe)
	if werr := <-done; werr != nil && err == nil {
		err = werr
	}
	return err
}

// meter passes a stream on, counts it and ends it with the context.
type meter struct {
	ctx  context.Context
	r    io.Reader
	n    int64
	tell func(int64)
}

func (m *meter) Read(p []byte) (int, error) {
	if m.ctx.Err() != nil {
		return 0, context.Cause(m.ctx)
	}
	n, err := m.r.Read(p)
	m.n += int64(n)
	m.tell(m.n)
	return n, err
}

// addDelta encodes image i against what is on the device when it is loaded.
func (g *generation) addDelta(ctx context.Context, w *artifact.ImagesWriter, i int, info artifact.ImageInfo, c *artifact.Component, sizes *artifact.Sizes) error {
	img := g.images[i]
	old := g.old(i)
	var olds []delta.Image
	for _, f := range old {
		olds = append(olds, deltaImage(f.URL, f.Image))
	}
	f, err := os.CreateTemp(g.temp, "delta-*")
	if err != nil {
		return &WriteError{err}
	}
	defer os.Remove(f.Name())
	defer f.Close()
	report, err := delta.Encode(ctx, f, olds, deltaImage(img.URL, img.Image), delta.Options{
		TempDir: g.temp, FilesOnly: g.FilesOnly,
		Progress: func(done, total int64) { g.tell("encode", img.URL, done, total) },
	})
	if err != nil {
		return err
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return &WriteError{err}
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return &WriteError{err}
	}
	c.PayloadBytes = size
	for _, o := range report.Objects {
		if o.Index == 0 { // the config
			continue
		}
		c.Layers = append(c.Layers, artifact.Layer{DiffID: image.Digest(o.Digest), Size: o.Size, Encoding: artifact.Encoding(o.Encoding), Bytes: o.Total()})
	}
	c.Bases = usedBases(report, g.bases(i))
	sizes.Temp = max(sizes.Temp, report.Header.Temp)
	sizes.Memory = max(sizes.Memory, report.Header.Memory)
	return w.Add(info, size, f)
}

// usedBases lists those of the bases that the delta takes content from, be it
// that a layer is omitted because they have it or that content of theirs is
// read. Images before it in the same artifact are not among them: they need not
// be on the device when the artifact comes.
func usedBases(report *delta.Report, old []*source.Found) []artifact.Base {
	needed := map[*source.Found]bool{}
	need := func(d delta.Digest) {
		for _, f := range old {
			if f.Image.ConfigDigest == image.Digest(d) || slices.Contains(f.Image.DiffIDs, image.Digest(d)) {
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
	for _, f := range old {
		if needed[f] {
			list = append(list, artifact.Base{URL: f.URL, Digest: f.Image.ConfigDigest})
		}
	}
	return list
}

// deltaImage is an image as the delta room knows it: the config, then the
// layers.
func deltaImage(name string, img *image.Image) delta.Image {
	d := delta.Image{Name: name, Objects: []delta.Object{{
		Digest: delta.Digest(img.ConfigDigest),
		Size:   int64(len(img.Config)),
		Kind:   delta.Blob,
		Open:   func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(string(img.Config))), nil },
	}}}
	for _, l := range img.Layers {
		d.Objects = append(d.Objects, delta.Object{Digest: delta.Digest(l.DiffID), Size: l.Size, Kind: delta.Tar, Open: l.Open})
	}
	return d
}

// engineGrowth is by how much the engine's disk grows: the config and the
// unpacked layers that are not there yet, each once. Images in variants tell it
// for each variant.
func (g *generation) engineGrowth() int64 {
	var n int64
	seen := map[image.Digest]bool{}
	for i, img := range g.images {
		c := g.result.Components[i]
		if c.Unchanged || c.SameAs != "" || img.format == artifact.FormatVariants {
			continue
		}
		n += int64(len(img.Image.Config))
		for _, l := range c.Layers {
			if !l.Omitted && !seen[l.DiffID] {
				seen[l.DiffID] = true
				n += l.Size
			}
		}
	}
	return n
}

// tagged writes the tag that a name without one means.
func tagged(url string) string {
	if strings.Contains(url[strings.LastIndexByte(url, '/')+1:], ":") {
		return url
	}
	return url + ":latest"
}

// packManifests packs the manifests directory, with what was resolved here in
// its .env.
func (g *generation) packManifests(p *payload) (err error) {
	dir := g.ManifestsDir
	if len(g.ship) > 0 {
		if dir, err = g.stage(); err != nil {
			return err
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("manifests directory: %w", err)
	}
	defer root.Close()
	f, err := os.Create(filepath.Join(g.temp, manifestsFile))
	if err != nil {
		return &WriteError{err}
	}
	size, err := artifact.WriteManifests(f, root.FS())
	if cerr := f.Close(); err == nil && cerr != nil {
		err = &WriteError{cerr}
	}
	var write *WriteError
	if err != nil && !errors.As(err, &write) {
		return &ManifestError{Dir: g.ManifestsDir, Err: &manifests.Error{Place: manifests.Place{File: "."}, Text: err.Error()}}
	}
	if err != nil {
		return err
	}
	p.manifests = f.Name()
	p.sizes.ManifestsPayload, p.sizes.Manifests = size.Payload, size.Files
	return nil
}

// stage copies the manifests directory and adds the variables to its .env,
// after what is there: the last value of a name counts.
func (g *generation) stage() (string, error) {
	to := filepath.Join(g.temp, "manifests")
	from, err := os.OpenRoot(g.ManifestsDir)
	if err != nil {
		return "", fmt.Errorf("manifests directory: %w", err)
	}
	defer from.Close()
	err = fs.WalkDir(from.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		target := filepath.Join(to, path)
		switch {
		case d.IsDir():
			return os.Mkdir(target, info.Mode().Perm()|0o700)
		case info.Mode()&fs.ModeSymlink != 0:
			link, err := from.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(link, target)
		}
		b, err := from.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.WriteFile(target, b, 0o600); err != nil {
			return err
		}
		return os.Chmod(target, info.Mode().Perm())
	})
	if err != nil {
		return "", &WriteError{err}
	}
	env := filepath.Join(to, ".env")
	var text strings.Builder
	b, err := os.ReadFile(env) // through a link too, which CheckTree kept inside
	if err == nil {
		text.Write(b)
		if len(b) > 0 && b[len(b)-1] != '\n' {
			text.WriteByte('\n')
		}
		if err := os.Remove(env); err != nil {
			return "", &WriteError{err}
		}
	}
	text.WriteString("# resolved on the build host\n")
	for _, v := range g.ship {
		text.WriteString(v.Name + "=" + quoteEnv(v.Value) + "\n")
	}
	if err := os.WriteFile(env, []byte(text.String()), 0o644); err != nil {
		return "", &WriteError{err}
	}
	return to, nil
}

// quoteEnv writes a value so that an env file gives it back as it is: within
// single quotes nothing is expanded, and a single quote needs double ones.
func quoteEnv(v string) string {
	if !strings.ContainsAny(v, "'\n") {
		return "'" + v + "'"
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "\n", `\n`).Replace(v) + `"`
}
