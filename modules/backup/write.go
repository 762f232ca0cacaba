package backup

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/mender-app/mender-app/artifact/digest"
)

// Writer writes a backup.
type Writer struct {
	zw      *zstd.Encoder
	tw      *tar.Writer
	now     time.Time
	members []Member
}

// NewWriter begins a backup, which is complete once Close returns nil. now is the time of
// all members.
func NewWriter(w io.Writer, now time.Time) (*Writer, error) {
	// Most of it is compressed already.
	zw, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(window),
		zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, err
	}
	return &Writer{zw: zw, tw: tar.NewWriter(zw), now: now}, nil
}

// Add writes a member of exactly size bytes.
func (w *Writer) Add(name string, size int64, write func(io.Writer) error) error {
	if err := w.tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, ModTime: w.now}); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	sum := sha256.New()
	if err := write(io.MultiWriter(w.tw, sum)); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := w.tw.Flush(); err != nil { // fewer bytes than size
		return fmt.Errorf("%s: %w", name, err)
	}
	w.members = append(w.members, Member{name, size, digest.OfHash(sum)})
	return nil
}

// AddJSON writes a member that is JSON.
func (w *Writer) AddJSON(name string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if len(text) > maxJSON {
		return fmt.Errorf("%s is larger than %d bytes", name, maxJSON)
	}
	return w.Add(name, int64(len(text)), func(out io.Writer) error {
		_, err := io.Copy(out, bytes.NewReader(text))
		return err
	})
}

// Close writes the index. It does not close the underlying writer.
func (w *Writer) Close() error {
	if err := w.AddJSON(nameIndex, index{Format, w.members}); err != nil {
		return err
	}
	return errors.Join(w.tw.Close(), w.zw.Close())
}

// Abort gives up a backup.
func (w *Writer) Abort() { _ = w.zw.Close() }
