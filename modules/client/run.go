package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/modules"
	"github.com/mender-app/mender-app/submodules"
)

// The time-outs of the Mender client.
const (
	stateTimeout = 4 * time.Hour
	killAfter    = 10 * time.Second
)

// CallError is a call of the module that failed.
type CallError struct {
	State modules.State
	Code  int    // exit code; -1 for a signal
	Line  string // the module's last line that begins with "error: "
}

func (e *CallError) Error() string {
	if e.Line != "" {
		return fmt.Sprintf("%s: %s", e.State, e.Line)
	}
	if e.Code < 0 {
		return fmt.Sprintf("%s: ended by a signal", e.State)
	}
	return fmt.Sprintf("%s: exit status %d", e.State, e.Code)
}

// codeBusy is the exit code of a module that did nothing because another process
// holds its lock. The call can be repeated later (EX_TEMPFAIL of sysexits.h).
const codeBusy = 75

// busy reports whether a call failed because the module was busy.
func busy(err error) bool {
	var call *CallError
	return errors.As(err, &call) && call.Code == codeBusy
}

// call is a running call of the module.
type call struct {
	cmd    *exec.Cmd
	stdout submodules.Capped
	stderr *lineWriter
	cancel context.CancelFunc
	done   chan struct{} // closed when the process has ended
	err    error
}

func (c *Client) start(ctx context.Context, s modules.State) (*call, error) {
	if c.Trace != nil {
		c.Trace(s)
	}
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	p := &call{cancel: cancel, done: make(chan struct{}), stdout: submodules.Capped{Max: 64 << 10}, stderr: &lineWriter{log: c.log}}
	p.cmd = exec.CommandContext(ctx, c.Module, string(s), c.tree())
	p.cmd.Dir = c.tree()
	p.cmd.Env = c.Env
	p.cmd.Stdout = &p.stdout
	p.cmd.Stderr = p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	p.cmd.Cancel = func() error { return syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM) }
	p.cmd.WaitDelay = killAfter
	started := make(chan error)
	go func() {
		defer close(p.done)
		defer cancel()
		// The kernel sends the parent-death signal when the thread that forked ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		err = p.cmd.Wait()
		p.stderr.flush()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = &CallError{State: s, Code: exit.ExitCode(), Line: p.stderr.failure}
		}
		p.err = err
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("update module: %w", err)
	}
	return p, nil
}

// run makes a call and waits until it ends.
func (c *Client) run(ctx context.Context, s modules.State) error {
	p, err := c.start(ctx, s)
	if err != nil {
		return err
	}
	<-p.done
	return p.err
}

// ask makes a call whose answer is one line.
func (c *Client) ask(ctx context.Context, s modules.State) (string, error) {
	p, err := c.start(ctx, s)
	if err != nil {
		return "", err
	}
	<-p.done
	if p.err != nil {
		return "", p.err
	}
	answer := strings.TrimSuffix(string(p.stdout.Bytes()), "\n")
	if strings.Contains(answer, "\n") {
		return "", fmt.Errorf("%s: more than one line of answer", s)
	}
	switch answer {
	case "", modules.No, modules.Yes, modules.Automatic:
		return answer, nil
	}
	return "", fmt.Errorf("%s: unexpected answer %q", s, answer)
}

// download calls Download or DownloadWithFileSizes and streams the payload to
// the module. If the module does not ask for the payload, it is stored.
func (c *Client) download(ctx context.Context, s modules.State, artifact *mender.Reader) error {
	p, err := c.start(ctx, s)
	if err != nil {
		return err
	}
	f := &feeder{c: c, call: p, artifact: artifact, sizes: s == modules.DownloadWithFileSizes}
	ferr := f.feed()
	if ferr != nil && !errors.Is(ferr, errEnded) {
		// The module must not mistake what it has read for the whole payload.
		p.cancel()
	}
	<-p.done
	switch {
	case ferr != nil && !errors.Is(ferr, errEnded):
		return ferr // the cause; the module's error only says that it was stopped
	case p.err != nil:
		return p.err
	case ferr != nil && f.asked:
		return fmt.Errorf("%s: the module did not read the whole payload", s)
	case ferr != nil:
		return c.storeFiles(artifact)
	}
	return nil
}

// errEnded: the module exited while the client waited for it.
var errEnded = errors.New("the module has ended")

// feeder streams a payload to a module.
type feeder struct {
	c        *Client
	call     *call
	artifact *mender.Reader
	sizes    bool
	asked    bool // the module has opened stream-next
}

func (f *feeder) feed() error {
	next := filepath.Join(f.c.tree(), "stream-next")
	for {
		// Wait for the module to ask: a payload that it does not read can still
		// be stored.
		w, err := f.open(next)
		if err != nil {
			return err
		}
		f.asked = true
		info, err := f.artifact.Next()
		if errors.Is(err, io.EOF) {
			return w.Close() // an empty answer is the end
		}
		if err != nil {
			_ = w.Close()
			return err
		}
		stream := filepath.Join("streams", info.Name)
		path := filepath.Join(f.c.tree(), stream)
		if err := unix.Mkfifo(path, 0o600); err != nil {
			_ = w.Close()
			return &os.PathError{Op: "mkfifo", Path: path, Err: err}
		}
		line := stream
		if f.sizes {
			line = fmt.Sprintf("%s %d", stream, info.Size)
		}
		_, err = io.WriteString(w, line+"\n")
		if cerr := w.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return f.ended(err)
		}
		if err := f.file(path); err != nil {
			return err
		}
	}
}

// file streams one file.
func (f *feeder) file(path string) error {
	w, err := f.open(path)
	if err != nil {
		return err
	}
	buf := make([]byte, 64<<10)
	for {
		n, rerr := f.artifact.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				_ = w.Close()
				return f.ended(err)
			}
		}
		if errors.Is(rerr, io.EOF) {
			return w.Close()
		}
		if rerr != nil {
			// Keep the pipe open until the module has stopped: closing it would
			// tell the module that the file is complete.
			go func() { <-f.call.done; _ = w.Close() }()
			return rerr
		}
	}
}

// open opens a pipe for writing once the module has opened it for reading.
func (f *feeder) open(path string) (*os.File, error) {
	for wait := time.Millisecond; ; wait = min(wait*2, 20*time.Millisecond) {
		w, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0)
		if err == nil {
			return w, nil
		}
		if !errors.Is(err, unix.ENXIO) {
			return nil, err
		}
		select {
		case <-f.call.done:
			return nil, errEnded
		case <-time.After(wait):
		}
	}
}

// ended returns errEnded for the error of writing to a module that has stopped
// reading: that is the module's decision, not a failure of the client.
func (f *feeder) ended(err error) error {
	if errors.Is(err, unix.EPIPE) {
		<-f.call.done
		return errEnded
	}
	return err
}

// storeFiles stores the payload in the tree, for a module that does not read
// streams.
func (c *Client) storeFiles(artifact *mender.Reader) error {
	dir := filepath.Join(c.tree(), "files")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for {
		info, err := artifact.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		w, err := os.OpenFile(filepath.Join(dir, info.Name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(w, artifact)
		if cerr := w.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return err
		}
	}
}

// lineWriter passes on whole lines. It keeps a last line that begins with
// "error:", which the caller prints as its own error.
type lineWriter struct {
	log     func(string)
	line    []byte
	failure string
}

func (w *lineWriter) Write(p []byte) (int, error) {
	for _, b := range p {
		if b == '\n' {
			w.flush()
		} else if len(w.line) < 16<<10 {
			w.line = append(w.line, b)
		}
	}
	return len(p), nil
}

func (w *lineWriter) flush() {
	line := strings.TrimRight(string(w.line), "\r")
	w.line = w.line[:0]
	if line == "" {
		return
	}
	if w.failure != "" {
		w.log("error: " + w.failure)
		w.failure = ""
	}
	if failure, ok := strings.CutPrefix(line, "error: "); ok {
		w.failure = failure
		return
	}
	w.log(line)
}
