package staging

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/store/durable"
)

// Change is the right to change the staged artifacts. One process has it at a time.
type Change struct {
	area    *Area
	release func()
	dropped []Artifact
}

// Begin keeps other processes from changing the staged artifacts, and removes the
// remains of an interrupted change. It fails with a *store.LockedError while another
// call uses the store, because an update needs the same space, and with ErrBusy while
// another process stages. The caller must call End.
func (a *Area) Begin(ctx context.Context) (*Change, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	now, cancel := context.WithCancel(ctx)
	cancel() // one attempt
	unlock, err := a.Store.Lock(now, "staging")
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := durable.PrivateDir(a.dir()); err != nil {
		return nil, err
	}
	release, err := durable.Lock(filepath.Join(a.dir(), "lock"), "staging")
	var held *durable.HeldError
	if errors.As(err, &held) {
		return nil, ErrBusy
	}
	if err != nil {
		return nil, err
	}
	if err := a.sweep(); err != nil {
		release()
		return nil, err
	}
	return &Change{area: a, release: release}, nil
}

// End gives the right back.
func (c *Change) End() { c.release() }

// Dropped lists the artifacts that were removed to make room.
func (c *Change) Dropped() []Artifact { return c.dropped }

// sweep removes temporary files, and files without a record.
func (a *Area) sweep() error {
	if err := durable.Sweep(a.dir()); err != nil {
		return err
	}
	entries, err := os.ReadDir(a.dir())
	if err != nil {
		return err
	}
	for _, e := range entries {
		hex, isData := strings.CutSuffix(e.Name(), dataSuffix)
		if _, err := os.Lstat(filepath.Join(a.dir(), hex+infoSuffix)); isData && errors.Is(err, fs.ErrNotExist) {
			if err := durable.Remove(filepath.Join(a.dir(), e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// Drop removes a staged artifact.
func (c *Change) Drop(a Artifact) error {
	for _, suffix := range []string{infoSuffix, dataSuffix} { // the record first
		if err := durable.Remove(c.area.path(a.Digest, suffix)); err != nil {
			return err
		}
	}
	return nil
}

// Room makes room for bytes that will be written to the store's file system, in addition
// to the margin. It removes the artifacts staged longest ago. If that would not be
// enough, it removes none and returns an ErrSpace.
func (c *Change) Room(bytes int64) error { return c.room(0, bytes, "") }

// RoomToLoad makes room for bytes that a staged artifact will take in an engine: they count
// towards Limit. The images of an artifact it removes stay in the engine until the caller
// deletes them.
func (c *Change) RoomToLoad(one Artifact, bytes int64) error {
	more := max(bytes-c.area.loaded(one.Digest), 0)
	if limit := c.area.Limit; one.Size+bytes > limit {
		return fmt.Errorf("%w: it has %d bytes, its images take %d more, and staged artifacts may take %d in total: raise staging_mib in mender-app.conf",
			ErrSpace, one.Size, bytes, limit)
	}
	return c.room(one.Size+more, 0, one.Digest)
}

// room makes room for an artifact of the given size, of which bytes remain to be
// written. The artifact with the digest same stays.
func (c *Change) room(size, bytes int64, same digest.Digest) error {
	a := c.area
	if size > a.Limit {
		return tooLarge(size, a.Limit)
	}
	free, _, err := a.Free(a.dir())
	if err != nil {
		return err
	}
	list, err := a.List()
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(x Artifact) bool { return x.Digest == same })
	sort.SliceStable(list, func(i, j int) bool { // damaged ones first
		if damaged := list[i].Problem != ""; damaged != (list[j].Problem != "") {
			return damaged
		}
		return list[i].Staged.Before(list[j].Staged)
	})
	var files, all int64
	for _, x := range list {
		files += x.Size
		all += x.Size + a.loaded(x.Digest)
	}
	size += a.loaded(same)
	if free+files-bytes < a.Margin {
		return fmt.Errorf("%w: %d bytes must stay free (staging_free_mib), and %d of the %d that are free are needed: free some and try again",
			ErrSpace, a.Margin, bytes, free)
	}
	for _, x := range list {
		if size+all <= a.Limit && free-bytes >= a.Margin {
			break
		}
		both := x.Size + a.loaded(x.Digest)
		if err := c.Drop(x); err != nil {
			return err
		}
		c.dropped = append(c.dropped, x)
		all -= both
		free += x.Size
	}
	return nil
}

func tooLarge(size, limit int64) error {
	return fmt.Errorf("%w: it has %d bytes, and staged artifacts may take %d in total: raise staging_mib in mender-app.conf", ErrSpace, size, limit)
}

// Source is an artifact's file to stage.
type Source struct {
	io.Reader
	Size int64 // 0: not known
	// Move durably moves the file to a path on the store's file system after it was read
	// to its end. nil: its bytes are copied.
	Move func(path string) error
}

// Add stages an artifact, whose name must be free or belong to the same application. It
// reads the file to its end. accept reads the header and decides whether the artifact is
// for this device. A staged artifact of the same application and name is replaced. The
// error is a mender.ErrChecksum or mender.ErrFormat for a damaged file.
func (c *Change) Add(src Source, accept func(io.Reader) (*mender.Reader, error)) (*Artifact, error) {
	in := &incoming{from: src, hash: sha256.New(), limit: c.area.Limit}
	if src.Size > in.limit {
		return nil, tooLarge(src.Size, in.limit)
	}
	if src.Move == nil {
		f, err := durable.Create(filepath.Join(c.area.dir(), "artifact"))
		if err != nil {
			return nil, err
		}
		defer f.Abort()
		in.copy = f
	}
	r, err := accept(in)
	if err != nil {
		return nil, err
	}
	h := r.Header()
	meta, _, err := ReadMetadata(h)
	if err != nil {
		return nil, err
	}
	if in.copy != nil { // only now may other artifacts be removed
		if err := c.room(src.Size, src.Size-in.size, ""); err != nil {
			return nil, err
		}
	}
	if err := readAll(r, in); err != nil {
		return nil, err
	}
	rec := Record{
		Application: meta.ApplicationName, Version: meta.ApplicationVersion, ArtifactName: h.Name,
		Orchestrator: meta.Orchestrator, Size: in.size, Digest: digest.OfHash(in.hash), Staged: time.Now().UTC().Truncate(time.Second),
	}
	return c.publish(rec, src, in)
}

// readAll checks an artifact by reading it, and everything after it, to the end.
func readAll(r *mender.Reader, in io.Reader) error {
	for {
		if _, err := r.Next(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, r); err != nil {
			return err
		}
	}
	_, err := io.Copy(io.Discard, in)
	return err
}

// publish gives a file that was read to its end its final name, then writes its record.
func (c *Change) publish(rec Record, src Source, in *incoming) (*Artifact, error) {
	if err := c.room(rec.Size, 0, rec.Digest); err != nil {
		return nil, err
	}
	one := &Artifact{Record: rec, Path: c.area.path(rec.Digest, dataSuffix)}
	move := src.Move
	if move == nil {
		move = func(path string) error { return in.copy.Commit(path, 0o600) }
	}
	if err := move(one.Path); err != nil {
		return nil, err
	}
	data, err := json.MarshalIndent(recordFile{format, rec}, "", "  ")
	if err != nil {
		return nil, err
	}
	if err := durable.WriteFile(c.area.path(rec.Digest, infoSuffix), append(data, '\n'), 0o600); err != nil {
		return nil, err
	}
	list, err := c.area.List()
	if err != nil {
		return nil, err
	}
	for _, x := range list {
		if x.Application == rec.Application && x.ArtifactName == rec.ArtifactName && x.Digest != rec.Digest {
			if err := c.Drop(x); err != nil {
				return nil, err
			}
		}
	}
	return one, nil
}

// incoming is an artifact's file while it is read: it is counted, hashed and copied.
type incoming struct {
	from  io.Reader
	hash  hash.Hash
	copy  *durable.File // nil: it is not copied
	size  int64
	limit int64
}

func (in *incoming) Read(p []byte) (int, error) {
	n, err := in.from.Read(p)
	if in.size += int64(n); in.size > in.limit {
		return 0, tooLarge(in.size, in.limit)
	}
	in.hash.Write(p[:n])
	if in.copy != nil {
		if _, err := in.copy.Write(p[:n]); err != nil {
			return 0, err
		}
	}
	return n, err
}
