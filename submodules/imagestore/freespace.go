package imagestore

import (
	"archive/tar"
	"fmt"
	"io"
	"math"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/layer"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/submodules"
)

// NoRoomLimit is the room of a store whose free space is unknown.
const NoRoomLimit = math.MaxInt64

// FreeBytes returns the available space on the file system of dir, in bytes.
func FreeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("statfs %s: %w", dir, err)
	}
	blocks, size := int64(st.Bavail), int64(st.Bsize) //nolint:unconvert // their types differ by machine
	if blocks < 0 || size <= 0 || blocks > math.MaxInt64/size {
		return NoRoomLimit, nil
	}
	return blocks * size, nil
}

// freeMargin is what a load leaves free of the engine's disk, in bytes.
const freeMargin = 16 << 20

// room is the target's room minus the margin. It is read once, so that the bytes that
// the load itself writes are not counted twice.
func (rc *receiver) room() (int64, error) {
	rc.roomOnce.Do(func() {
		if rc.roomLeft, rc.roomErr = rc.target.Room(rc.ctx); rc.roomLeft != NoRoomLimit {
			rc.roomLeft = max(0, rc.roomLeft-freeMargin)
		}
	})
	return rc.roomLeft, rc.roomErr
}

// fits checks that size more bytes of layers are announced, and that the target
// has room for them.
func (rc *receiver) fits(size int64) error {
	if left := rc.announced.total() - rc.taken; size > left {
		return notAnnounced("there are %d bytes of layers, and only %d more are announced", size, left)
	}
	room, err := rc.room()
	if err != nil {
		return err
	}
	if size > room-rc.taken {
		return noRoom(rc.taken, size, room)
	}
	return nil
}

func noRoom(taken, size, room int64) error {
	if size < math.MaxInt64-taken {
		size += taken
	}
	return submodules.Mark(fmt.Errorf("the image's new layers take at least %s, and the engine's file system has %s free: free some and try again", metered.Human(size), metered.Human(room)), submodules.ErrSpace)
}

// roomState is a receiver's account of the target's free space.
type roomState struct {
	roomOnce sync.Once
	roomLeft int64
	roomErr  error
	taken    int64 // by the layers that were given to the engine
}

// gauge passes a layer on and adds up the size of its files when they are unpacked.
// A few bytes can become a file of any size: by compression, or by holes, which
// engines fill.
type gauge struct {
	to   io.Writer
	pw   *io.PipeWriter
	done chan error
	size int64 // valid after Close
}

// gauge starts a gauge for one layer; d is its diffID, "" if unknown.
func (rc *receiver) gauge(to io.Writer, d image.Digest) (*gauge, error) {
	room, err := rc.room()
	if err != nil {
		return nil, err
	}
	pr, pw := io.Pipe()
	g := &gauge{to: to, pw: pw, done: make(chan error, 1)}
	taken := rc.taken
	limit, known := rc.announced.layer(d)
	if !known {
		limit = rc.announced.total() - taken
	}
	go func() {
		err := g.walk(pr, taken, room, limit)
		if err == nil {
			_, err = io.Copy(io.Discard, pr)
		}
		pr.CloseWithError(err)
		g.done <- err
	}()
	return g, nil
}

// walk ends at the first error of the tar; other code reports such errors.
func (g *gauge) walk(r io.Reader, taken, room, limit int64) error {
	plain, end, err := Inflate(r)
	if err != nil {
		return nil
	}
	defer end()
	tr := tar.NewReader(plain)
	for {
		h, err := tr.Next()
		if err != nil {
			return nil
		}
		if k := layer.Of(h).Kind; k != layer.File && k != layer.Unknown {
			continue
		}
		if h.Size > limit-g.size {
			return notAnnounced("the files of a layer take more than the %d bytes announced", limit)
		}
		if h.Size > room-taken-g.size {
			return noRoom(taken+g.size, h.Size, room)
		}
		g.size += h.Size
	}
}

func (g *gauge) Write(p []byte) (int, error) {
	if _, err := g.pw.Write(p); err != nil {
		return 0, err
	}
	return g.to.Write(p)
}

// Close returns what is wrong with the layer's size. It must be called.
func (g *gauge) Close() error {
	_ = g.pw.Close()
	return <-g.done
}
