package bases

import (
	"errors"
	"os"
	"slices"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/decoder"
)

// HeaderOf returns the header and the size of the delta in a file. It is an error if the
// delta makes another image than next.
func HeaderOf(path string, next delta.Image) (h delta.Header, size int64, err error) {
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
	return h, info.Size(), nil
}
