package image

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact/clip"
)

// Archive gives random access to the images of a docker-archive, an OCI
// layout (tar or directory) or a hybrid; the tar may be compressed as a whole.
type Archive struct {
	src    source
	onHost bool // the platform may be missing in configs
	images []*Image
}

// OpenArchive opens the archive at path and reads its manifests and configs,
// which it verifies against their digests; layers are opened on demand. A tar
// that is compressed as a whole is unpacked to an unlinked file in
// os.TempDir. The caller closes the Archive after the last layer is read.
func OpenArchive(path string) (*Archive, error) { return openArchive(path, false) }

func openArchive(path string, onHost bool) (*Archive, error) {
	src, err := openSource(path)
	if err != nil {
		return nil, fmt.Errorf("image archive %s: %w", path, err)
	}
	a := &Archive{src: src, onHost: onHost}
	if err := a.load(); err != nil {
		src.Close()
		return nil, fmt.Errorf("image archive %s: %w", path, err)
	}
	return a, nil
}

// Close releases the archive; layers can no longer be opened.
func (a *Archive) Close() error { return a.src.Close() }

// Images lists every image in the archive once. It leaves out entries of an index
// that are not images, such as attestations, and images whose manifest or config is
// not in the archive.
func (a *Archive) Images() []*Image { return a.images }

// Select returns the image that suits the platform best. The zero Platform
// selects the only image of the archive. The image may be a fall-back:
// want.Match(img.Platform).Fallback() tells. If no image suits the platform, the
// error is a *PlatformError. If several different images suit equally well, the error
// asks for a name, which SelectTag takes.
func (a *Archive) Select(want Platform) (*Image, error) { return a.SelectTag("", want) }

// SelectTag is Select among the images with the tag. "docker.io/" and "library/" at
// its start and ":latest" at its end may be left out. With the empty tag all images
// are candidates.
func (a *Archive) SelectTag(tag string, want Platform) (*Image, error) {
	var fits []*Image
	var have []Platform
	best := NoFit
	for _, img := range a.images {
		if tag != "" && !img.tagged(tag) {
			continue
		}
		have = append(have, img.Platform.Or(want))
		fit := ExactFit
		if want != (Platform{}) {
			fit = want.Suit(img.Platform)
		}
		if fit > best {
			best, fits = fit, nil
		}
		if fit == best && fit > NoFit {
			fits = append(fits, img)
		}
	}
	switch {
	case len(have) == 0 && tag != "":
		return nil, fmt.Errorf("no image named %q in the archive; there is %s", clip.Text(tag), a.names())
	case len(have) == 0:
		return nil, fmt.Errorf("%w: no image in it", ErrFormat)
	case len(fits) == 0:
		slices.SortFunc(have, func(x, y Platform) int { return strings.Compare(x.String(), y.String()) })
		return nil, &PlatformError{Want: want.Normalize(), Have: slices.Compact(have)}
	case len(fits) > 1:
		return nil, fmt.Errorf("several images in the archive suit (%s): name one", a.names())
	}
	return fits[0], nil
}

// tagged reports whether the image has the tag.
func (img *Image) tagged(tag string) bool {
	want, err := parseRef(tag)
	return slices.ContainsFunc(append(slices.Clone(img.Tags), img.refs...), func(t string) bool {
		if t == tag {
			return true
		}
		have, herr := parseRef(t)
		return err == nil && herr == nil && have == want
	})
}

func (a *Archive) names() string {
	var names []string
	for _, img := range a.images {
		name := img.ConfigDigest.String()
		if len(img.Tags) > 0 {
			name = strings.Join(img.Tags, " ")
		}
		names = append(names, clip.Text(name)+" "+img.Platform.String())
	}
	return strings.Join(names, ", ")
}

// load finds the images in manifest.json and those only in the index.
func (a *Archive) load() error {
	rv := resolver{load: a.small, onHost: a.onHost}
	docker, err := rv.docker()
	if err != nil && !(errors.Is(err, ErrMissing) && docker == nil && a.missing(nameManifest)) {
		return err
	}
	oci, err := rv.oci()
	if err != nil && !a.missing(nameIndex) {
		return err
	}
	if docker == nil && a.missing(nameIndex) {
		return fmt.Errorf("%w: neither manifest.json nor index.json in it", ErrFormat)
	}
	known := make(map[identity]*Image)
	for _, r := range append(docker, oci...) {
		if img, ok := known[r.identity()]; ok {
			for _, tag := range r.Tags {
				if !img.tagged(tag) && strings.Contains(tag, ":") {
					img.Tags = append(img.Tags, tag)
				}
			}
			img.refs = append(img.refs, r.refs...)
			continue
		}
		img := r.Image
		for i := range img.Layers {
			if err := a.attach(&img.Layers[i], r.members[i]); err != nil {
				return fmt.Errorf("layer %s: %w", img.Layers[i].DiffID, err)
			}
		}
		known[r.identity()] = &img
		a.images = append(a.images, &img)
	}
	return nil
}

func (a *Archive) missing(name string) bool {
	_, _, err := a.src.open(name)
	return errors.Is(err, ErrMissing)
}

// small reads a config or manifest.
func (a *Archive) small(name string) ([]byte, error) {
	f, size, err := a.src.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > MaxConfig {
		return nil, fmt.Errorf("%w: %s of %d bytes", ErrTooLarge, clip.Text(name), size)
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", clip.Text(name), ErrFormat, err)
	}
	return b, nil
}

// attach sets how the layer's content is opened, if the archive has it.
func (a *Archive) attach(l *Layer, name string) error {
	f, size, err := a.src.open(name)
	if errors.Is(err, ErrMissing) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if l.BlobSize != 0 && l.BlobSize != size {
		return fmt.Errorf("%w: %d bytes, its descriptor says %d", ErrMismatch, size, l.BlobSize)
	}
	head := make([]byte, sniffLen)
	n, err := io.ReadFull(f, head)
	if err != nil && err != io.ErrUnexpectedEOF && err != io.EOF {
		return err
	}
	compression, err := sniff(head[:n])
	if err != nil {
		return err
	}
	l.BlobSize = size
	if strings.HasPrefix(name, blobDir) {
		l.Blob = namedDigest(name)
	}
	switch compression {
	case compressGzip:
		l.MediaType = MediaTypeLayerGzip
	case compressZstd:
		l.MediaType = MediaTypeLayerZstd
	default:
		l.MediaType, l.Size = MediaTypeLayer, size
		if l.Blob == "" {
			l.Blob = l.DiffID
		}
		if l.Blob != l.DiffID {
			return fmt.Errorf("%w: it is stored as %s", ErrMismatch, l.Blob)
		}
	}
	l.Open = func() (io.ReadCloser, error) {
		f, _, err := a.src.open(name)
		if err != nil {
			return nil, err
		}
		if compression == "" {
			return f, nil
		}
		z, err := inflate(f, compression, hostWindow)
		if err != nil {
			f.Close()
			return nil, err
		}
		return closers{z, []io.Closer{z, f}}, nil
	}
	return nil
}
