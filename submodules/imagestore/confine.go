package imagestore

import (
	"context"
	"os"
	"path/filepath"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/sandbox"
)

// Process says what a process that loads an image may access, besides its open
// files and the Unix sockets of the engine.
type Process struct {
	// Old are the directories with the engine's images, to be read.
	Old []string
	// Network is true if the engine or a registry is reached by TCP.
	Network bool
}

// maxMemory bounds the private writable memory of a process that loads an image,
// in bytes. The process needs some 30 MB, most of it reserved and not used.
const maxMemory = 256 << 20

// Confine removes the rights of this process that it does not need to load an image
// from the file path ("-" is standard input): the content is not verified yet. From
// then on the process can read the engine's images and the content, write only in
// q.TempDir, and run no program but the configured xdelta3. An older kernel enforces
// the part of this that it supports. If the kernel reports an error, Confine logs it
// and the load goes on: the update may be what fixes the device.
func (q LoadRequest) Confine(ctx context.Context, path string, p Process) {
	l := sandbox.Limits{Processor: sandbox.ProcessorTime(ctx), File: maxFile(q.TempDir)}
	if q.Xdelta3 == "" {
		l.Memory = maxMemory // xdelta3 needs more: its windows are as large as the delta says
	}
	if err := l.Set(); err != nil {
		q.Log("warning: no limits for reading content that is not verified: %v", err)
	}
	r := sandbox.Rights{Read: p.Old, Write: []string{q.TempDir}, Network: p.Network, Run: q.Xdelta3 != ""}
	if path != "-" {
		r.Read = append([]string{path}, p.Old...)
	}
	if os.Getenv(submodules.EnvTempDir) == "" { // the frame made the directory, and removes it
		r.RemoveIn = []string{filepath.Dir(q.TempDir)}
	}
	if _, err := sandbox.Enter(r); err != nil {
		q.Log("warning: content that is not verified is read without a sandbox: %v; SANDBOX=no in the configuration of the sub-module stops the attempt", err)
	}
}

// maxFile is the largest file that a load may write into dir, in bytes: a sixteenth of
// the free space stays free. It is 0 if the free space is unknown.
func maxFile(dir string) uint64 {
	free, err := FreeBytes(dir)
	if err != nil || free == NoRoomLimit {
		return 0
	}
	return uint64(max(free-free/16, 1))
}
