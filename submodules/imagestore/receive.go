package imagestore

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/submodules"
)

// Target is an engine that takes images.
type Target interface {
	// Present returns the layers of the list (an image's diffIDs, base first)
	// that an archive may leave out, with the descriptors its OCI manifest must
	// then have. A zero descriptor leaves the name to the archive's writer.
	Present(ctx context.Context, diffIDs []image.Digest) (map[image.Digest]image.Descriptor, error)
	// Has reports whether the engine has the whole image already.
	Has(ctx context.Context, id Identity) (bool, error)
	// Load gives the engine one image archive. If it fails, no part of the
	// archive is visible in the engine.
	Load(ctx context.Context, archive io.Reader) error
	// Old opens the old content that deltas start from. layers are the layers that
	// will be read. Others may be read too, at a higher cost.
	Old(ctx context.Context, layers []image.Digest) (Old, error)
	// Room returns the space for further layers on the engine's disk, in bytes;
	// NoRoomLimit if it is unknown.
	Room(ctx context.Context) (int64, error)
	// Save writes the engine's own archive of the image ref to an unlinked file,
	// byte for byte. ref is as in Store.Named.
	Save(ctx context.Context, ref string) (f *os.File, size int64, err error)
}

// Preparer is a Target that has to drop the remains of aborted loads before it gets
// the layers diffIDs.
type Preparer interface {
	Prepare(ctx context.Context, diffIDs []image.Digest) error
}

// Receive reads an image from r, in whatever form (see PROTOCOL.md), and gives
// it to the target as one hybrid archive that is written while r is read: no
// copy of it is kept anywhere. The archive's manifests come last, and only when
// every layer has the digest the config names, so that nothing unverified
// becomes an image.
//
// loaded is false if the target had the image already; r is then not read to its
// end. If there is an error, id is the identity that the content claimed, as far
// as it was read. Wrong content is submodules.ErrContent; a missing or damaged
// base of a delta is submodules.ErrBase.
//
// tags are the references that the image gets, for its config's digest.
func Receive(ctx context.Context, t Target, r io.Reader, q LoadRequest, tags func(config image.Digest) []string) (id Identity, loaded bool, err error) {
	br := bufio.NewReaderSize(r, 64<<10)
	head, err := br.Peek(262)
	if err != nil && len(head) == 0 {
		if err == io.EOF {
			err = errors.New("the content is empty")
		}
		return id, false, submodules.Mark(err, submodules.ErrContent)
	}
	rc := &receiver{ctx: ctx, target: t, in: q, tags: tags, nonce: rand.Text()}
	if rc.announced, err = newAnnouncement(q.Announced, q.Want); err == nil {
		err = rc.announced.checkKind(head, q.Deep)
	}
	switch {
	case err != nil:
	case bytes.HasPrefix(head, deltaMagic):
		err = rc.delta(br)
	case bytes.HasPrefix(head, vcdiffMagic):
		err = rc.vcdiff(br)
	case q.Deep:
		err = rc.deepArchive(br)
	default:
		err = rc.archive(br)
	}
	err = rc.end(err)
	if errors.Is(err, errPresent) {
		return rc.id, false, nil
	}
	if err != nil {
		return rc.id, false, contentError(err)
	}
	return rc.id, true, nil
}

var (
	deltaMagic  = []byte("\xd5appdlt\n") // delta/FORMAT.md
	vcdiffMagic = []byte{0xd6, 0xc3, 0xc4}
)

// errPresent ends the reading of content that is there already.
var errPresent = errors.New("already present")

// contentError marks errors of the content with submodules.ErrContent or ErrBase.
func contentError(err error) error {
	var old *delta.OldError
	var feature *delta.FeatureError
	var mismatch *delta.MismatchError
	var platform *image.PlatformError
	switch {
	case errors.As(err, &old):
		return submodules.Mark(err, submodules.ErrBase)
	case errors.As(err, &feature), errors.As(err, &mismatch), errors.As(err, &platform), errors.Is(err, delta.ErrFormat),
		errors.Is(err, image.ErrFormat), errors.Is(err, image.ErrTooLarge), errors.Is(err, image.ErrMissing), errors.Is(err, image.ErrMismatch),
		errors.Is(err, io.ErrUnexpectedEOF):
		return submodules.Mark(err, submodules.ErrContent)
	}
	return referenceError(err)
}

// receiver is the state of one Receive.
type receiver struct {
	ctx    context.Context
	target Target
	in     LoadRequest
	tags   func(config image.Digest) []string

	announced *announcement
	id        Identity
	nonce     string    // random part of the names of layers, different for each load
	layers    int       // the number of layers with such names
	out       *outgoing // nil until the first byte for the engine
	roomState
}

// accept checks the image against rc.in before the engine gets any of it. manifests
// are the digests of the manifests that lead to it. It returns errPresent if the
// engine has the image.
func (rc *receiver) accept(config image.Digest, diffIDs []image.Digest, p image.Platform, manifests ...image.Digest) error {
	want := rc.in.Want
	if want.Config != "" && want.Config != config && !slices.Contains(manifests, want.Config) {
		return fmt.Errorf("the content is the image with config %s, and %s is announced: %w", config, want.Config, image.ErrMismatch)
	}
	if want.DiffIDs != nil && !slices.Equal(want.DiffIDs, diffIDs) {
		return fmt.Errorf("image %s: its layers are not those announced: %w", config, image.ErrMismatch)
	}
	if rc.in.Platform != (image.Platform{}) {
		fit := rc.in.Platform.Match(p)
		if fit == image.NoFit {
			return &wrongPlatform{config: config, have: p, want: rc.in.Platform}
		}
		if fit.Fallback() {
			rc.in.Log("warning: image %s is for %s, the release for %s", config, p, rc.in.Platform)
		}
	}
	rc.id = Identity{Config: config, DiffIDs: diffIDs}
	has, err := rc.target.Has(rc.ctx, rc.id)
	if err != nil {
		return err
	}
	if has {
		return errPresent
	}
	return nil
}

// wrongPlatform is the error for an image that does not run on the release's platform.
type wrongPlatform struct {
	config     image.Digest
	have, want image.Platform
}

func (e *wrongPlatform) Error() string {
	return fmt.Sprintf("image %s is for %s, the release for %s", e.config, e.have, e.want)
}

func (e *wrongPlatform) Is(target error) bool { return target == submodules.ErrContent }

// archive receives an image archive, with its members in any order.
func (rc *receiver) archive(r io.Reader) error {
	var present map[image.Digest]image.Descriptor
	early := false
	names := map[string]string{} // member → its name in the archive for the engine
	imgs, err := image.ReadStream(r, rc.announced.limits(), image.Handler{
		Manifest: func(imgs []image.StreamImage, first bool) error {
			if early = first; !early {
				return nil
			}
			img, err := rc.choose(imgs)
			if err != nil {
				return err
			}
			if err := rc.accept(img.ConfigDigest, img.DiffIDs, img.Platform, img.Manifests...); err != nil {
				return err
			}
			present, err = rc.target.Present(rc.ctx, img.DiffIDs)
			return err
		},
		Layer: func(m image.Member, r io.Reader) error {
			if early && !slices.Contains(rc.id.DiffIDs, m.DiffID) {
				return nil // a layer of another image
			}
			if _, ok := present[m.DiffID]; ok && early {
				return nil
			}
			name := m.Name
			switch {
			case early && m.Compression == "":
				name = blobName(m.DiffID)
			case !strings.HasPrefix(name, blobDir):
				name = rc.layerName()
			}
			if !rc.writer().has(name) {
				if err := rc.layer(name, m.DiffID, m.Size, r); err != nil {
					return err
				}
			}
			names[m.Name] = name
			return nil
		},
	})
	if err != nil {
		return err
	}
	img, err := rc.choose(imgs)
	if err != nil {
		return err
	}
	if !early {
		if err := rc.accept(img.ConfigDigest, img.DiffIDs, img.Platform, img.Manifests...); err != nil {
			return err
		}
		if present, err = rc.target.Present(rc.ctx, img.DiffIDs); err != nil {
			return err
		}
	}
	a := archived{config: img.Config, id: rc.id, names: make([]string, len(img.DiffIDs)), sizes: make([]int64, len(img.DiffIDs)), present: present}
	for i := range img.DiffIDs {
		a.sizes[i] = img.Layers[i].Size
		a.names[i] = names[img.Members[i]]
	}
	if !a.byDigest() {
		// Then no OCI manifest can name the layers, and a store that uses
		// descriptors accepts a docker-archive only if no layer is left out.
		for d, desc := range present {
			if desc.Digest != "" {
				delete(present, d)
			}
		}
	}
	if err := rc.fill(a); err != nil {
		return err
	}
	return rc.writer().finish(a, rc.tags(rc.id.Config))
}

// fill adds the layers that the content leaves out and that the engine has only at
// another place in a chain of layers, where it cannot use them.
func (rc *receiver) fill(a archived) error {
	var missing []image.Digest
	for i, d := range a.id.DiffIDs {
		if _, ok := a.present[d]; !ok && a.names[i] == "" {
			missing = append(missing, d)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	old, err := rc.target.Old(rc.ctx, missing)
	if err != nil {
		return err
	}
	defer old.Close()
	for i, d := range a.id.DiffIDs {
		if !slices.Contains(missing, d) {
			continue
		}
		if !rc.writer().has(blobName(d)) {
			size, err := rc.copyLayer(old, d)
			if err != nil {
				return err
			}
			a.sizes[i] = size
		}
		a.names[i] = blobName(d)
	}
	return nil
}

// choose picks the wanted image from an archive.
func (rc *receiver) choose(imgs []image.StreamImage) (image.StreamImage, error) {
	named := slices.DeleteFunc(slices.Clone(imgs), func(img image.StreamImage) bool { return !slices.Contains(img.Manifests, rc.in.Want.Config) })
	if len(named) > 0 {
		imgs = named
	}
	var have []image.Platform
	var fits []image.StreamImage
	for _, img := range imgs {
		if img.ConfigDigest == rc.in.Want.Config {
			return img, nil
		}
		have = append(have, img.Platform)
		if rc.in.Platform == (image.Platform{}) || rc.in.Platform.Match(img.Platform) > image.NoFit {
			fits = append(fits, img)
		}
	}
	switch {
	case len(imgs) == 1:
		return imgs[0], nil // accept says what is wrong with it
	case len(fits) == 0:
		return image.StreamImage{}, &image.PlatformError{Want: rc.in.Platform, Have: have}
	case len(fits) > 1:
		return image.StreamImage{}, fmt.Errorf("%w: %s in it, and none is the one announced", image.ErrFormat, metered.Count(len(fits), "image"))
	}
	return fits[0], nil
}

// layerName returns a name for a layer in a docker-archive that no other load has
// used: Docker's containerd store resumes an earlier load of the same name, even a
// forged one (28.5).
func (rc *receiver) layerName() string {
	rc.layers++
	return fmt.Sprintf("%s-%d/layer.tar", rc.nonce, rc.layers)
}

// layer gives the engine a layer of exactly size bytes, if it has room for it.
// d is its diffID, "" if unknown.
func (rc *receiver) layer(name string, d image.Digest, size int64, r io.Reader) error {
	if limit, known := rc.announced.layer(d); known && size > limit {
		return notAnnounced("layer %s has %d bytes, and %d are announced", d, size, limit)
	}
	if err := rc.fits(size); err != nil {
		return err
	}
	g, err := rc.gauge(rc.writer().tw, d)
	if err != nil {
		return err
	}
	err = rc.writer().layerTo(g, name, size, r)
	if gerr := g.Close(); err == nil {
		err = gerr
	}
	rc.taken += max(size, g.size)
	return err
}

// writer returns the archive for the engine. The first call begins it.
func (rc *receiver) writer() *outgoing {
	if rc.out == nil {
		if p, ok := rc.target.(Preparer); ok {
			layers := rc.id.DiffIDs
			if layers == nil {
				layers = rc.in.Want.DiffIDs
			}
			if err := p.Prepare(rc.ctx, layers); err != nil {
				rc.in.Log("warning: the remains of a broken load, if there are any, stay: %v", err)
			}
		}
		rc.out = begin(rc.ctx, rc.target)
	}
	return rc.out
}

// end closes the archive and waits for the engine's result.
func (rc *receiver) end(err error) error {
	if rc.out == nil {
		return err
	}
	return rc.out.end(err)
}
