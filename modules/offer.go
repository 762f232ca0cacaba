package modules

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// offer is stream-next, opened for one line of the client. It must be opened before
// the client writes this line, which means while the client still waits for the end of
// the previous file.
//
// It works around a fault in client 3.4.0. A finalizer of the client's stream objects
// (stream.cancel in its installer/modules.go) may open stream-next for reading for a
// moment. If the client offers a file at that moment and the module does not have
// stream-next open, the kernel drops the line with the last reader. The client then
// waits for a reader of the file, and the module for an offer, until the client's time
// limit of 4 hours. With Go's garbage collector at GOGC=1 this was seen in one of 72,000
// offers.
type offer struct {
	path string
	fd   int
}

// awaitOffer opens stream-next for an offer that has not come yet, or that the client
// is waiting to write.
func awaitOffer(dir string) (*offer, error) {
	o := &offer{path: filepath.Join(dir, "stream-next")}
	for {
		// Does not wait for the client.
		fd, err := unix.Open(o.path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err == nil {
			o.fd = fd
			return o, nil
		}
		if !errors.Is(err, unix.EINTR) {
			return nil, &os.PathError{Op: "open", Path: o.path, Err: err}
		}
	}
}

// read waits for the client and returns what it wrote until it closed its end.
func (o *offer) read() ([]byte, error) {
	var data []byte
	buf := make([]byte, 4096)
	for {
		if err := o.wait(-1); err != nil {
			return nil, err
		}
		n, err := unix.Read(o.fd, buf)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue
		case err != nil:
			return nil, &os.PathError{Op: "read", Path: o.path, Err: err}
		case n == 0:
			return data, nil
		}
		if data = append(data, buf[:n]...); len(data) > maxValue {
			return nil, fmt.Errorf("%s: more than %d bytes", o.path, maxValue)
		}
	}
}

// wait returns once the client has written, or has closed its end since the offer was
// opened. limit bounds the wait; a negative limit means no bound.
func (o *offer) wait(limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for {
		timeout := -1
		if limit >= 0 {
			timeout = int(max(time.Until(deadline), 0).Milliseconds())
		}
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(o.fd), Events: unix.POLLIN}}, timeout)
		if !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("poll", err)
		}
	}
}

func (o *offer) close() { _ = unix.Close(o.fd) }
