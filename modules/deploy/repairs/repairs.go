// Package repairs keeps the requests of repairs, so that an interrupted one can be
// resumed, and unpacks the artifacts that repairs take images from.
package repairs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/modules/deploy/files"
	"github.com/mender-app/mender-app/modules/deploy/space"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/store/durable"
)

// Source is an artifact that a repair takes images from. Its content is used
// only after all of it was read without an error.
type Source interface {
	MetaData() []byte
	// Next returns the next file of the payload; io.EOF after the last.
	Next() (name string, r io.Reader, err error)
}

// Dir has one directory for each open repair, named by its application; see
// store/FORMAT.md.
const Dir = "repair"

const requestFile = "request.json"

// Request lets an interrupted repair resume.
type Request struct {
	Format      int               `json:"format"`
	Application string            `json:"application"`
	Release     string            `json:"release"` // its sub-module and settings are used
	Components  []store.Component `json:"components"`
}

// Write writes the request to the directory of its repair.
func (q *Request) Write(dir string) error {
	if err := durable.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	data, err := json.MarshalIndent(q, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(dir, requestFile), data, 0o644)
}

// Read reads the request of a repair. fs.ErrNotExist: the repair was not begun.
func Read(dir string) (*Request, error) {
	data, err := os.ReadFile(filepath.Join(dir, requestFile))
	if err != nil {
		return nil, err
	}
	var q Request
	if err := json.Unmarshal(data, &q); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", filepath.Join(dir, requestFile), err)
	}
	if q.Format > store.Format {
		return nil, store.ErrNewer
	}
	return &q, nil
}

// Unpack writes the whole images of an artifact to files in a temporary directory
// and returns it; "" without an artifact. temp makes such a directory, which is
// removed with the call.
func Unpack(ctx context.Context, from Source, temp func() (string, error)) (string, error) {
	if from == nil {
		return "", nil
	}
	if _, _, err := artifact.ParseMetadata(from.MetaData()); err != nil {
		return "", err
	}
	dir, err := temp()
	if err != nil {
		return "", err
	}
	for {
		name, r, err := from.Next()
		if errors.Is(err, io.EOF) {
			return dir, nil
		}
		if err == nil && name == artifact.ImagesPayload {
			err = unpackImages(ctx, dir, r, temp)
		}
		if err == nil {
			_, err = io.Copy(io.Discard, r)
		}
		if err != nil {
			return "", err
		}
	}
}

func unpackImages(ctx context.Context, dir string, r io.Reader, temp func() (string, error)) error {
	tmp, err := temp()
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	room, err := space.Room(tmp, space.Free)
	if err != nil {
		return err
	}
	seen := map[image.Digest]bool{}
	return artifact.ReadImages(r, artifact.ReadOptions{SpoolDir: tmp, MaxSpool: room}, func(info artifact.ImageInfo, content io.Reader) error {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("stopped: %w", context.Cause(ctx))
		}
		if info.Kind != artifact.KindFull || seen[info.Digest] {
			return nil
		}
		seen[info.Digest] = true
		return files.Spool(filepath.Join(dir, info.Digest.Hex()), content, info.Size)
	})
}
