package delta

import (
	"errors"
	"hash/crc32"
)

// Old files are verified by CRC-32C: files that a content is changed from before
// the first byte of any is used, because the models follow what is in them, and
// copies after they were passed on. Of each group only two sums travel, from
// which one damaged file can be told; whether the object is right is for its
// SHA-256 to say.

// checks gathers the checksums h[i] of a group of old files: the sum of h[i] and
// that of i*h[i], both modulo a prime.
type checks struct {
	files      []source
	sum, ipsum uint64
}

const (
	checkPrime = 4294967291
	checkGroup = 256
)

func (c *checks) reset() { c.files, c.sum, c.ipsum = c.files[:0], 0, 0 }

func (c *checks) add(src source, crc uint32) {
	c.files = append(c.files, src)
	n := uint64(len(c.files))
	h := uint64(crc) % checkPrime
	c.sum = (c.sum + h) % checkPrime
	c.ipsum = (c.ipsum + n*h) % checkPrime
}

// verify reads and verifies the old files that contents are changed from.
func (s *session) verify(es []*entry) error {
	c := &s.before
	c.reset()
	for _, e := range es {
		if e.size == 0 || e.op != opDiff && e.op != opDiffOf {
			continue
		}
		crc, err := s.crcOf(e.src, e.osize)
		if err != nil {
			return err
		}
		c.add(e.src, crc)
	}
	return s.checkGroup(c)
}

func (s *session) crcOf(src source, size int64) (crc uint32, err error) {
	f, err := s.openOld(src, size)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for off := int64(0); off < size; {
		if err := s.ctx.Err(); err != nil {
			return 0, err
		}
		b := s.buf[:min(chunk, size-off)]
		if err := s.readOld(f, src, b, off); err != nil {
			return 0, err
		}
		crc = crc32.Update(crc, castagnoli, b)
		off += int64(len(b))
	}
	return crc, nil
}

// checkCopies verifies the files that were copied, if the group is full or must
// end.
func (s *session) checkCopies(end bool) error {
	if len(s.copies.files) < checkGroup && !end {
		return nil
	}
	defer s.copies.reset()
	return s.checkGroup(&s.copies)
}

// checkGroup codes the sums of a group; when decoding it names the file that
// does not fit.
func (s *session) checkGroup(c *checks) error {
	n := len(c.files)
	if n == 0 {
		return nil
	}
	sum, ipsum := s.Raw(32, c.sum), c.ipsum
	if n > 1 {
		ipsum = s.Raw(32, c.ipsum)
	}
	s.stat("checks")
	if sum == c.sum && ipsum == c.ipsum {
		return nil
	}
	if s.Short || sum >= checkPrime || ipsum >= checkPrime {
		return formatError("a frame is cut short")
	}
	bad := func(src source, others string) error {
		return &OldError{Base: s.bases[src.base], Path: src.path, Others: others, Problem: DamagedFile}
	}
	if n == 1 {
		return bad(c.files[0], "")
	}
	ds := (c.sum + checkPrime - sum) % checkPrime
	di := (c.ipsum + checkPrime - ipsum) % checkPrime
	for i := range uint64(n) {
		if ds != 0 && (i+1)*ds%checkPrime == di {
			return bad(c.files[i], "")
		}
	}
	return bad(c.files[0], c.files[n-1].path)
}

// headCheck is the sum of the first n headers of a base, by which other
// metadata can be told once something does not fit.
type headCheck struct {
	base int
	n    uint64
	sum  uint32
}

func (s *session) sumHeaders(base int, n uint64) (sum uint32, err error) {
	h, err := s.old.Headers(s.ctx, s.bases[base].Digest)
	if err != nil {
		return 0, err
	}
	defer h.Close()
	for range n {
		if err := s.ctx.Err(); err != nil {
			return 0, err
		}
		b, err := h.Next()
		if err != nil {
			return 0, err
		}
		sum = crc32.Update(sum, castagnoli, b)
	}
	return sum, nil
}

// blame says that the metadata of a base is not what it was, if that may be why
// an object came out wrong.
func (s *session) blame(err error) error {
	var old *OldError
	var mismatch *MismatchError
	if !errors.Is(err, ErrFormat) && !errors.As(err, &old) && !errors.As(err, &mismatch) {
		return err
	}
	for _, c := range s.heads {
		if sum, herr := s.sumHeaders(c.base, c.n); herr != nil || sum != c.sum {
			return s.badHeaders(c.base, herr)
		}
	}
	return err
}
