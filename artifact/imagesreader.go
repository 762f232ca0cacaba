package artifact

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/mender-app/mender-app/artifact/clip"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/internal/tarin"
	"github.com/mender-app/mender-app/artifact/metered"
)

// ReadImages reads an images payload (tar, or tar.gz) and calls fn for each image
// with its content, of exactly info.Size bytes. ReadImages skips what fn does not
// read. An error of fn ends the reading and is returned as it is. ReadImages
// returns nil only if the payload is whole and was read to its end. It checks the
// structure of the payload, not the images: fn must verify those, and the caller must
// not use anything fn made before ReadImages returns nil.
//
// Our payloads are streamed: memory stays below 1 MiB, and nothing is written.
// For the shell reference's payloads see ReadOptions.SpoolDir.
func ReadImages(r io.Reader, o ReadOptions, fn func(info ImageInfo, content io.Reader) error) error {
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxImages
	}
	if o.MaxSpool == 0 {
		o.MaxSpool = o.MaxBytes
	}
	tr, err := tarin.NewReader(r, tarin.Options{
		MaxBytes: o.MaxBytes, MaxMembers: maxImagesMembers, Format: ErrPayload, TooLarge: ErrTooLarge,
	})
	if err != nil {
		return fmt.Errorf("images: %w", err)
	}
	ir := &imagesReader{o: o, tr: tr, fn: fn, done: make(map[image.Digest]bool)}
	defer ir.discard()
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return ir.end()
		}
		if err != nil {
			return fmt.Errorf("images: %w", err)
		}
		if err := ir.member(h); err != nil {
			return err
		}
	}
}

// imagesReader is the state of a ReadImages.
type imagesReader struct {
	o    ReadOptions
	tr   *tarin.Reader
	fn   func(ImageInfo, io.Reader) error
	done map[image.Digest]bool // images that are complete
	cur  *imageDir
}

// imageDir is the image whose members are being read.
type imageDir struct {
	digest image.Digest
	texts  map[string]string // by member
	deep   bool              // the marker deep_delta was read
	handed bool              // fn got the content

	content string   // the member image.img or image.delta, or the last one of the variants; "" before it is read
	several bool     // it has variants
	spool   *os.File // the content, if it was kept
	size    int64    // of the content
}

func (r *imagesReader) member(h *tar.Header) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("images: %w: member %q: %s", ErrPayload, clip.Text(h.Name), fmt.Sprintf(format, args...))
	}
	parts := strings.Split(h.Name, "/")
	if parts[0] != imagesDir || len(parts) > 3 {
		return fail("not one of an images payload")
	}
	if h.Typeflag == tar.TypeDir && len(parts) < 3 {
		return nil // directories are ignored: an image without members does not count
	}
	if h.Typeflag != tar.TypeReg || len(parts) < 3 {
		return fail("only files may be here")
	}
	digest, err := digest.FromHex(parts[1])
	if err != nil {
		return fail("%s", err)
	}
	if r.cur == nil || r.cur.digest != digest {
		if err := r.end(); err != nil {
			return err
		}
		if r.done[digest] {
			return fail("the members of an image are not together")
		}
		r.cur = &imageDir{digest: digest, texts: make(map[string]string)}
	}
	d := r.cur
	switch name := parts[2]; name {
	case memberURLNew, memberURLCurrent, memberSumNew, memberSumCurrent:
		if _, ok := d.texts[name]; ok {
			return fail("it occurs twice")
		}
		if h.Size > maxTextMember {
			return fail("%d bytes where a line should be", h.Size)
		}
		b, err := io.ReadAll(r.tr)
		if err != nil {
			return fmt.Errorf("images: %w", err)
		}
		if d.texts[name], err = line(b); err != nil {
			return fail("%s", err)
		}
		return nil
	case memberDeepDelta:
		if d.deep {
			return fail("it occurs twice")
		}
		if h.Size != 0 {
			return fail("it should be empty")
		}
		if d.handed {
			return fail("a deep delta of an image that is complete")
		}
		d.deep = true
		return nil
	case memberImage, memberDelta:
		if d.several && name == memberImage {
			return r.variant(d, name, h.Size)
		}
		if d.content != "" {
			return fail("a second content")
		}
		d.content, d.size = name, h.Size
		return r.take(d)
	default:
		if name == memberShared || variantOf(name) > 0 {
			return r.variant(d, name, h.Size)
		}
		return fail("not one of an images payload")
	}
}

// line returns the line of a text member. The shell reference appends a line to
// sums-new.txt for each --image that names the same image, so the same line may
// be repeated.
func line(b []byte) (string, error) {
	first, rest, _ := bytes.Cut(b, []byte("\n"))
	for next := range bytes.Lines(rest) {
		if !bytes.Equal(bytes.TrimSuffix(next, []byte("\n")), first) {
			return "", errors.New("more than one line")
		}
	}
	s := strings.TrimSuffix(string(first), "\r")
	if checkText("", s) != nil {
		return "", errors.New("a character that cannot be printed")
	}
	return s, nil
}

// take passes the next content of the stream to fn. If the texts of the image are
// not complete yet, it keeps the content.
func (r *imagesReader) take(d *imageDir) error {
	// Until the marker has been read, a delta of the shell reference can still be
	// a deep delta.
	complete := len(d.texts) == 4
	certain := d.content == memberDelta || d.deep || d.texts[memberURLNew] == d.texts[memberURLCurrent]
	if complete && certain {
		return r.hand(d, r.tr)
	}
	if r.o.SpoolDir == "" {
		return fmt.Errorf("images: %w: image %s comes before what describes it, and there is no directory to keep it in", ErrSpool, d.digest)
	}
	if d.size > r.o.MaxSpool {
		return fmt.Errorf("images: %w: image %s has %d bytes, %d may be kept", ErrSpool, d.digest, d.size, r.o.MaxSpool)
	}
	f, err := os.CreateTemp(r.o.SpoolDir, "image-*")
	if err != nil {
		return fmt.Errorf("images: %w: %w", ErrSpool, err)
	}
	d.spool = f
	if err := os.Remove(f.Name()); err != nil {
		return fmt.Errorf("images: %w: %w", ErrSpool, err)
	}
	if _, err := io.Copy(spooled{f}, r.tr); err != nil {
		return fmt.Errorf("images: %w", err)
	}
	return nil
}

// spooled turns errors of writes to the spool into ErrSpool.
type spooled struct{ f *os.File }

func (s spooled) Write(p []byte) (int, error) {
	n, err := s.f.Write(p)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrSpool, err)
	}
	return n, err
}

// hand calls fn with the content.
func (r *imagesReader) hand(d *imageDir, content io.Reader) error {
	info, err := d.info()
	if err != nil {
		return fmt.Errorf("images: %w: image %s: %w", ErrPayload, d.digest, err)
	}
	d.handed = true
	var n metered.Counter
	body := io.TeeReader(content, &n)
	if err := r.fn(info, body); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, body); err != nil {
		return fmt.Errorf("images: %w", err)
	}
	if int64(n) != d.size {
		return fmt.Errorf("images: %w: image %s: %d bytes, %d were announced", ErrPayload, d.digest, n, d.size)
	}
	return nil
}

// info returns what the texts say about the image.
func (d *imageDir) info() (ImageInfo, error) {
	for _, name := range []string{memberURLNew, memberURLCurrent, memberSumNew, memberSumCurrent} {
		if _, ok := d.texts[name]; !ok {
			return ImageInfo{}, fmt.Errorf("%s is missing", name)
		}
	}
	info := ImageInfo{
		Digest:     d.digest,
		URLNew:     d.texts[memberURLNew],
		URLCurrent: d.texts[memberURLCurrent],
		Size:       d.size,
	}
	if err := CheckURL(info.URLNew); err != nil {
		return info, fmt.Errorf("%s: %w", memberURLNew, err)
	}
	if err := CheckURL(info.URLCurrent); err != nil {
		return info, fmt.Errorf("%s: %w", memberURLCurrent, err)
	}
	var err error
	if info.SumNew, err = sum(d.texts[memberSumNew]); err != nil {
		return info, fmt.Errorf("%s: %w", memberSumNew, err)
	}
	if info.SumNew != d.digest {
		return info, fmt.Errorf("%s: it is %s", memberSumNew, info.SumNew)
	}
	if s := d.texts[memberSumCurrent]; s != "" && s != "none" {
		if info.SumCurrent, err = sum(s); err != nil {
			return info, fmt.Errorf("%s: %w", memberSumCurrent, err)
		}
	}
	switch {
	case d.several:
		if d.deep {
			return info, fmt.Errorf("%s beside variants", memberDeepDelta)
		}
		info.Kind, info.Variant = KindDelta, variantOf(d.content)
		switch d.content {
		case memberShared:
			info.Kind = KindShared
		case memberImage:
			info.Kind, info.Variant = KindFull, -1
		}
	case d.content == memberDelta && d.deep:
		return info, fmt.Errorf("%s beside %s", memberDeepDelta, memberDelta)
	case d.content == memberDelta:
		info.Kind = KindDelta
	case info.URLNew == info.URLCurrent && d.deep:
		return info, fmt.Errorf("a deep delta of an image against itself")
	case info.URLNew == info.URLCurrent:
		info.Kind = KindFull
	case d.deep:
		info.Kind = KindReferenceDeepDelta
	default:
		info.Kind = KindReferenceDelta
	}
	return info, nil
}

// sum reads a digest as the shell reference writes it: with or without "sha256:".
func sum(s string) (image.Digest, error) {
	return digest.FromHex(strings.TrimPrefix(s, "sha256:"))
}

// end finishes the current image: it has no more members.
func (r *imagesReader) end() error {
	d := r.cur
	if d == nil {
		return nil
	}
	if d.several && !d.handed {
		return fmt.Errorf("images: %w: image %s: the variant for this device is missing", ErrPayload, d.digest)
	}
	if d.content == "" {
		return fmt.Errorf("images: %w: image %s: neither %s nor %s", ErrPayload, d.digest, memberImage, memberDelta)
	}
	if d.spool != nil {
		if _, err := d.spool.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("images: %w: %w", ErrSpool, err)
		}
		if err := r.hand(d, d.spool); err != nil {
			return err
		}
	}
	r.discard()
	r.done[d.digest] = true
	r.cur = nil
	return nil
}

// discard frees the space of the current image's spool.
func (r *imagesReader) discard() {
	if r.cur != nil && r.cur.spool != nil {
		r.cur.spool.Close()
		r.cur.spool = nil
	}
}
