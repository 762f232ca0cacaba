package codec

import (
	"cmp"
	"hash/fnv"
	"io"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/internal/readahead"
	"github.com/mender-app/mender-app/delta/internal/script"
)

// The decoder may read at most ReadBase bytes of old content, and ReadShare times
// the size of the objects and of the old content (FORMAT.md, "Work"). Old content
// counts when it is read for the first time: the sizes in the head are only claims.
// Reading a small stream of an old archive takes 4 KiB and makes at least MinStream
// bytes, which is half of the share.
const (
	ReadBase  = 1 << 20
	ReadShare = 32
	// maxRemembered is how many old files are remembered.
	maxRemembered = 1 << 14
)

// maxCounted bounds the sizes that are multiplied by ReadShare.
const maxCounted = 1 << 56

// ReadLimit returns how many bytes of old content a delta may read: objects and
// bases are the sizes of all of its objects and bases.
func ReadLimit(objects, bases int64) int64 {
	return ReadBase + ReadShare*(min(objects, maxCounted/2)+min(bases, maxCounted/2))
}

// fileKey is a hash of a base's digest and a path in it. If two files have the same
// key, a good delta may be refused, but a wrong object never results.
type fileKey uint64

// remembered is an old file that was read before.
type remembered struct {
	size int64
	crc  uint32
	sum  bool // whether crc is known
}

// reads counts the bytes of old content that are read, and remembers the files.
type reads struct {
	limit, read int64
	files       map[fileKey]remembered
	headers     map[delta.Digest]uint64 // how many headers were read at least once
	more        int64                   // bytes that were read ahead and not asked for
	spare       *readahead.Reader       // of a file that was closed
}

func newReads(objects int64) reads {
	return reads{limit: ReadLimit(objects, 0), files: map[fileKey]remembered{}, headers: map[delta.Digest]uint64{}}
}

// charge counts bytes that are about to be read.
func (r *reads) charge(n int64) error {
	r.read += n
	if r.read > r.limit {
		return delta.ErrTooMuchRead
	}
	return nil
}

// exceeded reports whether the delta wanted to read more than the limit.
func (r *reads) exceeded() bool { return r.read > r.limit }

// allow raises the limit for old content that is read for the first time.
func (r *reads) allow(n int64) {
	r.limit += ReadShare * min(n, maxCounted)
	if r.limit < 0 {
		r.limit = 1<<63 - 1
	}
}

// opened raises the limit for a file that is opened for the first time.
func (r *reads) opened(k fileKey, size int64) {
	if _, known := r.files[k]; known || len(r.files) == maxRemembered {
		return
	}
	r.files[k] = remembered{size: size}
	r.allow(size)
}

// learn remembers the checksum of a file.
func (r *reads) learn(k fileKey, size int64, crc uint32) {
	if _, known := r.files[k]; known {
		r.files[k] = remembered{size, crc, true}
	}
}

// checksum returns the CRC of a file of size bytes, if it is remembered.
func (r *reads) checksum(k fileKey, size int64) (uint32, bool) {
	f := r.files[k]
	return f.crc, f.sum && f.size == size
}

func (c *oldChecks) key(src script.Source) fileKey {
	h := fnv.New64a()
	_, _ = io.WriteString(h, string(c.bases[src.Base].Digest))
	_, _ = io.WriteString(h, "/"+src.Path)
	return fileKey(h.Sum64())
}

// countedFile is an old file whose reads count.
type countedFile struct {
	delta.File
	reads *reads
	ahead *readahead.Reader
}

// counted makes the reads of a file count.
func (r *reads) counted(f delta.File) countedFile {
	ahead := cmp.Or(r.spare, new(readahead.Reader))
	r.spare = nil
	ahead.Reset(f, f.Size())
	return countedFile{f, r, ahead}
}

// Close closes the file. Its memory for reading ahead is for the next file.
func (f countedFile) Close() error {
	f.reads.spare = f.ahead
	return f.File.Close()
}

// ReadAt may read ahead. That counts too, so it must not use up what the delta may read:
// it gets one part in ReadShare of it.
func (f countedFile) ReadAt(b []byte, off int64) (int, error) {
	r := f.reads
	if err := r.charge(int64(len(b))); err != nil {
		return 0, err
	}
	if r.more > r.limit/ReadShare-readahead.Size || r.read > r.limit-readahead.Size {
		return f.File.ReadAt(b, off)
	}
	before := f.ahead.Taken
	n, err := f.ahead.ReadAt(b, off)
	more := max(0, f.ahead.Taken-before-int64(len(b)))
	r.more += more
	r.read += more
	return n, err
}

// countedHeaders are old headers whose reads count.
type countedHeaders struct {
	delta.HeaderReader
	reads *reads
	in    delta.Digest
	n     uint64
}

func (h *countedHeaders) Next() ([]byte, error) {
	b, err := h.HeaderReader.Next()
	if err != nil {
		return b, err
	}
	n := int64(len(b))
	if h.n++; h.n > h.reads.headers[h.in] {
		h.reads.headers[h.in] = h.n
		h.reads.allow(n)
	}
	return b, h.reads.charge(n)
}
