package mender

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/mender-app/mender-app/artifact/strictjson"
)

// ReplaceMetaData writes an artifact again with other meta-data, signed with the key of the
// options, whose compression is not used. Everything else stays, byte for byte. The artifact
// is read to its end first, so only a whole one is signed. It must not change meanwhile: its
// payload is not compared again.
func ReplaceMetaData(w io.Writer, artifact io.ReadSeeker, metaData []byte, o Options) error {
	r, err := NewReader(artifact, ReadOptions{})
	if err != nil {
		return err
	}
	for err == nil {
		_, err = r.Next()
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	if err := strictjson.Check(metaData); err != nil {
		return malformed("meta-data", err)
	}
	if len(metaData) > maxMetaData {
		return fmt.Errorf("%w: meta-data of %d bytes", ErrTooLarge, len(metaData))
	}
	if _, err := artifact.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if o.ModTime.IsZero() {
		o.ModTime = time.Unix(0, 0)
	}
	o.Compression = r.header.Compression
	aw := &writer{o: o, tw: tar.NewWriter(w)}
	if err := aw.copyOf(artifact, metaData); err != nil {
		return fmt.Errorf("write Mender Artifact: %w", err)
	}
	return aw.tw.Close()
}

// copyOf copies an artifact that was verified.
func (w *writer) copyOf(artifact io.Reader, metaData []byte) error {
	in := tar.NewReader(artifact)
	parts := map[string][]byte{}
	for {
		h, err := in.Next()
		if err != nil {
			return err
		}
		if !strings.HasPrefix(h.Name, nameHeader) {
			if parts[h.Name], err = io.ReadAll(in); err != nil {
				return err
			}
			continue
		}
		header, err := w.headerCopy(in, metaData)
		if err != nil {
			return err
		}
		if err := w.front(parts, h.Name, header); err != nil {
			return err
		}
		break
	}
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := w.tw.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(w.tw, in); err != nil {
			return err
		}
	}
}

// front writes what comes before the payload.
func (w *writer) front(parts map[string][]byte, headerName string, header []byte) error {
	var manifest strings.Builder
	for line := range strings.Lines(string(parts[nameManifest])) {
		if strings.HasSuffix(line, "  "+headerName+"\n") {
			line = sumOf(header) + "  " + headerName + "\n"
		}
		manifest.WriteString(line)
	}
	sig, err := w.o.Signature([]byte(manifest.String()))
	if err != nil {
		return err
	}
	if err := w.member(nameVersion, parts[nameVersion]); err != nil {
		return err
	}
	if err := w.member(nameManifest, []byte(manifest.String())); err != nil {
		return err
	}
	if sig != nil {
		if err := w.member(nameSignature, base64.StdEncoding.AppendEncode(nil, sig)); err != nil {
			return err
		}
	}
	return w.member(headerName, header)
}

// headerCopy is header.tar, compressed, with other meta-data.
func (w *writer) headerCopy(r io.Reader, metaData []byte) ([]byte, error) {
	z, err := decompress(r, w.o.Compression)
	if err != nil {
		return nil, err
	}
	defer z.Close()
	var out bytes.Buffer
	zw, err := compress(&out, w.o.Compression, gzip.DefaultCompression)
	if err != nil {
		return nil, err
	}
	in, tw := tar.NewReader(z), tar.NewWriter(zw)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if h.Name == nameMetaData {
			h = w.head(nameMetaData, int64(len(metaData)))
		}
		if err := tw.WriteHeader(h); err != nil {
			return nil, err
		}
		if h.Name == nameMetaData {
			_, err = tw.Write(metaData)
		} else {
			_, err = io.Copy(tw, in)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := errors.Join(tw.Close(), zw.Close()); err != nil {
		return nil, err
	}
	if out.Len() > maxHeader {
		return nil, fmt.Errorf("%w: a header of %d bytes", ErrTooLarge, out.Len())
	}
	return out.Bytes(), nil
}
