package inspect

import (
	"context"
	"io"
	"time"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/decoder"
	"github.com/mender-app/mender-app/delta/tarstore"
)

// maxExpansion is how many bytes a byte of a delta may become, for the delta to be decoded
// here: what is decoded may be hostile.
const maxExpansion = 200

// delta reads a delta of size bytes. What builds on nothing is decoded: every layer is
// compared with its diffID.
func (i *inspection) delta(ctx context.Context, d *ImageDescription, size int64, r io.Reader) error {
	dr, err := decoder.New(r)
	if err != nil {
		return err
	}
	h := dr.Header()
	var made int64
	for _, o := range h.Objects {
		if o.Encoding != delta.Omitted {
			made += o.Size
		}
		if o.Kind != delta.Tar {
			continue
		}
		l := LayerDescription{DiffID: o.Digest, Size: o.Size, Encoding: string(o.Encoding), Bytes: -1}
		if o.Encoding == delta.Omitted {
			l.Bytes = 0
		}
		d.Layers = append(d.Layers, l)
	}
	if i.proved || len(h.Bases) > 0 || made/maxExpansion > size {
		return nil
	}
	begun := time.Now()
	var files largest
	err = dr.Apply(ctx, tarstore.New(), "", func(o delta.ObjectInfo) (delta.Sink, error) {
		if o.Kind != delta.Tar {
			return dropped{}, nil
		}
		return newLayerSink(&files, o), nil
	})
	d.Largest = files.ofDelta()
	d.Decoding = time.Since(begun)
	return err
}

// ofDelta returns the files of a delta's layers, the largest first.
func (l *largest) ofDelta() (list []LargeFile) {
	for _, f := range l.files {
		f.Layer = digest.Digest(f.member)
		list = append(list, f.LargeFile)
	}
	return list
}

// layerSink is a delta.Sink that looks for the largest files of a layer.
type layerSink struct {
	*io.PipeWriter
	done chan struct{}
}

func newLayerSink(files *largest, o delta.ObjectInfo) *layerSink {
	r, w := io.Pipe()
	s := &layerSink{w, make(chan struct{})}
	go func() {
		defer close(s.done)
		_ = files.layer(image.Member{Name: o.Digest.String(), Size: o.Size}, r) // an error of r is Apply's
		_, _ = io.Copy(io.Discard, r)
	}()
	return s
}

func (s *layerSink) Commit() error {
	err := s.Close()
	<-s.done
	return err
}

func (s *layerSink) Abort(err error) {
	s.CloseWithError(err)
	<-s.done
}

// dropped is a delta.Sink that drops the object.
type dropped struct{}

func (dropped) Write(p []byte) (int, error) { return len(p), nil }
func (dropped) Commit() error               { return nil }
func (dropped) Abort(error)                 {}
