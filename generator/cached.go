package generator

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/encoder"
	"github.com/mender-app/mender-app/generator/bases"
	"github.com/mender-app/mender-app/generator/source"
)

// Kinds of entries of the cache. The source adds the blobs of registries.
const (
	cachedDelta  = "delta"  // a delta
	cachedReport = "report" // a keptReport
)

// keptReport is what the encoder said of a delta in the cache, and the digest of that
// delta. Another delta that leads to the same image may have been made with other
// options.
type keptReport struct {
	Report *encoder.Report
	Delta  digest.Digest
}

// maxReport bounds an encoder's report in the cache, in bytes.
const maxReport = 16 << 20

// program is the digest of this program: another one may encode in another way.
var program = sync.OnceValues(func() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", err
	}
	d, err := digest.OfFile(path)
	return d.Hex(), err
})

// deltaHex identifies a delta by everything that its bytes follow from.
func deltaHex(olds []delta.Image, next delta.Image, o encoder.Options) (string, error) {
	self, err := program()
	if err != nil {
		return "", err
	}
	o.TempDir, o.Progress, o.Workers, o.Memory = "", nil, 0, 0
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%+v\n", self, o)
	for _, im := range append([]delta.Image{next}, olds...) {
		fmt.Fprintf(h, "image %q\n", im.Name)
		for _, obj := range im.Objects {
			fmt.Fprintf(h, "%s %d %s\n", obj.Digest, obj.Size, obj.Kind)
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}

// cachedDelta takes a delta from the cache. It was proved when it was made, of the same
// content, and its digest shows that it is that one: neither old nor new content is read. It
// returns nil if there is none, or not a good one.
func (r *run) cachedDelta(hex string, next delta.Image) *encodedDelta {
	c := r.cache
	b, err := c.Read(source.CacheKey{Kind: cachedReport, Hex: hex}, maxReport)
	if err != nil {
		return nil
	}
	path := filepath.Join(r.temp, "cached-"+hex)
	if err := c.Take(source.CacheKey{Kind: cachedDelta, Hex: hex}, path); err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			r.noCache(err)
		}
		return nil
	}
	e := &encodedDelta{path: path}
	var kept keptReport
	err = json.Unmarshal(b, &kept)
	if err == nil {
		e.report, err = kept.Report, kept.isOf(path, next)
	}
	if err == nil {
		e.report.Header, e.report.Size, err = bases.HeaderOf(path, next)
	}
	if err == nil {
		return e
	}
	e.remove()
	c.Remove(source.CacheKey{Kind: cachedDelta, Hex: hex})
	return nil
}

// isOf returns an error unless the report is of the delta at path, which leads to next.
func (k keptReport) isOf(path string, next delta.Image) error {
	d, err := digest.OfFile(path)
	if err == nil && (k.Report == nil || k.Delta != d || len(k.Report.Objects) != len(next.Objects)) {
		err = errors.New("the report is of another delta")
	}
	return err
}

// keepDelta puts a delta into the cache.
func (r *run) keepDelta(hex string, e *encodedDelta) {
	c := r.cache
	d, err := digest.OfFile(e.path)
	var b []byte
	if err == nil {
		b, err = json.Marshal(keptReport{Report: e.report, Delta: d})
	}
	if err == nil {
		err = c.Write(source.CacheKey{Kind: cachedReport, Hex: hex}, b)
	}
	if err == nil {
		err = c.Keep(source.CacheKey{Kind: cachedDelta, Hex: hex}, e.path)
	}
	r.noCache(err)
}

// noCache says once that the cache does not work. The artifact does not need it.
func (r *run) noCache(err error) {
	if err != nil {
		r.cacheFailed.Do(func() {
			r.note("the cache does not work, which costs time: %v; --no-cache does without it", err)
		})
	}
}
