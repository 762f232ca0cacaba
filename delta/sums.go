package delta

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"hash/fnv"
	"strings"
)

// Debian packages list the MD5 sums of their files (/var/lib/dpkg/info/*.md5sums:
// 32 hex digits, two blanks, the path without its leading slash). Where a list
// follows the files it speaks of, the decoder has seen them: the new sums need
// not travel.

const (
	sumsSuffix = ".md5sums"
	maxSums    = 1 << 14 // files remembered of one object
	sumDigits  = 2 * md5.Size
)

func pathKey(p string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(p))
	return h.Sum64()
}

// eachSum calls f with the digits and the path of each line that lies whole in b.
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

// patchSums puts the sums of the files that were rebuilt into old lines.
func (s *session) patchSums(b []byte) {
	eachSum(b, func(digits []byte, path string) {
		sum, ok := s.sums[pathKey(path)]
		if !ok {
			// Where /lib is a link to /usr/lib and so on.
			sum, ok = s.sums[pathKey("usr/"+path)]
		}
		if ok {
			hex.Encode(digits, sum[:])
		}
	})
}

// maskSums blanks the sums, for finding which lines correspond.
func maskSums(path string, b []byte) {
	if strings.HasSuffix(path, sumsSuffix) {
		eachSum(b, func(digits []byte, _ string) { clear(digits) })
	}
}
