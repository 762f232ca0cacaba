package source

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/generator/requests"
	"github.com/mender-app/mender-app/generator/write"
)

// parallel is how many layers are fetched at one time, as Docker does it.
const parallel = 3

// fromRegistry fetches an image from the first mirror that has it, else from the
// registry itself. Credentials come from Docker's config.json and
// its credential helpers (or podman's auth.json).
func (o *Opener) fromRegistry(ctx context.Context, s Spec) (*Found, error) {
	ref, err := name.ParseReference(s.Ref)
	if err != nil {
		return nil, &Error{Text: fmt.Sprintf("%q is not an image reference", s.Ref)}
	}
	repository := strings.Replace(ref.Context().Name(), "index.docker.io/", "docker.io/", 1)
	places, err := o.Config.candidates(repository)
	if err != nil {
		return nil, err
	}
	var warnings []string
	for _, place := range places {
		f, ferr := o.fetch(ctx, place, ref)
		if ferr == nil {
			f.URL, f.Warnings = withoutDigest(s.Ref), append(warnings, f.Warnings...)
			return f, nil
		}
		err = ferr
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if place.mirror {
			warnings = append(warnings, fmt.Sprintf("mirror %s: %s", place.repository, oneLine(ferr)))
		}
	}
	return nil, o.explain(ctx, s, err)
}

// withoutDigest removes the digest from name:tag@digest. Engines know a loaded
// image by its tag only.
func withoutDigest(ref string) string {
	tagged, _, ok := strings.Cut(ref, "@")
	if ok && strings.Contains(tagged[strings.LastIndexByte(tagged, '/')+1:], ":") {
		return tagged
	}
	return ref
}

// fetch fetches an image from one place, within the time that an image may take.
func (o *Opener) fetch(ctx context.Context, place candidate, ref name.Reference) (*Found, error) {
	limit := cmp.Or(o.imageLimit, imageLimit)
	late := fmt.Errorf("%s is too slow: the image took longer than %s in all: try again, or fetch from a mirror", place.repository, limit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	f, err := o.fetchImage(ctx, place, ref)
	if err != nil && context.Cause(ctx) == late {
		err = late
	}
	return f, err
}

func (o *Opener) fetchImage(ctx context.Context, place candidate, ref name.Reference) (*Found, error) {
	repo, err := o.Config.reach(place.repository, place.insecure)
	if err != nil {
		return nil, err
	}
	at := name.Reference(repo.Tag(ref.Identifier()))
	if _, ok := ref.(name.Digest); ok {
		at = repo.Digest(ref.Identifier())
	}
	remoteOpts := []remote.Option{
		remote.WithContext(ctx),
		remote.WithAuthFromKeychain(authn.DefaultKeychain),
		remote.WithTransport(requests.Bounded(resumedAnswers{patientAnswers{repo.Transport, patience}}, requests.IsBlob)),
		remote.WithUserAgent("app-gen"),
	}
	desc, err := remote.Get(at, remoteOpts...)
	if err != nil {
		return nil, err
	}
	index := desc
	var listed image.Platform
	if desc.MediaType.IsIndex() {
		chosen, err := o.fromIndex(desc)
		if err != nil {
			return nil, err
		}
		listed = chosen.platform
		if desc, err = remote.Get(repo.Digest(chosen.digest.String()), remoteOpts...); err != nil {
			return nil, err
		}
	}
	if !desc.MediaType.IsImage() {
		return nil, fmt.Errorf("%s is a %s, not an image", at, desc.MediaType)
	}
	img, err := desc.Image()
	if err != nil {
		return nil, err
	}
	f := &Found{Repository: place.repository, Manifest: image.Digest(desc.Digest.String())}
	if f.Image, err = o.download(ctx, at.Name(), img, listed); err != nil {
		return nil, err
	}
	if o.Attestations && index != desc {
		idx, err := index.ImageIndex()
		if err == nil {
			f.Attestations, err = attestations(idx, []image.Digest{f.Manifest}, 0)
		}
		if err != nil {
			f.Warnings = append(f.Warnings, fmt.Sprintf("%s: cannot read its bill of materials: %s", at, oneLine(err)))
		}
	}
	return f, nil
}

// choice is an image in an index.
type choice struct {
	digest   v1.Hash
	platform image.Platform // incomplete if neither the index nor the config says it
}

// fromIndex chooses the manifest that suits the platform best, in the index or in those
// inside of it.
func (o *Opener) fromIndex(desc *remote.Descriptor) (best choice, err error) {
	idx, err := desc.ImageIndex()
	if err != nil {
		return best, err
	}
	seen := 0
	list, err := o.choices(idx, image.Platform{}, 0, &seen)
	if err != nil {
		return best, err
	}
	var have []image.Platform
	fit, several := image.NoFit, false
	for _, c := range list {
		if p := c.platform.Or(o.Platform); !slices.Contains(have, p) {
			have = append(have, p)
		}
		switch f := o.fit(c.platform); {
		case f > fit:
			best, fit, several = c, f, false
		case f == fit && c.digest != best.digest && !c.platform.Complete():
			several = true
		}
	}
	if several && fit > image.NoFit {
		return best, &Error{Text: "several images in it do not name a platform", Hint: "name one by its digest, as REPOSITORY@sha256:…=NAME:TAG"}
	}
	if o.Platform == (image.Platform{}) && len(have) > 1 {
		return best, &Error{Text: fmt.Sprintf("there are images for %v", have), Hint: "choose one with --platform"}
	}
	if fit == image.NoFit {
		return best, &image.PlatformError{Want: o.Platform, Have: have}
	}
	return best, nil
}

// maxEntries bounds the entries of an index and of those inside of it.
const maxEntries = 256

// choices lists the images of an index. The platform of an entry that names none is that
// of its config, or else of the index around it. Attestations, signatures and other
// artifacts are left out.
func (o *Opener) choices(idx v1.ImageIndex, around image.Platform, depth int, seen *int) (list []choice, err error) {
	if depth > maxIndexes {
		return nil, fmt.Errorf("%w: indexes more than %d deep", image.ErrTooLarge, maxIndexes)
	}
	m, err := idx.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, d := range m.Manifests {
		if *seen++; *seen > maxEntries {
			return nil, fmt.Errorf("%w: more than %d manifests", image.ErrTooLarge, maxEntries)
		}
		// BuildKit lists attestations as images for unknown/unknown.
		if d.Annotations[annotationReferenceType] != "" || d.Platform != nil && d.Platform.OS == "unknown" {
			continue
		}
		p := around
		if d.Platform != nil {
			p = image.Platform{OS: d.Platform.OS, Arch: d.Platform.Architecture, Variant: d.Platform.Variant}.Or(around)
		}
		switch {
		case d.MediaType.IsIndex():
			if o.fit(p) == image.NoFit {
				list = append(list, choice{platform: p}) // named, and not read
				continue
			}
			inner, err := idx.ImageIndex(d.Digest)
			if err != nil {
				return nil, err
			}
			more, err := o.choices(inner, p, depth+1, seen)
			if err != nil {
				return nil, err
			}
			list = append(list, more...)
		case !d.MediaType.IsImage():
		case d.Platform != nil && p.Complete():
			list = append(list, choice{d.Digest, p})
		default:
			img, err := idx.Image(d.Digest)
			if err != nil {
				return nil, err
			}
			if p, is, err := platformOf(img, p); err != nil {
				return nil, fmt.Errorf("%s: %w", d.Digest, err)
			} else if is {
				list = append(list, choice{d.Digest, p})
			}
		}
	}
	return list, nil
}

// platformOf is the platform that an image's config names, or else that which is listed.
// What has no layer of an image is none.
func platformOf(img v1.Image, listed image.Platform) (p image.Platform, is bool, err error) {
	m, err := img.Manifest()
	if err != nil {
		return p, false, err
	}
	if !m.Config.MediaType.IsConfig() || len(m.Layers) > 0 && !slices.ContainsFunc(m.Layers, func(d v1.Descriptor) bool { return image.IsLayer(string(d.MediaType)) }) {
		return p, false, nil
	}
	if err := checkManifest(img); err != nil {
		return p, false, err
	}
	b, err := img.RawConfigFile()
	if err != nil {
		return p, false, err
	}
	p, err = image.PlatformOnHost(b, listed)
	return p, err == nil, err
}

// download fetches the config and the layers' blobs, whose digests are
// verified while they are written.
func (o *Opener) download(ctx context.Context, what string, img v1.Image, listed image.Platform) (*image.Image, error) {
	if err := checkManifest(img); err != nil {
		return nil, err
	}
	config, err := img.RawConfigFile()
	if err != nil {
		return nil, err
	}
	p, err := image.PlatformOnHost(config, listed)
	if err != nil {
		return nil, err
	}
	// fail before anything is fetched
	if o.fit(p) == image.NoFit {
		return nil, &image.PlatformError{Want: o.Platform, Have: []image.Platform{p.Or(o.Platform)}}
	}
	if _, err := o.supposed(Spec{Kind: Registry, Ref: what}, p); err != nil {
		return nil, err
	}
	blobs, err := img.Layers()
	if err != nil {
		return nil, err
	}
	layers := make([]image.Layer, len(blobs))
	var wg sync.WaitGroup
	var mu sync.Mutex // guards o.blobs and the sums below
	var done, total int64
	for _, b := range blobs {
		if n, err := b.Size(); err == nil {
			total += min(n, math.MaxInt64-total)
		}
	}
	if free, err := freeSpace(o.TempDir); err == nil && total > free {
		return nil, &write.Error{Err: fmt.Errorf("%w: the layers have %d bytes, but %s has room for %d", syscall.ENOSPC, total, o.TempDir, free)}
	}
	step := func(n int64) {
		mu.Lock()
		done += n
		d := done
		mu.Unlock()
		o.tell(what, d, total)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slots := make(chan struct{}, parallel)
	for i, b := range blobs {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if ctx.Err() != nil {
				return
			}
			var err error
			if layers[i], err = o.blob(ctx, b, &mu, step); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return image.NewOnHost(config, layers, listed)
}

func (o *Opener) blob(ctx context.Context, b v1.Layer, mu *sync.Mutex, step func(int64)) (image.Layer, error) {
	hash, err := b.Digest()
	if err != nil {
		return image.Layer{}, err
	}
	size, err := b.Size()
	if err != nil {
		return image.Layer{}, err
	}
	media, err := b.MediaType()
	if err != nil {
		return image.Layer{}, err
	}
	digest, err := digest.Parse(hash.String())
	if err != nil {
		return image.Layer{}, err
	}
	layer := image.Layer{Size: -1, MediaType: string(media), Blob: digest, BlobSize: size}
	mu.Lock()
	path := o.blobs[digest]
	mu.Unlock()
	if path == "" {
		path = o.cachedBlob(ctx, digest, step)
	} else {
		step(size)
	}
	if path == "" {
		if path, err = o.fetchBlob(ctx, b, digest, step); err != nil {
			return layer, fmt.Errorf("layer %s: %w", digest, err)
		}
		// A cache that fails costs time, and the artifact nothing.
		_ = o.Cache.Keep(CacheKey{Kind: cachedBlob, Hex: digest.Hex()}, path)
	}
	mu.Lock()
	if o.blobs == nil {
		o.blobs = map[image.Digest]string{}
	}
	o.blobs[digest] = path
	mu.Unlock()
	layer.Open = func() (io.ReadCloser, error) { return openCompressed(path) }
	return layer, nil
}

// cachedBlob is the kind of the blobs in the cache. Their keys are their digests.
const cachedBlob = "blob"

// cachedBlob takes a blob from the cache and compares it with its digest. It returns
// "" if there is none, or a damaged one.
func (o *Opener) cachedBlob(ctx context.Context, want image.Digest, step func(int64)) string {
	key := CacheKey{Kind: cachedBlob, Hex: want.Hex()}
	path := filepath.Join(o.TempDir, want.Hex()+"-"+rand.Text())
	if o.Cache.Take(key, path) != nil {
		return ""
	}
	var read int64
	f, err := os.Open(path)
	if err == nil {
		defer f.Close()
		sum := sha256.New()
		_, err = io.Copy(sum, metered.Reader(ctx, f, func(n int64) { read += n; step(n) }))
		if err == nil && fmt.Sprintf("%x", sum.Sum(nil)) == want.Hex() {
			return path
		}
	}
	step(-read)
	os.Remove(path)
	if ctx.Err() == nil {
		o.Cache.Remove(key)
	}
	return ""
}

// attempts is how often a blob is requested, so that one broken connection does
// not end the run.
const attempts = 3

func (o *Opener) fetchBlob(ctx context.Context, b v1.Layer, digest image.Digest, step func(int64)) (path string, err error) {
	for range attempts {
		var got int64
		path, err = o.tryBlob(ctx, b, digest, func(n int64) { got += n; step(n) })
		var status *transport.Error
		var full *write.Error
		if err == nil || ctx.Err() != nil || errors.As(err, &status) || errors.As(err, &full) {
			break // the registry refuses; go-containerregistry has tried again already. A disk stays full
		}
		step(-got)
	}
	return path, err
}

func (o *Opener) tryBlob(ctx context.Context, b v1.Layer, digest image.Digest, step func(int64)) (string, error) {
	r, err := b.Compressed() // verifies size and digest
	if err != nil {
		return "", err
	}
	defer r.Close()
	// an image may list the same blob twice, and both are fetched at the same time
	f, err := os.CreateTemp(o.TempDir, "blob-*")
	if err != nil {
		return "", &write.Error{Err: err}
	}
	_, err = io.Copy(onDisk(f), metered.Reader(ctx, r, step))
	if cerr := f.Close(); err == nil && cerr != nil {
		err = &write.Error{Err: cerr}
	}
	if err != nil {
		os.Remove(f.Name())
		return "", err
	}
	path := filepath.Join(o.TempDir, digest.Hex())
	return path, os.Rename(f.Name(), path)
}

// explain says what a failed fetch means and what may help.
func (o *Opener) explain(ctx context.Context, s Spec, err error) error {
	var platform *image.PlatformError
	if errors.As(err, &platform) {
		return err
	}
	var full *write.Error
	if errors.As(err, &full) {
		return full // a *fs.PathError is a net.Error too
	}
	var told *Error
	if errors.As(err, &told) && errors.Is(err, image.ErrNoPlatform) {
		return &Error{Text: s.Ref, Err: told.Err, Hint: told.Hint}
	}
	e := &Error{Text: s.Ref, Err: errors.New(oneLine(err))}
	if told != nil {
		e.Hint = told.Hint
	}
	var status *transport.Error
	var netErr net.Error
	var elsewhere *requests.ElsewhereError
	switch {
	case errors.As(err, &elsewhere):
		e.Err = elsewhere
	case errors.As(err, &status) && (status.StatusCode == http.StatusUnauthorized || status.StatusCode == http.StatusForbidden):
		// registries answer the same for an image that does not exist
		e.Err = errors.New("the registry refuses: not logged in, or there is no such image")
		e.Hint = "check the name, and log in with docker login"
		if user := loginOf(s.Ref); user != "" {
			e.Err = fmt.Errorf("the registry refuses the login of %s: its password is wrong or has expired, or there is no such image for it", user)
			e.Hint = "check the name, and log in again with docker login"
		}
	case errors.As(err, &status) && status.StatusCode == http.StatusNotFound:
		e.Err = errors.New("the registry has no such image")
		e.NotFound = true
	case errors.As(err, &netErr) || errors.Is(err, requests.ErrPlain):
		e.Err = fmt.Errorf("the registry cannot be reached: %s", oneLine(err))
	}
	if o.inDaemon(ctx, s.Ref) {
		e.Hint = "the Docker daemon here has it: use docker-daemon:" + s.Ref
	} else if exists(s.Ref) {
		e.Hint = "for the file of that name write docker-archive:" + s.Ref + " or oci:" + s.Ref
	}
	return e
}

// loginOf is the user whose credentials a registry was given; "" if it was given none.
func loginOf(text string) string {
	ref, err := name.ParseReference(text)
	if err != nil {
		return ""
	}
	auth, err := authn.DefaultKeychain.Resolve(ref.Context())
	if err != nil || auth == authn.Anonymous {
		return ""
	}
	c, err := auth.Authorization()
	if err != nil || *c == (authn.AuthConfig{}) {
		return ""
	}
	if c.Username == "" {
		return "a token"
	}
	return c.Username
}

func oneLine(err error) string {
	return requests.Text(strings.Join(strings.Fields(err.Error()), " "))
}
