package mender

import (
	"archive/tar"
	"bytes"
	"crypto"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/internal/tarin"
	"github.com/mender-app/mender-app/artifact/internal/xz"
	"github.com/mender-app/mender-app/artifact/strictjson"
)

// ReadOptions are the requirements of a reader.
type ReadOptions struct {
	// PublicKeys: one of them must have signed the artifact. Without keys the
	// signature is ignored.
	PublicKeys []crypto.PublicKey
	// Refused, if set, gets the error of a missing or wrong signature, and reading goes on.
	// Anybody may have written the artifact then.
	Refused func(error)
}

// refuse returns the error of a signature, or passes it to Refused.
func (o ReadOptions) refuse(err error) error {
	if err == nil || o.Refused == nil {
		return err
	}
	o.Refused(err)
	return nil
}

// Header has the metadata of an artifact.
type Header struct {
	Name           string
	Group          string
	DeviceTypes    []string
	DependsNames   []string
	DependsGroups  []string
	PayloadType    string
	Provides       map[string]string
	Depends        map[string][]string
	ClearsProvides []string
	MetaData       []byte // as it is in the artifact; nil if there is none or it is empty
	Signed         bool   // there is a signature; it was verified only if keys were given
	// SignedBy is the key of ReadOptions.PublicKeys that verified the signature;
	// nil without keys.
	SignedBy crypto.PublicKey
	Scripts  []string // names of the state scripts it brings
	// ScriptSums are the SHA-256 of the state scripts, by their names.
	ScriptSums map[string]digest.Digest

	HeaderInfo  []byte // the JSON as it is in the artifact
	TypeInfo    []byte // the JSON as it is in the artifact
	Compression Compression
}

// FileInfo is one file of the payload.
type FileInfo struct {
	Name   string
	Size   int64
	Digest string // the SHA-256 the manifest gives, in hex
}

// Reader reads an artifact from a stream.
type Reader struct {
	outer    *tarin.Reader
	manifest map[string]string // name → hex SHA-256
	header   Header

	data  *tarin.Reader // the payload's tar
	z     io.Closer     // its decompressor
	files map[string]bool
	cur   *file
	err   error // what Next returns on later calls
}

// file is the file of the payload that is being read.
type file struct {
	info FileInfo
	hash hash.Hash
	err  error // what Read returns on later calls
}

// NewReader reads the artifact up to its data. When it returns, it has verified the
// manifest's signature (if there are keys) and the header's checksum. Memory stays
// below 16 MiB for any artifact. An artifact compressed with zstd also needs its
// window: 1 MiB in ours, 32 MiB at most.
func NewReader(r io.Reader, o ReadOptions) (*Reader, error) {
	ar := &Reader{files: make(map[string]bool)}
	if err := ar.open(r, o); err != nil {
		return nil, err
	}
	return ar, nil
}

// Header returns the metadata of the artifact. The caller must not change it.
func (r *Reader) Header() *Header { return &r.header }

func (r *Reader) open(src io.Reader, o ReadOptions) (err error) {
	r.outer, err = tarin.NewReader(src, tarin.Options{
		Plain: true, MaxBytes: math.MaxInt64 / 2, MaxMembers: 16, Format: ErrFormat, TooLarge: ErrTooLarge,
	})
	if err != nil {
		return err
	}
	version, err := r.small(nameVersion, maxVersion)
	if err != nil {
		return err
	}
	manifest, err := r.small(nameManifest, maxManifest)
	if err != nil {
		return err
	}
	h, err := r.member()
	if err != nil {
		return err
	}
	if h.Name == nameSignature {
		r.header.Signed = true
		sig, err := r.content(h, maxSignature)
		if err != nil {
			return err
		}
		r.header.SignedBy, err = checkSignature(o.PublicKeys, manifest, sig)
		if err := o.refuse(err); err != nil {
			return err
		}
		if h, err = r.member(); err != nil {
			return err
		}
	} else if len(o.PublicKeys) > 0 {
		if err := o.refuse(fmt.Errorf("%w: it is not signed", ErrSignature)); err != nil {
			return err
		}
	}
	// The signature is checked before any content is read. Only the structure of
	// the tar is read before.
	if err := r.parseManifest(manifest); err != nil {
		return err
	}
	if err := r.checkVersion(version); err != nil {
		return err
	}
	if err := r.readHeader(h); err != nil {
		return err
	}
	return r.openData()
}

// checkSignature returns the key that a signature, in base64, was made with; nil
// if there are no keys.
func checkSignature(keys []crypto.PublicKey, manifest, encoded []byte) (crypto.PublicKey, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	sig, err := base64.StdEncoding.AppendDecode(nil, encoded)
	if err != nil {
		return nil, fmt.Errorf("%w: it is not base64", ErrSignature)
	}
	for _, key := range keys {
		if verify(key, manifest, sig) == nil {
			return key, nil
		}
	}
	return nil, fmt.Errorf("%w: it is signed, but not by a key that is trusted", ErrSignature)
}

// member goes to the next member of the artifact. A missing one is an error.
func (r *Reader) member() (*tar.Header, error) {
	h, err := r.outer.Next()
	if err == io.EOF {
		return nil, fmt.Errorf("%w: it ends too early", ErrFormat)
	}
	if err != nil {
		return nil, err
	}
	if h.Typeflag != tar.TypeReg {
		return nil, fmt.Errorf("%w: member %q is not a file", ErrFormat, h.Name)
	}
	return h, nil
}

// small reads the next member, which must have the name.
func (r *Reader) small(name string, most int64) ([]byte, error) {
	h, err := r.member()
	if err != nil {
		return nil, err
	}
	if h.Name != name {
		return nil, fmt.Errorf("%w: %q where %q should be", ErrFormat, h.Name, name)
	}
	return r.content(h, most)
}

func (r *Reader) content(h *tar.Header, most int64) ([]byte, error) {
	if h.Size > most {
		return nil, fmt.Errorf("%w: %s of %d bytes", ErrTooLarge, h.Name, h.Size)
	}
	return io.ReadAll(r.outer)
}

func (r *Reader) parseManifest(b []byte) error {
	r.manifest = make(map[string]string)
	if !bytes.HasSuffix(b, []byte("\n")) {
		return fmt.Errorf("%w: manifest: its last line has no end", ErrFormat)
	}
	for line := range strings.Lines(string(b)) {
		sum, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if _, err := hex.DecodeString(sum); !ok || err != nil || len(sum) != 64 || strings.ToLower(sum) != sum || r.manifest[name] != "" {
			return fmt.Errorf("%w: manifest: malformed line %q", ErrFormat, line[:min(len(line), 200)])
		}
		r.manifest[name] = sum
		if len(r.manifest) > maxFiles+2 {
			return fmt.Errorf("%w: more than %d files", ErrTooLarge, maxFiles)
		}
		if name == nameVersion || strings.HasPrefix(name, nameHeader) {
			continue
		}
		file, ok := strings.CutPrefix(name, dataDir)
		if !ok && strings.HasPrefix(name, "data/") {
			return fmt.Errorf("%w: several payloads", ErrUnsupported)
		}
		if !ok {
			return fmt.Errorf("%w: manifest: unknown part %q", ErrFormat, name[:min(len(name), 100)])
		}
		if err := checkFileName(file); err != nil {
			return err
		}
	}
	return nil
}

// expect compares a part's checksum with the manifest's.
func (r *Reader) expect(name string, sum []byte) error {
	if want := r.manifest[name]; want == "" {
		return fmt.Errorf("%w: %s is not in the manifest", ErrFormat, name)
	} else if hex.EncodeToString(sum) != want {
		return fmt.Errorf("%w: %s", ErrChecksum, name)
	}
	return nil
}

func (r *Reader) checkVersion(b []byte) error {
	var v struct {
		Format  string `json:"format"`
		Version int    `json:"version"`
	}
	if err := strictjson.Unmarshal(b, &v); err != nil {
		return malformed("version", err)
	}
	if v.Format != "mender" {
		return fmt.Errorf("%w: the version file is of another format", ErrFormat)
	}
	if v.Version != 3 {
		return fmt.Errorf("%w: version %d of the format", ErrUnsupported, v.Version)
	}
	sum := sha256.Sum256(b)
	return r.expect(nameVersion, sum[:])
}

func (r *Reader) openData() error {
	h, err := r.member()
	if err != nil {
		return err
	}
	c, err := compression(h.Name, nameData)
	if err != nil {
		return err
	}
	z, err := decompress(r.outer, c)
	if err != nil {
		return err
	}
	r.z = z
	r.data, err = tarin.NewReader(z, tarin.Options{
		Plain: true, MaxBytes: math.MaxInt64 / 2, MaxMembers: maxFiles, Format: ErrFormat, TooLarge: ErrTooLarge,
	})
	return err
}

// Next reads and verifies the rest of the current file, and goes to the next file
// of the payload. After the last file it reads the artifact to its end. It returns
// io.EOF if the artifact has every file of the manifest and no other. Only then is
// the artifact whole.
func (r *Reader) Next() (*FileInfo, error) {
	if r.err != nil {
		return nil, r.err
	}
	info, err := r.next()
	if err != nil {
		r.err, r.cur = err, nil
		r.z.Close()
	}
	return info, err
}

func (r *Reader) next() (*FileInfo, error) {
	if r.cur != nil {
		if _, err := io.Copy(io.Discard, r); err != nil {
			return nil, err
		}
	}
	h, err := r.data.Next()
	if err == io.EOF {
		return nil, r.end()
	}
	if err != nil {
		return nil, err
	}
	if err := checkFileName(h.Name); err != nil {
		return nil, err
	}
	sum := r.manifest[dataDir+h.Name]
	if h.Typeflag != tar.TypeReg || sum == "" || r.files[h.Name] {
		return nil, fmt.Errorf("%w: payload's file %q occurs twice, is not in the manifest, or is no file", ErrFormat, h.Name)
	}
	r.files[h.Name] = true
	r.cur = &file{info: FileInfo{h.Name, h.Size, sum}, hash: sha256.New()}
	info := r.cur.info
	return &info, nil
}

// Read reads the current file. At its end it returns io.EOF only if the file has
// the checksum of the manifest. Until then its bytes must not be trusted.
func (r *Reader) Read(p []byte) (int, error) {
	if r.cur == nil {
		if r.err != nil && r.err != io.EOF {
			return 0, r.err
		}
		return 0, io.EOF
	}
	if r.cur.err != nil {
		return 0, r.cur.err
	}
	n, err := r.data.Read(p)
	r.cur.hash.Write(p[:n])
	if err == io.EOF {
		if hex.EncodeToString(r.cur.hash.Sum(nil)) != r.cur.info.Digest {
			err = fmt.Errorf("%w: %s", ErrChecksum, r.cur.info.Name)
		}
	}
	r.cur.err = err
	return n, err
}

// end checks the artifact after the last file.
func (r *Reader) end() error {
	for name := range r.manifest {
		if file, ok := strings.CutPrefix(name, dataDir); ok && !r.files[file] {
			return fmt.Errorf("%w: payload's file %q is missing", ErrFormat, file)
		}
	}
	if len(r.manifest) != len(r.files)+2 { // the version and one header
		return fmt.Errorf("%w: the manifest names a part that is missing", ErrFormat)
	}
	h, err := r.outer.Next()
	if err == nil {
		if strings.HasPrefix(h.Name, "data/") {
			return fmt.Errorf("%w: several payloads", ErrUnsupported)
		}
		return fmt.Errorf("%w: %q after the payload", ErrFormat, h.Name)
	}
	return err // io.EOF, if all is well
}

// compression returns the compression of a tar by its name.
func compression(name, base string) (Compression, error) {
	suffix, ok := strings.CutPrefix(name, base)
	if !ok {
		if strings.Contains(name, "augment") {
			return "", fmt.Errorf("%w: an augmented artifact", ErrUnsupported)
		}
		return "", fmt.Errorf("%w: %q where %q should be", ErrFormat, name, base)
	}
	for _, c := range Compressions {
		if c.suffix() == suffix {
			return c, nil
		}
	}
	return "", fmt.Errorf("%w: compression %q", ErrUnsupported, suffix)
}

// maxWindow is the greatest window of zstd's levels without --ultra and --long, in
// bytes.
const maxWindow = 32 << 20

func decompress(r io.Reader, c Compression) (io.ReadCloser, error) {
	switch c {
	case Gzip:
		zr, err := gzip.NewReader(r)
		if err != nil {
			return nil, badCompression("gzip", err)
		}
		return zr, nil
	case LZMA:
		zr, err := xz.NewReader(r)
		if errors.Is(err, xz.ErrUnsupported) {
			return nil, fmt.Errorf("%w: %w", ErrUnsupported, err)
		}
		if err != nil {
			return nil, badCompression("lzma", err)
		}
		return zr, nil
	case Zstd:
		zr, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, badCompression("zstd", err)
		}
		return zr.IOReadCloser(), nil
	}
	return io.NopCloser(r), nil
}

// badCompression returns err as an ErrFormat, unless it already is one.
func badCompression(name string, err error) error {
	if errors.Is(err, ErrFormat) {
		return err
	}
	return fmt.Errorf("%w: %s: %w", ErrFormat, name, err)
}
