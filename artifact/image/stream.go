package image

import (
	"archive/tar"
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"slices"

	"github.com/mender-app/mender-app/artifact/clip"
	"github.com/mender-app/mender-app/artifact/internal/tarin"
)

// Limits bound what ReadStream accepts. A zero field means its default.
type Limits struct {
	MaxBytes   int64 // of the whole stream, unpacked; default 64 GiB
	MaxLayer   int64 // of one layer, uncompressed; default MaxBytes
	MaxMembers int   // of the tar; default 4096
	MaxJSON    int64 // of all configs and manifests together, held in memory; default 8 MiB
}

func (l Limits) defaults() Limits {
	if l.MaxBytes == 0 {
		l.MaxBytes = 64 << 30
	}
	if l.MaxLayer == 0 {
		l.MaxLayer = l.MaxBytes
	}
	if l.MaxMembers == 0 {
		l.MaxMembers = 4096
	}
	if l.MaxJSON == 0 {
		l.MaxJSON = 8 << 20
	}
	l.MaxLayer = min(l.MaxLayer, math.MaxInt64/2)
	return l
}

// Member is one layer as it arrives in a stream.
type Member struct {
	Name string // in the archive, clean: "blobs/sha256/…", "<id>/layer.tar"
	Size int64  // bytes stored in the archive, which is what the reader gives
	// DiffID is the layer's diffID where the manifest has come before the
	// layer, else "". It is not verified before the layer has been read.
	DiffID Digest
	// Compression is that of the stored bytes: "", "gzip" or "zstd".
	Compression string
}

// Handler takes the parts of a stream as they arrive. Either function may be
// nil; an error it returns ends the reading and is returned wrapped.
type Handler struct {
	// Manifest is called once with the images of the archive, as soon as their manifests
	// and configs have been read. If early is true, no layer has been handed over yet,
	// so the caller can skip layers it already has (our own writer always puts the
	// manifests first); the layers in imgs have no member and no size yet. Otherwise the
	// call comes at the end of the stream, after verification, with the images that
	// ReadStream returns.
	Manifest func(imgs []StreamImage, early bool) error
	// Layer is called for each layer, in the order of arrival, with its bytes
	// as they are stored. It need not read them: ReadStream reads and hashes the rest.
	// The bytes are not verified until ReadStream returns nil. If no manifest has been
	// seen yet, Layer may be called for a member that is not a layer; otherwise it is
	// called only for members that the manifest names.
	Layer func(m Member, r io.Reader) error
}

// StreamImage is one image of a stream.
type StreamImage struct {
	Image            // its Layers cannot be opened
	Members []string // for each layer the member that holds it, "" if it is omitted
}

// ReadStream reads an image archive (docker-archive, OCI layout as a tar, or
// hybrid; single layers or the whole archive may be compressed) from a stream, with
// its members in any order. It writes nothing. Memory stays below MaxJSON plus 5 MiB,
// plus a window for each zstd stream: usually 8 MiB, at most 32 MiB.
//
// Every layer is hashed, uncompressed, while it is handed over. ReadStream
// returns nil only if the stream was read to its end, configs and manifests
// match their digests, and every layer in it is the one that its image's
// config names. Layers may be omitted: they have no member in the result, and the
// caller decides whether it has them.
//
// If the archive has both manifest.json and index.json, manifest.json counts.
func ReadStream(r io.Reader, limits Limits, h Handler) ([]StreamImage, error) {
	limits = limits.defaults()
	br := bufio.NewReaderSize(r, 64<<10)
	head, _ := br.Peek(sniffLen)
	compression, err := sniff(head)
	if err != nil {
		return nil, err
	}
	var src io.Reader = br
	if compression == compressZstd {
		z, err := inflate(br, compression, deviceWindow)
		if err != nil {
			return nil, err
		}
		defer z.Close()
		src = z
	}
	tr, err := tarin.NewReader(src, tarin.Options{
		MaxBytes: limits.MaxBytes, MaxMembers: limits.MaxMembers, Format: ErrFormat, TooLarge: ErrTooLarge,
	})
	if err != nil {
		return nil, err
	}
	s := &stream{
		limits: limits, handler: h, tr: tr,
		seen: make(map[string]bool), json: make(map[string][]byte),
		links: make(map[string]string), blobs: make(map[string]arrived),
	}
	for {
		hdr, err := tr.Next()
		if err == io.EOF {
			return s.finish()
		}
		if err != nil {
			return nil, err
		}
		if err := s.member(hdr); err != nil {
			return nil, fmt.Errorf("member %q: %w", clip.Text(hdr.Name), err)
		}
	}
}

// stream is the state of a ReadStream.
type stream struct {
	limits  Limits
	handler Handler
	tr      *tarin.Reader

	seen     map[string]bool    // all members
	json     map[string][]byte  // those that may be configs or manifests
	jsonSize int64              // of json
	links    map[string]string  // symbolic and hard links
	blobs    map[string]arrived // those that may be layers
	started  bool               // a blob has arrived
	early    []resolved         // the images, if they were known when it did
	want     map[string]Digest  // the diffID of each member early names
}

// arrived describes a blob that was read.
type arrived struct {
	digest Digest // of the uncompressed content
	size   int64  // of the uncompressed content
	handed bool   // the handler has had it
}

func (s *stream) member(h *tar.Header) error {
	if h.Typeflag == tar.TypeDir {
		return nil
	}
	if s.seen[h.Name] {
		return fmt.Errorf("%w: it occurs twice", ErrFormat)
	}
	s.seen[h.Name] = true
	switch h.Typeflag {
	case tar.TypeSymlink:
		s.links[h.Name] = path.Join(path.Dir(h.Name), h.Linkname)
	case tar.TypeLink:
		s.links[h.Name] = path.Clean(h.Linkname)
	case tar.TypeReg:
		return s.file(h)
	}
	return nil
}

func (s *stream) file(h *tar.Header) error {
	body := bufio.NewReaderSize(s.tr, 4<<10)
	head, err := body.Peek(int(min(h.Size, sniffLen)))
	if err != nil {
		return err
	}
	if start := bytes.TrimLeft(head, " \t\r\n"); len(start) > 0 && (start[0] == '{' || start[0] == '[') && h.Size <= MaxConfig {
		b := make([]byte, h.Size)
		if _, err := io.ReadFull(body, b); err != nil {
			return err
		}
		if s.relevant(h.Name, b) {
			if s.jsonSize += h.Size; s.jsonSize > s.limits.MaxJSON {
				return fmt.Errorf("%w: more than %d bytes of manifests and configs", ErrTooLarge, s.limits.MaxJSON)
			}
			s.json[h.Name] = b
			return nil
		}
		return s.blob(h, head, bytes.NewReader(b))
	}
	return s.blob(h, head, body)
}

// relevant reports whether b is a document that finding the images may need.
// Others (legacy per-layer configs, attestations) are not worth their memory.
func (s *stream) relevant(name string, b []byte) bool {
	if name == nameManifest || name == nameIndex {
		return true
	}
	var doc struct {
		RootFS    json.RawMessage `json:"rootfs"`
		Manifests json.RawMessage `json:"manifests"`
		Layers    json.RawMessage `json:"layers"`
	}
	return json.Unmarshal(b, &doc) == nil && (doc.RootFS != nil || doc.Manifests != nil || doc.Layers != nil)
}

// blob hashes a member and hands it over if it is, or may be, a layer.
func (s *stream) blob(h *tar.Header, head []byte, body io.Reader) error {
	compression, err := sniff(head)
	if err != nil {
		return err
	}
	// A member smaller than a tar header cannot be a layer, such as VERSION in a classic
	// archive.
	layer := h.Size >= 512 || compression != ""
	if layer && !s.started {
		s.started = true
		if err := s.announce(); err != nil {
			return err
		}
	}
	if s.early != nil {
		_, layer = s.want[h.Name]
	}
	hr, err := newHasher(body, compression, s.limits.MaxLayer)
	if err != nil {
		return err
	}
	defer hr.stop()
	if layer && s.handler.Layer != nil {
		m := Member{Name: h.Name, Size: h.Size, DiffID: s.want[h.Name], Compression: compression}
		if err := s.handler.Layer(m, hr); err != nil {
			return err
		}
	}
	digest, size, err := hr.finish()
	if err != nil {
		return err
	}
	if want := s.want[h.Name]; want != "" && want != digest {
		return fmt.Errorf("layer %s: %w: it is %s", want, ErrMismatch, digest)
	}
	s.blobs[h.Name] = arrived{digest, size, layer}
	return nil
}

// announce tells the handler about the images before the first blob, if their
// manifests and configs have arrived by then.
func (s *stream) announce() error {
	imgs, err := s.resolve(true)
	if errors.Is(err, ErrMissing) {
		return nil
	}
	if err != nil {
		return err
	}
	s.early = imgs
	s.want = make(map[string]Digest)
	out := make([]StreamImage, len(imgs))
	for i, img := range imgs {
		for j, name := range img.members {
			d := img.DiffIDs[j]
			if other, ok := s.want[name]; ok && other != d {
				return fmt.Errorf("%w: one member is two layers", ErrMismatch)
			}
			s.want[name] = d
		}
		out[i] = StreamImage{img.Image, make([]string, len(img.members))}
	}
	if s.handler.Manifest == nil {
		return nil
	}
	return s.handler.Manifest(out, true)
}

// resolve finds the images in what has arrived so far.
func (s *stream) resolve(strict bool) ([]resolved, error) {
	rv := resolver{strict: strict, load: func(name string) ([]byte, error) {
		if b, ok := s.json[follow(name, s.links)]; ok {
			return b, nil
		}
		return nil, fmt.Errorf("%s: %w", clip.Text(name), ErrMissing)
	}}
	if s.json[nameManifest] != nil {
		return rv.docker()
	}
	return rv.oci()
}

// finish verifies what has arrived against the manifests.
func (s *stream) finish() ([]StreamImage, error) {
	imgs, err := s.resolve(false)
	if err != nil {
		return nil, err
	}
	if len(imgs) == 0 {
		return nil, fmt.Errorf("%w: no image in it", ErrFormat)
	}
	if s.early != nil && !slices.EqualFunc(imgs, s.early, func(a, b resolved) bool {
		return a.ConfigDigest == b.ConfigDigest && slices.Equal(a.members, b.members)
	}) {
		return nil, fmt.Errorf("%w: its manifests disagree", ErrFormat)
	}
	out := make([]StreamImage, len(imgs))
	for i, img := range imgs {
		out[i] = StreamImage{img.Image, make([]string, len(img.members))}
		for j, name := range img.members {
			name = follow(name, s.links)
			l := &out[i].Layers[j]
			b, ok := s.blobs[name]
			if !ok {
				if s.seen[name] {
					return nil, fmt.Errorf("layer %s: %w: it is no tar", l.DiffID, ErrMismatch)
				}
				continue
			}
			if b.digest != l.DiffID {
				return nil, fmt.Errorf("layer %s: %w: it is %s", l.DiffID, ErrMismatch, b.digest)
			}
			if !b.handed {
				return nil, fmt.Errorf("layer %s: %w: it is a link to something else", l.DiffID, ErrFormat)
			}
			l.Size = b.size
			out[i].Members[j] = name
		}
	}
	if s.early == nil && s.handler.Manifest != nil {
		if err := s.handler.Manifest(out, false); err != nil {
			return nil, err
		}
	}
	return out, nil
}
