package imagestore

import (
	"context"
	"os"
	"path/filepath"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/sandbox"
)

// Process says what a process that loads an image may reach, beside its open
// files and the Unix sockets of the engine.
type Process struct {
	// Old are the directories with the engine's images, to be read.
	Old []string
	// Network is true where the engine or a registry is reached by TCP.
	Network bool
}

// maxMemory bounds the private writable memory of a process that loads an image,
// in bytes. It has some 30 MB; most of that is reserved and not used.
const maxMemory = 256 << 20

// Confine takes from this process the rights that it does not need to load an
// image from the file path ("-" is standard input): what it reads there is not
// verified yet. From then on it reads the engine's images and the content, writes
// only in q.TempDir, and runs no program but the configured xdelta3. A kernel
// that cannot do all of it does what it can. If the kernel refuses, the log says
// so and the load goes on: an update may bring the remedy.
func (q LoadRequest) Confine(ctx context.Context, path string, p Process) {
	l := sandbox.Limits{Processor: sandbox.ProcessorTime(ctx), File: maxFile(q.TempDir)}
	if q.Xdelta3 == "" {
		l.Memory = maxMemory // xdelta3 keeps to the window that it is told
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

// maxFile is the largest file that a load may write into dir, in bytes: a
// sixteenth of what is free stays free. It is 0 where that is unknown.
func maxFile(dir string) uint64 {
	free, err := FreeBytes(dir)
	if err != nil || free == NoRoomLimit {
		return 0
	}
	return uint64(max(free-free/16, 1))
}
