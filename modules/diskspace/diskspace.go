// Package diskspace reports whether file systems have the room that an update needs. It
// must not know what needs it.
package diskspace

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact/metered"
)

// The margin of free space beyond what the metadata announces: 5 % and 16 MiB,
// for the journal, logs and rounding by file systems.
const (
	marginPart  = 20
	marginBytes = 16 << 20
)

// Need is the space that a file system must have free.
type Need struct {
	Dir   string
	Bytes int64
}

// Free returns the space, in bytes, that is free for root in a directory's file
// system, and the file system's number.
func Free(dir string) (free int64, dev uint64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	var fi unix.Stat_t
	if err := unix.Stat(dir, &fi); err != nil {
		return 0, 0, &fs.PathError{Op: "stat", Path: dir, Err: err}
	}
	return int64(st.Bavail) * int64(st.Bsize), uint64(fi.Dev), nil // their types depend on the machine
}

// Total returns the size, in bytes, of a directory's file system.
func Total(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return int64(st.Blocks) * int64(st.Bsize), nil // their types depend on the machine
}

// Room returns how many bytes may be written to a directory where the
// metadata announces no sizes: the free space minus the margin, at least 1.
func Room(dir string, free func(dir string) (int64, uint64, error)) (int64, error) {
	have, _, err := free(dir)
	if err != nil {
		return 0, err
	}
	room := have - marginBytes
	return max(1, room-room/(marginPart+1)), nil
}

// Check returns an error that says where space is missing and how much. free is
// Free, except in tests.
func Check(needs []Need, free func(dir string) (int64, uint64, error)) error {
	type total struct {
		Need
		free int64
	}
	var order []uint64
	totals := map[uint64]*total{}
	for _, n := range needs {
		if n.Bytes < 0 {
			return errors.New("the metadata announces a negative size")
		}
		have, dev, err := free(n.Dir)
		if err != nil {
			return err
		}
		t, ok := totals[dev]
		if !ok {
			t = &total{Need: Need{Dir: n.Dir}, free: have}
			totals[dev] = t
			order = append(order, dev)
		}
		if t.Bytes += n.Bytes; t.Bytes < 0 {
			t.Bytes = math.MaxInt64
		}
	}
	for _, dev := range order {
		t := totals[dev]
		want := t.Bytes + t.Bytes/marginPart + marginBytes
		if want < 0 || t.free < want {
			return fmt.Errorf("not enough space on the file system of %s: %s are needed and %s are free: free some and try again",
				t.Dir, metered.Human(want), metered.Human(t.free))
		}
	}
	return nil
}

// Written returns how many bytes were written to the disk of a directory since the
// machine was started, and the disk's number. ok is false if the directory's file
// system is not on one disk that the kernel counts for.
func Written(dir string) (disk uint64, bytes int64, ok bool) {
	var fi unix.Stat_t
	if unix.Stat(dir, &fi) != nil {
		return 0, 0, false
	}
	disk = uint64(fi.Dev) // its type depends on the machine
	text, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/stat", unix.Major(disk), unix.Minor(disk)))
	if err != nil {
		return 0, 0, false
	}
	const field, sector = 6, 512 // the kernel's Documentation/block/stat.rst
	fields := strings.Fields(string(text))
	if len(fields) <= field {
		return 0, 0, false
	}
	sectors, err := strconv.ParseInt(fields[field], 10, 64)
	return disk, sectors * sector, err == nil
}

// Existing returns path if it exists, else its nearest parent that does.
func Existing(path string) string {
	for {
		if _, err := os.Stat(path); err == nil || path == filepath.Dir(path) {
			return path
		}
		path = filepath.Dir(path)
	}
}

// Exhausted reports whether something failed because a disk is full. The error may
// come from a sub-module, as a text: its engine may use the store's file system.
func Exhausted(err error) bool {
	return err != nil && (errors.Is(err, unix.ENOSPC) || strings.Contains(err.Error(), unix.ENOSPC.Error()))
}
