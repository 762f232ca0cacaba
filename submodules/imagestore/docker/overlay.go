package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/vbatts/tar-split/tar/storage"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// overlay reads the layers of the classic overlay2 store in place. Its layout,
// unchanged from 1.10 (moby, layer/filestore.go and daemon/graphdriver/overlay2):
//
//	image/overlay2/layerdb/sha256/<chain>/diff               the diffID
//	image/overlay2/layerdb/sha256/<chain>/cache-id           its directory
//	image/overlay2/layerdb/sha256/<chain>/tar-split.json.gz  all of the tar but the files' contents
//	image/overlay2/imagedb/content/sha256/<config>           the configs
//	overlay2/<cache-id>/diff                                 the files
type overlay struct {
	root   string
	chains map[image.Digest]string // diffID → a directory of layerdb with this layer
}

// openOverlay reads the store's index. It returns nil if the engine has another
// store, or if the store cannot be reached.
func (e *Engine) openOverlay(ctx context.Context) (*overlay, error) {
	info, err := e.system(ctx)
	if err != nil {
		return nil, err
	}
	root, err := e.root(ctx)
	if err != nil || root == "" || info.Driver != "overlay2" {
		return nil, err
	}
	db := filepath.Join(root, "image", "overlay2", "layerdb", "sha256")
	list, err := os.ReadDir(db)
	if err != nil {
		return nil, nil
	}
	o := &overlay{root: root, chains: map[image.Digest]string{}}
	for _, d := range list {
		b, err := readSmall(filepath.Join(db, d.Name(), "diff"))
		if err != nil {
			continue // a layer that is being made or removed now
		}
		if id, err := digest.Parse(strings.TrimSpace(string(b))); err == nil {
			o.chains[id] = filepath.Join(db, d.Name())
		}
	}
	return o, nil
}

// readSmall reads a file of a few bytes.
func readSmall(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 4096))
}

// files opens the directory with a layer's files. Links in the image cannot lead
// out of it.
func (o *overlay) files(diffID image.Digest) (*os.Root, error) {
	chain, ok := o.chains[diffID]
	if !ok {
		return nil, fmt.Errorf("layer %s: %w", diffID, delta.ErrNoObject)
	}
	dir, err := o.place(chain)
	if err != nil {
		return nil, err
	}
	return os.OpenRoot(filepath.Join(dir, "diff"))
}

// place returns the driver's directory for a directory of layerdb.
func (o *overlay) place(chain string) (string, error) {
	b, err := readSmall(filepath.Join(chain, "cache-id"))
	if err != nil {
		return "", err
	}
	id := strings.TrimSpace(string(b))
	if id == "" || strings.ContainsAny(id, "/") || id == ".." {
		return "", fmt.Errorf("%s: damaged cache-id %q", chain, id)
	}
	return filepath.Join(o.root, "overlay2", id), nil
}

// split opens a layer's tar-split.
func (o *overlay) split(diffID image.Digest) (storage.Unpacker, io.Closer, error) {
	chain, ok := o.chains[diffID]
	if !ok {
		return nil, nil, fmt.Errorf("layer %s: %w", diffID, delta.ErrNoObject)
	}
	return splitOf(chain)
}

// splitOf opens the tar-split of a directory of layerdb.
func splitOf(chain string) (storage.Unpacker, io.Closer, error) {
	f, err := os.Open(filepath.Join(chain, "tar-split.json.gz"))
	if err != nil {
		return nil, nil, err
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return storage.NewJSONUnpacker(z), f, nil
}

// size returns the number of bytes of a layer's tar without reading its files.
func (o *overlay) size(diffID image.Digest) (int64, error) {
	up, c, err := o.split(diffID)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	var n int64
	err = eachMember(up, func(segment []byte) error {
		n += int64(len(segment))
		return nil
	}, func(m splitMember) error {
		n += m.size
		return m.notKept()
	})
	if err != nil {
		return 0, fmt.Errorf("layer %s: tar-split: %w", diffID, err)
	}
	return n, nil
}

// tar opens the layer's tar, rebuilt byte for byte. It is not verified.
func (o *overlay) tar(diffID image.Digest) (io.ReadCloser, error) {
	chain, ok := o.chains[diffID]
	if !ok {
		return nil, fmt.Errorf("layer %s: %w", diffID, delta.ErrNoObject)
	}
	return o.tarOf(chain)
}

// tarOf is tar of a directory of layerdb.
func (o *overlay) tarOf(chain string) (io.ReadCloser, error) {
	up, c, err := splitOf(chain)
	if err != nil {
		return nil, err
	}
	dir, err := o.place(chain)
	if err != nil {
		c.Close()
		return nil, err
	}
	root, err := os.OpenRoot(filepath.Join(dir, "diff"))
	if err != nil {
		c.Close()
		return nil, err
	}
	pr, pw := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := writeSplit(pw, root, up)
		if err != nil {
			// A file is missing or has changed.
			err = fmt.Errorf("%w: %w", image.ErrMismatch, err)
		}
		_ = pw.CloseWithError(err)
		root.Close()
		c.Close()
	}()
	return tarReader{pr, done}, nil
}

// tarReader waits on Close for the goroutine that writes.
type tarReader struct {
	*io.PipeReader
	done chan struct{}
}

func (t tarReader) Close() error {
	err := t.PipeReader.Close()
	<-t.done
	return err
}

// OpenFile implements delta.Old.
func (o *overlay) OpenFile(_ context.Context, in delta.Digest, name string) (delta.File, error) {
	if name == "" {
		if err := in.Check(); err != nil {
			return nil, err
		}
		f, err := os.Open(filepath.Join(o.root, "image", "overlay2", "imagedb", "content", "sha256", in.Hex()))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("config %s: %w", in, delta.ErrNoObject)
		}
		if err != nil {
			return nil, err
		}
		return imagestore.NewFile(f)
	}
	root, err := o.files(in)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := imagestore.OpenWithin(root, name)
	if err != nil {
		return nil, err
	}
	return imagestore.NewFile(f)
}

// Headers implements delta.Old.
func (o *overlay) Headers(_ context.Context, in delta.Digest) (delta.HeaderReader, error) {
	up, c, err := o.split(in)
	if err != nil {
		return nil, err
	}
	return &splitHeaders{up: up, Closer: c}, nil
}

// Layer implements imagestore.Old.
func (o *overlay) Layer(_ context.Context, d image.Digest) (io.ReadCloser, int64, error) {
	size, err := o.size(d)
	if err != nil {
		return nil, 0, err
	}
	r, err := o.tar(d)
	return r, size, err
}

// Close implements imagestore.Old.
func (o *overlay) Close() error { return nil }
