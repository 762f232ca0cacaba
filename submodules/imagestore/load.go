package imagestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules"
)

// Store is an image store that Load brings images into. storetest tests any
// implementation.
type Store interface {
	Target
	// Find returns the image with that identity, whatever names it has: the
	// application's own reference and hint (if any) are tried first. id.Config may
	// be the digest of the manifest that the image was loaded by. An image that is
	// not there is submodules.ErrNotFound.
	Find(ctx context.Context, app string, id Identity, hint string) (Stored, error)
	// Named returns the image that ref names, or submodules.ErrNotFound. So is
	// url@sha256:<hex> if the image at url has another digest: that of its config,
	// of the manifest that it was loaded by, or the engine's own ID.
	Named(ctx context.Context, ref string) (Stored, error)
	// Distrust removes what an interrupted load may have left of the image that q
	// wants: the image itself where it is damaged, and layers of no image. A
	// damaged image that something else needs is submodules.ErrContent.
	Distrust(ctx context.Context, q LoadRequest) error
	// Name makes ref name the image, wherever it pointed before; if the image is no
	// longer there, that is submodules.ErrNotFound. url is what the
	// application's manifests call the image; "" leaves what a store remembers of
	// that as it is.
	Name(ctx context.Context, img Stored, ref, url string) error
	// Unname removes a reference, and the image with its last one. A reference
	// that is not there, or a store that has gone away, is not an error.
	Unname(ctx context.Context, ref string) error
}

// Stored is an image in a store.
type Stored struct {
	Identity
	ID       string // the store's own name for it, if it has one; never an identity
	Platform image.Platform
	// InspectErr is the error with which the store failed to describe the image, nil
	// if it can. Such an image can only be removed.
	InspectErr error
}

// LoadRequest says which image a LOAD brings in, and what its content must be.
type LoadRequest struct {
	App string
	URL string // what the application's manifests call the image
	// Want is the identity that the content must have, as far as it is known.
	// Want.Config may be the digest of an OCI manifest or index in the content that
	// leads to the image's config: the shell module identifies an image so if the
	// engine of the build host has containerd's image store.
	Want Identity
	// Platform that the image must fit; the zero value is any.
	Platform image.Platform
	// Current names the old image that a delta starts from. The shell module's
	// deltas need it; ours need Base.
	Current string
	// Base has the layers of that image, the lowest first, nil if they are unknown:
	// shared content is made from its files, by their paths.
	Base     []image.Digest
	Stage    bool // do not move the tag URL
	Deep     bool // an archive has layers as xdelta3 files, as the shell module writes them
	Distrust bool // what is present may be damaged: verify it, load it again
	// Announced is what the artifact's metadata says about the content, nil for
	// nothing. Its layers are in the order of Want.DiffIDs.
	Announced *submodules.Announced
	// Xdelta3 is the xdelta3 command, for the shell module's deltas whose secondary
	// compression is not decoded here. It is a C program that reads bytes that are
	// not verified: "" never runs it.
	Xdelta3 string
	// TempDir is for temporary files. Our own formats need it only for shared
	// content.
	TempDir string
	Log     func(format string, args ...any) // must be set
}

// NewLoadRequest reads a sub-module's LOAD call.
func NewLoadRequest(r submodules.LoadRequest) (LoadRequest, error) {
	q := LoadRequest{
		App: r.App, URL: r.URL, Current: r.CurrentURL, TempDir: r.TempDir, Log: r.Logf,
		Stage: r.Stage, Deep: r.DeepDelta, Distrust: r.Distrust,
	}
	if err := CheckName(r.URL); err != nil {
		return q, err
	}
	for _, url := range []string{r.URL, r.CurrentURL} {
		if err := checkSum(url); err != nil {
			return q, err
		}
	}
	var err error
	if q.Want, err = Wanted(r.Request, r.URL); err != nil {
		return q, err
	}
	if c, ok := r.Component(r.URL); ok {
		q.Announced = c.Announced
		if len(c.Bases) > 0 {
			base, err := ParseIdentity(c.Bases[0])
			if err != nil {
				return q, err
			}
			q.Base = base.DiffIDs
		}
	}
	if r.Platform != "" {
		if q.Platform, err = image.ParsePlatform(r.Platform); err != nil {
			return q, submodules.Mark(err, submodules.ErrUsage)
		}
	}
	return q, nil
}

// checkSum refuses a URL that ends in a sum that is not a SHA-256.
func checkSum(url string) error {
	i := strings.LastIndexByte(url, '@')
	if i < 0 {
		return nil
	}
	if err := digest.Digest(url[i+1:]).Check(); err != nil {
		return submodules.Mark(fmt.Errorf("component %s: its sum must be a SHA-256: %w", url, err), submodules.ErrUsage)
	}
	return nil
}

// Wanted returns the identity of the image url: that of the release's
// component, else the digest at the end of the URL, else nothing. The component
// comes first because a URL may end in the digest of a registry's manifest.
func Wanted(r submodules.Request, url string) (Identity, error) {
	if c, ok := r.Component(url); ok && c.Digest != "" {
		return ParseIdentity(c)
	}
	_, want := submodules.SplitURL(url)
	if want == "" {
		return Identity{}, nil
	}
	return ParseIdentity(submodules.Component{URL: url, Digest: want})
}

// ParseIdentity returns the identity of a component; it is empty if the component
// has no digest. A digest that is not valid is submodules.ErrUsage.
func ParseIdentity(c submodules.Component) (Identity, error) {
	list := c.DiffIDs
	if c.Digest != "" {
		list = append([]digest.Digest{c.Digest}, list...)
	}
	for _, d := range list {
		if err := d.Check(); err != nil {
			return Identity{}, submodules.Mark(fmt.Errorf("component %s: %w", c.URL, err), submodules.ErrUsage)
		}
	}
	return Identity{Config: c.Digest, DiffIDs: slices.Clone(c.DiffIDs)}, nil
}

// own is the application's own reference to the image with that config.
func (q LoadRequest) own(config image.Digest) string {
	if q.Want.Config != "" && q.Want.Config != config {
		return ManifestRef(q.App, q.Want.Config)
	}
	return OwnRef(q.App, config)
}

// tag returns the reference that the manifests use. It is "" if that pins a digest
// and has no tag: a load does not move such a name.
func (q LoadRequest) tag() string {
	ref, digest := submodules.SplitURL(q.URL)
	if digest != "" && !strings.Contains(filepath.Base(ref), ":") {
		return ""
	}
	return ref
}

// LoadFile is Load with the content of the file path, or of stdin where path is
// "-".
func LoadFile(ctx context.Context, s Store, q LoadRequest, path string, stdin io.Reader) error {
	if path == "-" {
		return Load(ctx, s, q, stdin)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return Load(ctx, s, q, f)
}

// Load loads an image and gives it the application's own reference, and its URL
// unless it is staged. The content is verified against q.Want and its own config
// before the store makes an image of it; the result is verified again. The
// content is not read if the image is present.
//
// Wrong content, and content for another platform, are submodules.ErrContent; a
// missing or damaged base of a delta is submodules.ErrBase.
func Load(ctx context.Context, s Store, q LoadRequest, content io.Reader) error {
	find := func() (Stored, error) {
		if q.Want.Config == "" {
			return Stored{}, submodules.ErrNotFound
		}
		return s.Find(ctx, q.App, q.Want, q.URL)
	}
	img, err := find()
	if q.Distrust || err == nil && img.InspectErr != nil {
		if err := s.Distrust(ctx, q); err != nil {
			return fmt.Errorf("load image %s: %w", q.URL, err)
		}
		img, err = find()
	}
	if err == nil {
		if err := q.present(img); err != nil {
			return err
		}
		err = s.Name(ctx, img, q.own(img.Config), q.URL)
	}
	// The second case is an image that somebody removed just now, a kubelet for
	// example. The content is still unread.
	if errors.Is(err, submodules.ErrNotFound) {
		if err := q.checkCurrent(ctx, s); err != nil {
			return fmt.Errorf("load image %s: %w", q.URL, err)
		}
		if img, err = q.receive(ctx, s, content); err == nil {
			err = s.Name(ctx, img, q.own(img.Config), q.URL)
		}
	}
	if err != nil {
		return err
	}
	if tag := q.tag(); tag != "" && !q.Stage {
		return s.Name(ctx, img, tag, q.URL)
	}
	return nil
}

// checkCurrent refuses content that starts from an image which has another digest than the
// one in its name. Where the layers of that image are known, they say more than the name,
// whose digest may be that of a registry's manifest.
func (q LoadRequest) checkCurrent(ctx context.Context, s Store) error {
	if _, want := submodules.SplitURL(q.Current); want == "" || q.Current == q.URL || len(q.Base) > 0 {
		return nil
	}
	_, err := s.Named(ctx, q.Current)
	return baseError(err)
}

// present checks the platform of an image that is already in the store.
func (q LoadRequest) present(img Stored) error {
	q.Log("image %s is present already", img.Config)
	if q.Platform != (image.Platform{}) && q.Platform.Match(img.Platform) == image.NoFit {
		return &wrongPlatform{config: img.Config, have: img.Platform, want: q.Platform}
	}
	return nil
}

// receive loads the content. An image that is not whole afterwards is removed.
func (q LoadRequest) receive(ctx context.Context, s Store, content io.Reader) (Stored, error) {
	id, loaded, err := Receive(ctx, s, content, q, func(config image.Digest) []string { return []string{q.own(config)} })
	if err != nil {
		err = fmt.Errorf("load image %s: %w", q.URL, err)
		if id.Config == "" {
			return Stored{}, err
		}
		// The image was not in the store before. Docker's containerd store also names
		// an image that it could not unpack (28.5).
		return Stored{}, errors.Join(err, takeBack(ctx, s, q.own(id.Config)))
	}
	if !loaded {
		img, err := s.Find(ctx, q.App, id, q.URL)
		if err != nil {
			return img, err
		}
		return img, q.present(img)
	}
	if err := durable.Point("load.received"); err != nil {
		return Stored{}, err
	}
	own := q.own(id.Config)
	img, err := s.Named(ctx, own)
	if err == nil && img.InspectErr != nil {
		err = img.InspectErr
	}
	if err == nil && !img.is(id) {
		err = submodules.Mark(fmt.Errorf("load image %s: the engine made an image with config %s and %s; the content is the image with config %s and %s",
			q.URL, img.Config, metered.Count(len(img.DiffIDs), "layer"), id.Config, metered.Count(len(id.DiffIDs), "layer")), submodules.ErrContent)
	}
	if err != nil {
		return img, errors.Join(err, takeBack(ctx, s, own))
	}
	return img, nil
}

// takeBack removes a reference that a failed load may have made, and its image.
// It also works after the call was cancelled.
func takeBack(ctx context.Context, s Store, own string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return s.Unname(ctx, own)
}
