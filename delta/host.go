package delta

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"os"
	"runtime"
	"sync"
)

// hostObject is an object at hand on the build host, readable at random.
type hostObject struct {
	Object
	image   string
	r       io.ReaderAt
	closers []func() error
	members []member // a tar's, without raw
	raws    []uint64 // checksum of each member's header blocks
	tail    int64
	tar     bool // it parses as a tar
}

func (h *hostObject) close() {
	for _, f := range h.closers {
		f()
	}
}

// openObject makes o readable at random, checks its digest and size, and, for a
// tar, lists its members.
func openObject(ctx context.Context, o Object, image, temp string) (*hostObject, error) {
	h := &hostObject{Object: o, image: image}
	if _, err := o.Digest.raw(); err != nil {
		return nil, err
	}
	rc, err := o.Open()
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	var n int64
	if ra, ok := rc.(io.ReaderAt); ok {
		h.r = ra
		h.closers = append(h.closers, rc.Close)
		n, err = io.Copy(sum, &ctxReader{ctx, io.NewSectionReader(ra, 0, 1<<62)})
	} else {
		f, ferr := os.CreateTemp(temp, "delta-*")
		if ferr != nil {
			rc.Close()
			return nil, ferr
		}
		h.r = f
		h.closers = append(h.closers, f.Close, func() error { return os.Remove(f.Name()) })
		n, err = io.Copy(io.MultiWriter(f, sum), &ctxReader{ctx, rc})
		err = errors.Join(err, rc.Close())
	}
	if err == nil && n != o.Size {
		err = fmt.Errorf("object %s has %d bytes, not %d", o.Digest, n, o.Size)
	}
	if err == nil {
		if got := Digest(fmt.Sprintf("sha256:%x", sum.Sum(nil))); got != o.Digest {
			err = fmt.Errorf("object %s has digest %s", o.Digest, got)
		}
	}
	if err != nil {
		h.close()
		return nil, err
	}
	if o.Kind == Tar {
		h.tar = true
		w := tarWalk{r: h.r, size: o.Size}
		for {
			m, err := w.next()
			if err != nil {
				h.tar = err == io.EOF
				break
			}
			h.raws = append(h.raws, crc64.Checksum(m.raw, crcTable))
			m.raw = nil
			h.members = append(h.members, m)
		}
		h.tail = w.off
	}
	return h, nil
}

var crcTable = crc64.MakeTable(crc64.ECMA)

// raw reads the header blocks of a member again.
func (h *hostObject) raw(m *member, next int64) ([]byte, error) {
	b := make([]byte, m.off-next)
	return b, readFull(h.r, b, next)
}

type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *ctxReader) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(b)
}

// each calls f for 0 to n-1, on so many goroutines, and returns the first error
// in order.
func each(ctx context.Context, workers, n int, f func(int) error) error {
	if workers < 1 {
		workers = runtime.GOMAXPROCS(0)
	}
	errs := make([]error, n)
	var wg sync.WaitGroup
	next := make(chan int)
	for range min(workers, n) {
		wg.Go(func() {
			for i := range next {
				if errs[i] = ctx.Err(); errs[i] == nil {
					errs[i] = f(i)
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
