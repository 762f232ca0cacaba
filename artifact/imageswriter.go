package artifact

import (
	"archive/tar"
	"fmt"
	"io"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/metered"
)

// ImagesWriter writes an images payload.
type ImagesWriter struct {
	gz   *members
	tw   *tar.Writer
	seen map[image.Digest]bool
	last imageDir // what the last Add wrote
	// deltas: they are compressed.
	deltas bool
	err    error
}

// NewImagesWriter starts an images payload (tar.gz) on w. The same images
// added in the same order give the same bytes.
func NewImagesWriter(w io.Writer) *ImagesWriter {
	gz := newMembers(w)
	return &ImagesWriter{gz: gz, tw: tar.NewWriter(gz), seen: make(map[image.Digest]bool)}
}

// CompressBest compresses whole images as gzip -9 does, which makes them 6 % smaller and
// takes ten times as long. It is called before the first Add.
func (iw *ImagesWriter) CompressBest() { iw.gz.best = true }

// CompressDeltas compresses deltas too, for those whose new content is stored. It is
// called before the first Add.
func (iw *ImagesWriter) CompressDeltas() { iw.deltas = true }

// Add appends an image with its content, of exactly size bytes. It does not use
// info.Size. The kinds are KindFull, KindDelta and KindShared; with KindFull the
// fields of the current image may be empty. Full images are compressed. Deltas are
// compressed already, so they are stored, but for CompressDeltas. An image with several names is added once,
// with the first name. An image with variants is added once for each of its members:
// the shared content (KindShared), the deltas by their Variant, the full image with
// Variant -1. After an error the payload is useless, and Close returns the error
// again.
func (iw *ImagesWriter) Add(info ImageInfo, size int64, r io.Reader) error {
	if iw.err == nil {
		if err := iw.add(info, size, r); err != nil {
			iw.err = fmt.Errorf("images: image %s: %w", info.URLNew, err)
		}
	}
	return iw.err
}

func (iw *ImagesWriter) add(info ImageInfo, size int64, r io.Reader) error {
	if info.SumNew == "" {
		info.SumNew = info.Digest
	}
	if info.Kind == KindFull && info.URLCurrent == "" {
		info.URLCurrent, info.SumCurrent = info.URLNew, info.SumNew
	}
	d := imageDir{digest: info.Digest, size: size, content: memberImage, texts: map[string]string{
		memberURLNew:     info.URLNew,
		memberURLCurrent: info.URLCurrent,
		memberSumNew:     info.SumNew.Hex(),
		memberSumCurrent: info.SumCurrent.Hex(),
	}}
	several := info.Kind == KindShared || info.Variant != 0
	switch {
	case info.Kind == KindShared:
		d.content = memberShared
	case info.Kind == KindDelta && info.Variant > 0:
		d.content = memberVariant(info.Variant)
	case info.Kind == KindDelta:
		d.content = memberDelta
	}
	more := several && iw.last.several && iw.last.digest == info.Digest
	if several {
		before := d
		if before.content = ""; more {
			before = iw.last
		}
		if err := before.next(d.content); err != nil {
			return err
		}
		d.several = true
	}
	// The reader must read back what was asked for.
	got, err := d.info()
	if err != nil {
		return err
	}
	if got.Kind != info.Kind || info.Kind != KindFull && info.Kind != KindDelta && info.Kind != KindShared {
		return fmt.Errorf("a %s cannot be written from %q to %q", info.Kind, info.URLCurrent, info.URLNew)
	}
	if iw.seen[info.Digest] && !more {
		return fmt.Errorf("image %s is there already", info.Digest)
	}
	iw.seen[info.Digest] = true
	iw.last = d

	dir := imagesDir + "/" + info.Digest.Hex() + "/"
	iw.gz.mark()
	if err := iw.gz.next(gzip.DefaultCompression); err != nil {
		return err
	}
	for _, name := range []string{memberURLNew, memberURLCurrent, memberSumNew, memberSumCurrent} {
		if more {
			break // the first member brought the texts
		}
		text := d.texts[name] + "\n"
		if err := iw.tw.WriteHeader(fileHeader(dir+name, int64(len(text)))); err != nil {
			return err
		}
		if _, err := io.WriteString(iw.tw, text); err != nil {
			return err
		}
	}
	if err := iw.tw.WriteHeader(fileHeader(dir+d.content, size)); err != nil {
		return err
	}
	if info.Kind != KindFull && !iw.deltas {
		if err := iw.gz.next(gzip.NoCompression); err != nil {
			return err
		}
	}
	if _, err := io.CopyN(iw.tw, r, size); err != nil {
		if err == io.EOF {
			err = fmt.Errorf("fewer than the %d bytes announced: %w", size, io.ErrUnexpectedEOF)
		}
		return err
	}
	var extra [1]byte
	if n, err := io.ReadFull(r, extra[:]); n > 0 || err != io.EOF {
		if n > 0 {
			err = fmt.Errorf("more than the %d bytes announced", size)
		}
		return err
	}
	return iw.tw.Flush()
}

// Close ends the payload. It does not close the underlying writer.
func (iw *ImagesWriter) Close() error {
	if iw.err != nil {
		return iw.err
	}
	iw.err = fmt.Errorf("images: the payload is closed")
	if err := iw.gz.next(gzip.DefaultCompression); err != nil {
		return err
	}
	if err := iw.tw.Close(); err != nil {
		return err
	}
	return iw.gz.Close()
}

// Sent returns how many bytes of the payload each Add took, in order. After
// Close their sum is the payload's size. The boundary between two deltas is exact.
// The last compressed block of a full image has at most 64 KiB of content and also
// contains the beginning of the next image: its bytes are divided in proportion.
func (iw *ImagesWriter) Sent() []int64 {
	sent := make([]int64, len(iw.gz.starts))
	for i, start := range iw.gz.starts {
		end := int64(iw.gz.sent)
		if i+1 < len(sent) {
			end = iw.gz.starts[i+1]
		}
		sent[i] = end - start
	}
	return sent
}

// UnpackedSize returns the number of bytes of the tar so far. After Close it is
// the value for Sizes.ImagesPayload.
func (iw *ImagesWriter) UnpackedSize() int64 { return iw.gz.n }

// members writes several gzip members, each with its own level. Readers see one
// stream. The headers have no name and no time.
type members struct {
	w     io.Writer
	sent  metered.Counter // bytes written to w
	gz    io.WriteCloser
	level int
	best  bool  // level is DefaultCompression: as gzip -9
	n     int64 // bytes written, uncompressed

	marks  []int64 // uncompressed offsets whose compressed ones are not known yet
	starts []int64 // compressed offsets of the marks
	// When the compressor had written out bytes, they held the first in bytes of
	// its input.
	in, out int64
}

func newMembers(w io.Writer) *members {
	m := new(members)
	m.w = io.MultiWriter(w, &m.sent)
	return m
}

// next sets the level for all later writes.
func (m *members) next(level int) (err error) {
	if m.gz != nil && m.level == level {
		return nil
	}
	if err := m.Close(); err != nil {
		return err
	}
	m.level = level
	if m.best && level == gzip.DefaultCompression {
		m.gz = newBestGzip(m.w)
		return nil
	}
	m.gz, err = gzip.NewWriterLevel(m.w, level)
	return err
}

// settleEvery is how many bytes the compressor gets at a time. A smaller number
// makes the offsets of marks more exact.
const settleEvery = 4 << 10

func (m *members) Write(p []byte) (int, error) {
	for done := 0; ; {
		piece := p[done:min(len(p), done+settleEvery)]
		n, err := m.gz.Write(piece)
		m.n += int64(n)
		done += n
		if m.n > m.in {
			m.settle(m.n)
		}
		if err != nil || done == len(p) {
			return done, err
		}
	}
}

func (m *members) Close() error {
	if m.gz == nil {
		return nil
	}
	err := m.gz.Close()
	m.settle(m.n + 1)
	return err
}

// mark starts an entry. Its compressed offset will be in starts.
func (m *members) mark() { m.marks = append(m.marks, m.n) }

// settle finds the compressed offsets of the marks before end, if the
// compressor has written something since the last call.
func (m *members) settle(end int64) {
	sent := int64(m.sent)
	if sent == m.out {
		return
	}
	for len(m.marks) > 0 && m.marks[0] < end {
		at := sent
		if m.marks[0] < m.n {
			at = m.out + int64(float64(sent-m.out)*float64(m.marks[0]-m.in)/float64(m.n-m.in))
		}
		m.starts, m.marks = append(m.starts, at), m.marks[1:]
	}
	m.in, m.out = m.n, sent
}

func fileHeader(name string, size int64) *tar.Header {
	return &tar.Header{
		Typeflag: tar.TypeReg,
		Name:     name,
		Size:     size,
		Mode:     0o644,
		Uname:    "root",
		Gname:    "root",
		ModTime:  time.Unix(0, 0),
	}
}
