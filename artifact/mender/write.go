package mender

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/mender-app/mender-app/artifact/internal/xz"
	"github.com/mender-app/mender-app/artifact/scratch"
	"github.com/mender-app/mender-app/artifact/strictjson"
)

// The names of an artifact's members.
const (
	nameVersion   = "version"
	nameManifest  = "manifest"
	nameSignature = "manifest.sig"
	nameHeader    = "header.tar"
	nameData      = "data/0000.tar"
	dataDir       = "data/0000/" // of the payload's files, in the manifest
	nameInfo      = "header-info"
	nameTypeInfo  = "headers/0000/type-info"
	nameMetaData  = "headers/0000/meta-data"
	scriptsDir    = "scripts/"
)

const versionFile = `{"format":"mender","version":3}`

// Write writes an artifact to w. The same spec and options give the same bytes,
// except for an ECDSA signature, which differs each time. Compressed data goes to a
// file in TempDir first, because a tar needs the size before the data. Without
// compression there are no temporary files. Memory does not grow with the files.
func Write(w io.Writer, spec Spec, o Options) error {
	if o.Compression == "" {
		o.Compression = None
	}
	if !slices.Contains(Compressions, o.Compression) {
		return fmt.Errorf("write Mender Artifact: %w: compression %q", ErrUnsupported, o.Compression)
	}
	if o.ModTime.IsZero() {
		o.ModTime = time.Unix(0, 0)
	}
	aw := &writer{spec: spec, o: o, tw: tar.NewWriter(w)}
	if err := aw.write(); err != nil {
		return fmt.Errorf("write Mender Artifact: %w", err)
	}
	return nil
}

type writer struct {
	spec Spec
	o    Options
	tw   *tar.Writer
	sums []string // hex SHA-256 of the files
}

func (w *writer) write() error {
	header, err := w.header()
	if err != nil {
		return err
	}
	manifest, err := w.manifest(header)
	if err != nil {
		return err
	}
	sig, err := w.o.Signature(manifest)
	if err != nil {
		return err
	}
	if err := w.member(nameVersion, []byte(versionFile)); err != nil {
		return err
	}
	if err := w.member(nameManifest, manifest); err != nil {
		return err
	}
	if sig != nil {
		if err := w.member(nameSignature, base64.StdEncoding.AppendEncode(nil, sig)); err != nil {
			return err
		}
	}
	if err := w.member(nameHeader+w.o.Compression.suffix(), header); err != nil {
		return err
	}
	if err := w.data(); err != nil {
		return err
	}
	return w.tw.Close()
}

// head is the header of a member of any of the tars.
func (w *writer) head(name string, size int64) *tar.Header {
	return &tar.Header{
		Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644,
		Uname: "root", Gname: "root", ModTime: w.o.ModTime,
	}
}

func (w *writer) member(name string, b []byte) error {
	if err := w.tw.WriteHeader(w.head(name, int64(len(b)))); err != nil {
		return err
	}
	_, err := w.tw.Write(b)
	return err
}

// header makes header.tar, compressed.
func (w *writer) header() ([]byte, error) {
	s := &w.spec
	info := headerInfo{
		Payloads: []payload{{&s.PayloadType}},
		Provides: headerProvides{s.Name, s.Group},
		Depends:  headerDepends{s.DependsNames, s.DeviceTypes, s.DependsGroups},
	}
	typ := typeInfo{Type: &s.PayloadType, Provides: s.Provides, Clears: s.ClearsProvides}
	for k, v := range s.Depends {
		if typ.Depends == nil {
			typ.Depends = make(map[string]oneMany)
		}
		typ.Depends[k] = oneMany(v)
	}
	if err := info.check(&typ); err != nil {
		return nil, err
	}
	members, err := w.headerMembers(info, typ)
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	zw, err := compress(&buf, w.o.Compression, gzip.DefaultCompression)
	if err != nil {
		return nil, err
	}
	tw := tar.NewWriter(zw)
	for _, m := range members {
		if err := tw.WriteHeader(m.head); err != nil {
			return nil, err
		}
		if _, err := tw.Write(m.data); err != nil {
			return nil, err
		}
	}
	if err := tw.Close(); err != nil {
		return nil, err
	}
	if err := zw.Close(); err != nil {
		return nil, err
	}
	if buf.Len() > maxHeader {
		return nil, fmt.Errorf("%w: a header of %d bytes", ErrTooLarge, buf.Len())
	}
	return buf.Bytes(), nil
}

type headerMember struct {
	head *tar.Header
	data []byte
}

// headerMembers lists the members of header.tar in mender-artifact's order.
func (w *writer) headerMembers(info headerInfo, typ typeInfo) (members []headerMember, err error) {
	add := func(name string, data []byte, most int) error {
		if len(data) > most {
			return fmt.Errorf("%w: %s of %d bytes", ErrTooLarge, name, len(data))
		}
		if err := strictjson.Check(data); err != nil {
			return malformed(path.Base(name), err)
		}
		members = append(members, headerMember{w.head(name, int64(len(data))), data})
		return nil
	}
	data, err := json.Marshal(info)
	if err == nil {
		err = add(nameInfo, data, maxInfo)
	}
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, s := range w.spec.Scripts {
		if err := s.Check(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrFormat, err)
		}
		if names[s.Name] {
			return nil, fmt.Errorf("%w: two scripts named %s", ErrFormat, s.Name)
		}
		names[s.Name] = true
		head := w.head(scriptsDir+s.Name, int64(len(s.Data)))
		head.Mode = 0o755
		members = append(members, headerMember{head, s.Data})
	}
	if data, err = json.Marshal(typ); err == nil {
		err = add(nameTypeInfo, data, maxInfo)
	}
	if err != nil || w.spec.MetaData == nil {
		return members, err
	}
	if !json.Valid(w.spec.MetaData) || bytes.TrimSpace(w.spec.MetaData)[0] != '{' {
		return nil, fmt.Errorf("%w: the meta-data is not a JSON object", ErrFormat)
	}
	return members, add(nameMetaData, w.spec.MetaData, maxMetaData)
}

// manifest hashes all parts and lists them, sorted by name.
func (w *writer) manifest(header []byte) ([]byte, error) {
	if len(w.spec.Files) > maxFiles {
		return nil, fmt.Errorf("%w: %d files", ErrTooLarge, len(w.spec.Files))
	}
	line := func(name, sum string) string { return sum + "  " + name + "\n" }
	lines := []string{
		line(nameVersion, sumOf([]byte(versionFile))),
		line(nameHeader+w.o.Compression.suffix(), sumOf(header)),
	}
	seen := make(map[string]bool)
	for _, f := range w.spec.Files {
		if err := checkFileName(f.Name); err != nil {
			return nil, err
		}
		if seen[f.Name] {
			return nil, fmt.Errorf("%w: two files named %q", ErrFormat, f.Name)
		}
		seen[f.Name] = true
		h := sha256.New()
		if err := f.copyTo(h); err != nil {
			return nil, err
		}
		sum := hex.EncodeToString(h.Sum(nil))
		w.sums = append(w.sums, sum)
		lines = append(lines, line(dataDir+f.Name, sum))
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[64:], b[64:]) })
	return []byte(strings.Join(lines, "")), nil
}

// copyTo writes the file, of exactly the announced size, to w.
func (f *File) copyTo(w io.Writer) error {
	r, err := f.Open()
	if err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	n, err := io.Copy(w, io.LimitReader(r, f.Size))
	if err == nil && n == f.Size {
		var extra [1]byte
		m, _ := io.ReadFull(r, extra[:])
		n += int64(m)
	}
	if cerr := r.Close(); err == nil {
		err = cerr
	}
	if err == nil && n != f.Size {
		err = fmt.Errorf("it does not have the %d bytes announced", f.Size)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	return nil
}

// data writes the payload. The size of compressed data is not known in advance, so it
// goes to a temporary file first.
func (w *writer) data() error {
	name := nameData + w.o.Compression.suffix()
	if w.o.Compression == None {
		size, err := w.dataSize()
		if err != nil {
			return err
		}
		if err := w.tw.WriteHeader(w.head(name, size)); err != nil {
			return err
		}
		return w.dataTar(w.tw)
	}
	tmp, err := scratch.Unnamed(w.o.TempDir)
	if err != nil {
		return err
	}
	defer tmp.Close()
	// The files of a payload are compressed already, so a fast level is enough.
	zw, err := compress(tmp, w.o.Compression, gzip.BestSpeed)
	if err != nil {
		return err
	}
	if err := w.dataTar(zw); err != nil {
		return err
	}
	if err := zw.Close(); err != nil {
		return err
	}
	size, err := tmp.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	if _, err := tmp.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := w.tw.WriteHeader(w.head(name, size)); err != nil {
		return err
	}
	_, err = io.Copy(w.tw, tmp)
	return err
}

func (w *writer) dataSize() (int64, error) {
	size := int64(1024) // the zero blocks at the end
	for _, f := range w.spec.Files {
		var head bytes.Buffer // larger than one block if it needs a pax header
		if err := tar.NewWriter(&head).WriteHeader(w.head(f.Name, f.Size)); err != nil {
			return 0, err
		}
		size += int64(head.Len()) + f.Size + -f.Size&511
	}
	return size, nil
}

func (w *writer) dataTar(dst io.Writer) error {
	tw := tar.NewWriter(dst)
	for i, f := range w.spec.Files {
		if err := tw.WriteHeader(w.head(f.Name, f.Size)); err != nil {
			return err
		}
		h := sha256.New()
		if err := f.copyTo(io.MultiWriter(tw, h)); err != nil {
			return err
		}
		if hex.EncodeToString(h.Sum(nil)) != w.sums[i] {
			return fmt.Errorf("%s: it changed while it was read", f.Name)
		}
	}
	return tw.Close()
}

func sumOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// compress writes compressed content to w.
func compress(w io.Writer, c Compression, level int) (io.WriteCloser, error) {
	switch c {
	case Gzip:
		return gzip.NewWriterLevel(w, level)
	case LZMA:
		return xz.NewWriter(w)
	case Zstd:
		return zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20))
	}
	return nopCloser{w}, nil
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }
