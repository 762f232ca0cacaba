package modules

import (
	"io"
	"os"
	"path/filepath"
	"time"
)

// Leave makes it safe to end a Download that failed, and has to be called
// before the process of one ends; limit bounds the wait.
//
// Client 3.4.0 takes the end of a module that failed as one message and an
// offered file as another, and each side waits for the other if the module
// ends while no file is on offer: before the first, between two, or right
// after a file whose reading was given up. It then hangs for ever (seen in one
// of about 17 calls that failed at once; moduleDownload in its
// installer/modules.go). So wait until it has offered the next file, or said
// that there is none, and leave that one unread.
//
// The C++ client, which asks for DownloadWithFileSizes, does not need it.
func (t *Tree) Leave(limit time.Duration) {
	if t.streams != nil && t.streams.asked {
		return // it waits for us to read what it has offered, or has no more
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		f, err := os.Open(filepath.Join(t.dir, "stream-next")) // returns when the client opens it
		if err != nil {
			return
		}
		defer f.Close()
		_, _ = io.Copy(io.Discard, io.LimitReader(f, maxValue)) // what it says does not matter any more
	}()
	select {
	case <-answered:
	case <-time.After(limit):
	}
}
