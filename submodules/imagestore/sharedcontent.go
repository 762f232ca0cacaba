package imagestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/decoder"
	"github.com/mender-app/mender-app/delta/tarstore"
	"github.com/mender-app/mender-app/submodules"
)

// Shared content (delta/FORMAT.md): if an image can be built on one of several
// bases, the deltas for all of them share some files. A first delta makes these
// from files that every base has. They stay in one temporary file until the image
// is rebuilt.

// errNoBase says that a call with shared content does not name the present base.
var errNoBase = errors.New("the content is for an image with several possible bases, and the call does not name the one that is present")

// shared makes the shared content that comes before a delta and returns it as
// old content.
func (rc *receiver) shared(d *decoder.Decoder) (*sharedContent, error) {
	objects := d.Header().Objects
	if len(objects) != 1 || objects[0].Kind != delta.Tar || objects[0].Encoding == delta.Omitted {
		return nil, fmt.Errorf("%w: shared content is one tar", delta.ErrFormat)
	}
	if err := rc.announced.checkTemp(d.Header(), objects[0].Size); err != nil {
		return nil, err
	}
	if len(rc.in.Base) == 0 {
		return nil, submodules.Mark(errNoBase, submodules.ErrBase)
	}
	old, err := rc.target.Old(rc.ctx, rc.in.Base)
	if err != nil {
		return nil, err
	}
	defer old.Close()
	f, err := os.CreateTemp(rc.in.TempDir, "shared-*")
	if err != nil {
		return nil, err
	}
	s := &sharedContent{f: f, object: objects[0], store: tarstore.New()}
	if err := os.Remove(f.Name()); err != nil { // nothing is left of it after a crash
		s.close()
		return nil, err
	}
	var sharedBase delta.Digest
	for _, b := range d.Header().Bases {
		if b.Image == delta.SharedBase {
			sharedBase = b.Digest
		}
	}
	err = d.Apply(rc.ctx, delta.WithSharedBase(old, sharedBase, rc.in.Base), rc.in.TempDir, func(delta.ObjectInfo) (delta.Sink, error) { return fileSink{f}, nil })
	if err == nil {
		err = s.store.Add(s.object.Digest, delta.Tar, f, s.object.Size)
	}
	if err != nil {
		s.close()
		var oe *delta.OldError
		if errors.As(err, &oe) && oe.Base.Image == delta.SharedBase {
			oe.Base.Image, oe.Base.Digest = submodules.SplitURL(rc.in.Current) // what a person knows it by
			return nil, fmt.Errorf("shared content: %w", oe)
		}
		return nil, err
	}
	return s, nil
}

// sharedContent is the shared content: files that a delta starts from, in addition to
// the engine's images.
type sharedContent struct {
	f      *os.File
	object delta.ObjectInfo
	store  *tarstore.Store
}

func (s *sharedContent) close() {
	if s != nil {
		s.f.Close()
	}
}

// with returns the old content of the engine together with the shared content.
func (s *sharedContent) with(old delta.Old) delta.Old {
	if s == nil {
		return old
	}
	return &beside{Old: old, s: s}
}

// size returns its size in bytes; 0 if there is none.
func (s *sharedContent) size() int64 {
	if s == nil {
		return 0
	}
	return s.object.Size
}

// has reports whether an object is the shared content.
func (s *sharedContent) has(d delta.Digest) bool { return s != nil && s.object.Digest == d }

type beside struct {
	delta.Old
	s *sharedContent
}

func (b *beside) OpenFile(ctx context.Context, in delta.Digest, path string) (delta.File, error) {
	if b.s.has(in) {
		return b.s.store.OpenFile(ctx, in, path)
	}
	return b.Old.OpenFile(ctx, in, path)
}

func (b *beside) Headers(ctx context.Context, in delta.Digest) (delta.HeaderReader, error) {
	if b.s.has(in) {
		return b.s.store.Headers(ctx, in)
	}
	return b.Old.Headers(ctx, in)
}

// fileSink writes an object to a file.
type fileSink struct{ io.Writer }

func (fileSink) Commit() error { return nil }
func (fileSink) Abort(error)   {}
