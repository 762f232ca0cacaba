package deploy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/modules/diskspace"
	"github.com/mender-app/mender-app/modules/imagedelta"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// unpackTime bounds how long the images of an artifact may take.
const unpackTime = 2 * time.Hour

// unpackForRepair writes the images of an artifact that need nothing of the device to files in a
// temporary directory and returns it; "" without an artifact. temp makes such a
// directory, which is removed with the call.
func unpackForRepair(ctx context.Context, from RepairSource, temp func() (string, error)) (string, error) {
	if from == nil {
		return "", nil
	}
	meta, _, err := artifact.ParseMetadata(from.MetaData())
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, unpackTime)
	defer cancel()
	u := &unpacker{meta: meta, seen: map[image.Digest]bool{}}
	if u.dir, err = temp(); err != nil {
		return "", err
	}
	for {
		name, r, err := from.Next()
		if errors.Is(err, io.EOF) {
			return u.dir, nil
		}
		if err == nil && name == artifact.ImagesPayload {
			err = u.images(ctx, r, temp)
		}
		if err == nil {
			_, err = io.Copy(io.Discard, r)
		}
		if err != nil {
			return "", err
		}
	}
}

// unpacker unpacks the images of one artifact.
type unpacker struct {
	meta *artifact.Metadata
	dir  string // where the images go
	tmp  string // for what is needed meanwhile
	seen map[image.Digest]bool
	made []string // archives in dir
}

func (u *unpacker) images(ctx context.Context, r io.Reader, temp func() (string, error)) error {
	var err error
	if u.tmp, err = temp(); err != nil {
		return err
	}
	defer os.RemoveAll(u.tmp)
	room, err := diskspace.Room(u.tmp, diskspace.Free)
	if err != nil {
		return err
	}
	return artifact.ReadImages(r, artifact.ReadOptions{SpoolDir: u.tmp, MaxSpool: room}, func(info artifact.ImageInfo, content io.Reader) error {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("stopped: %w", context.Cause(ctx))
		}
		if u.seen[info.Digest] {
			return nil
		}
		path := filepath.Join(u.dir, info.Digest.Hex())
		switch info.Kind {
		case artifact.KindFull:
			if err := spool(path, content, info.Size); err != nil {
				return err
			}
		case artifact.KindDelta:
			if made, err := u.rebuild(ctx, info, content, path); !made || err != nil {
				return err
			}
		default:
			return nil
		}
		u.seen[info.Digest] = true
		u.made = append(u.made, path)
		return nil
	})
}

// rebuild makes an image of its delta, if that needs nothing but images that the artifact
// had before.
func (u *unpacker) rebuild(ctx context.Context, info artifact.ImageInfo, content io.Reader, path string) (made bool, err error) {
	c, ok := u.overNothing(info)
	if !ok {
		return false, nil
	}
	patch, archive := filepath.Join(u.tmp, "delta"), filepath.Join(u.tmp, "image")
	defer func() { err = errors.Join(err, os.RemoveAll(patch), os.RemoveAll(archive)) }()
	if err := spool(patch, content, info.Size); err != nil {
		return false, err
	}
	name, _ := submodules.SplitURL(c.URL)
	this := store.Component{Type: c.Type, URL: c.URL, Digest: c.Digest}
	q := imagedelta.Request{
		Component: submodules.Component{Type: c.Type, URL: c.URL, Digest: c.Digest},
		Platform:  u.meta.Platform, Tags: []string{name}, Archives: u.made, Delta: patch, New: archive, Temp: u.tmp,
	}
	for _, l := range c.Layers {
		q.Component.DiffIDs = append(q.Component.DiffIDs, l.DiffID)
	}
	q.Component.Announced = announcedContent(&artifact.Metadata{Components: []artifact.Component{c}, Sizes: u.meta.Sizes}, this)
	err = makeImage(ctx, q)
	if errors.Is(err, submodules.ErrBase) {
		return false, nil // it needs an image that is not in the artifact in this way
	}
	if err != nil {
		return false, fmt.Errorf("component %s: %w", c.URL, err)
	}
	return true, os.Rename(archive, path)
}

// overNothing finds the component that a delta makes, in the form that it has; false if it
// builds on what a device has.
func (u *unpacker) overNothing(info artifact.ImageInfo) (c artifact.Component, ok bool) {
	for _, c := range u.meta.ImageComponents() {
		if c.Digest != info.Digest {
			continue
		}
		if n := info.Variant; n > 0 && n <= len(c.Variants) {
			c = c.As(n - 1)
		}
		return c, c.Format == artifact.FormatDelta && len(c.Bases) == 0
	}
	return c, false
}
