package bases

import (
	"context"
	"errors"
	"os"
	"slices"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/decoder"
)

// Prove decodes the delta in a file, and returns an error unless it makes next of the
// old images. temp is for temporary files. It returns the delta's header and size.
func Prove(ctx context.Context, temp, path string, olds []delta.Image, next delta.Image) (h delta.Header, size int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return h, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return h, 0, err
	}
	d, err := decoder.New(f)
	if err != nil {
		return h, 0, err
	}
	h = d.Header()
	same := h.Image == next.Name && slices.EqualFunc(h.Objects, next.Objects, func(a delta.ObjectInfo, b delta.Object) bool {
		return a.Digest == b.Digest && a.Size == b.Size && a.Kind == b.Kind
	})
	if !same {
		return h, 0, errors.New("the delta makes another image")
	}
	b, old := &Builder{}, NewContents()
	defer b.Close()
	for _, im := range olds {
		used := im
		used.Objects = slices.DeleteFunc(slices.Clone(im.Objects), func(o delta.Object) bool {
			return !slices.ContainsFunc(h.Bases, func(base delta.Base) bool { return base.Digest == o.Digest })
		})
		if err := b.Add(old, used); err != nil {
			return h, 0, err
		}
	}
	err = d.Apply(ctx, old.store, temp, func(delta.ObjectInfo) (delta.Sink, error) { return dropped{}, nil })
	return h, info.Size(), err
}

// dropped is a delta.Sink that drops the objects.
type dropped struct{}

func (dropped) Write(p []byte) (int, error) { return len(p), nil }
func (dropped) Commit() error               { return nil }
func (dropped) Abort(error)                 {}
