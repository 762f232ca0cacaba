package encoder

import (
	"context"
	"io"
	"os"

	"github.com/klauspost/compress/zstd"

	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/budget"
	"github.com/mender-app/mender-app/delta/internal/codec"
)

// newPacker makes what compresses an object. Its digest is checked, so it has no checksum.
func newPacker(w io.Writer) (codec.Packer, error) {
	return zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithWindowSize(codec.PackedWindow),
		zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false))
}

// encodeByTime makes the delta twice if there are objects of which a device has more by
// zstd: first it finds out what they cost without.
func encodeByTime(ctx context.Context, w io.Writer, old []delta.Image, new delta.Image, o Options) (*Report, error) {
	f, err := os.CreateTemp(o.TempDir, "delta-*")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	first := &encoder{opt: o}
	rep, err := first.encode(ctx, f, old, new)
	if err != nil {
		return nil, err
	}
	packed, err := o.choose(ctx, rep, new)
	if err != nil {
		return nil, err
	}
	if len(packed) > 0 {
		o.Progress = nil // all is done once; most of what is left is quick
		second := &encoder{opt: o, packed: packed}
		return second.encode(ctx, w, old, new)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	_, err = io.Copy(w, f)
	return rep, err
}

// leastPacked is the part of an object that travels at least if zstd is tried for it: below,
// most of it comes from old content.
const leastPacked = 1.0 / 32

// choose returns the objects that take less time if zstd compresses them, by their index.
func (o *Options) choose(ctx context.Context, rep *Report, new delta.Image) (map[int]bool, error) {
	packed := map[int]bool{}
	for i, r := range rep.Objects {
		if r.Encoding == delta.Omitted || r.Bytes["bulk"] == 0 || float64(r.Total()) < leastPacked*float64(r.Size) {
			continue
		}
		size, err := packedSize(ctx, new.Objects[i])
		if err != nil {
			return nil, err
		}
		by := budget.Work{Bytes: r.Size, Expanded: r.Size}
		if o.cost(&by, size) < o.cost(&r.Work, r.Total()) {
			packed[i] = true
		}
	}
	return packed, nil
}

// cost is how many instructions a device could execute until it has an object.
func (o *Options) cost(w *budget.Work, size int64) int64 { return w.Instructions() + o.ByteCost*size }

// packedSize is what zstd makes of an object, in bytes.
func packedSize(ctx context.Context, obj delta.Object) (int64, error) {
	r, err := obj.Open()
	if err != nil {
		return 0, err
	}
	defer r.Close()
	var n metered.Counter
	p, err := newPacker(&n)
	if err != nil {
		return 0, err
	}
	if _, err := io.Copy(p, metered.Reader(ctx, r, nil)); err != nil {
		return 0, err
	}
	if err := p.Close(); err != nil {
		return 0, err
	}
	return int64(n), nil
}
