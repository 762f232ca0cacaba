package codec

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"hash"
	"hash/fnv"
	"strings"

	"github.com/mender-app/mender-app/delta/internal/script"
)

// Debian packages list the MD5 sums of their files (/var/lib/dpkg/info/*.md5sums:
// 32 hex digits, two blanks, the path without its leading slash). If a list comes
// after the files it names, the decoder has rebuilt them already and can compute
// the new sums.

const (
	sumsSuffix = ".md5sums"
	maxSums    = 1 << 14 // files remembered for one object
	sumDigits  = 2 * md5.Size
)

// HasSums reports whether a file of that name is a list of MD5 sums.
func HasSums(path string) bool { return strings.HasSuffix(path, sumsSuffix) }

// MaskSums blanks the sums, to find which lines correspond.
func MaskSums(path string, b []byte) {
	if HasSums(path) {
		eachSum(b, func(digits []byte, _ string) { clear(digits) })
	}
}

// md5Lists remembers the MD5 sums of an object's rebuilt files.
type md5Lists struct {
	used bool // the object has lists
	sums map[uint64][md5.Size]byte
	file hash.Hash // of the file that is being rebuilt, or nil
}

func (l *md5Lists) begin(used bool) { l.used, l.sums = used, map[uint64][md5.Size]byte{} }

func (l *md5Lists) end() { l.used, l.sums = false, nil }

// beginFile starts the sum of a file. It skips copies: they are verified only
// after their group, so no model may depend on their sums.
func (l *md5Lists) beginFile(op script.Op) {
	if l.used && !op.Copies() && len(l.sums) < maxSums {
		l.file = md5.New()
	}
}

func (l *md5Lists) add(b []byte) {
	if l.file != nil {
		l.file.Write(b)
	}
}

func (l *md5Lists) endFile(path string) {
	if l.file == nil {
		return
	}
	var sum [md5.Size]byte
	l.file.Sum(sum[:0])
	l.sums[pathKey(path)] = sum
	l.file = nil
}

// patch puts the sums of the files that were rebuilt into the lines of an old
// list.
func (l *md5Lists) patch(path string, b []byte) {
	if !l.used || !HasSums(path) {
		return
	}
	eachSum(b, func(digits []byte, path string) {
		sum, ok := l.sums[pathKey(path)]
		if !ok {
			// /lib and others may be links into /usr.
			sum, ok = l.sums[pathKey("usr/"+path)]
		}
		if ok {
			hex.Encode(digits, sum[:])
		}
	})
}

func pathKey(p string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(p))
	return h.Sum64()
}

// eachSum calls f with the digits and the path of each complete line in b.
func eachSum(b []byte, f func(digits []byte, path string)) {
	for len(b) > 0 {
		n := bytes.IndexByte(b, '\n')
		if n < 0 {
			return
		}
		line := b[:n]
		b = b[n+1:]
		if len(line) < sumDigits+3 || line[sumDigits] != ' ' || line[sumDigits+1] != ' ' {
			continue
		}
		f(line[:sumDigits], string(line[sumDigits+2:]))
	}
}
