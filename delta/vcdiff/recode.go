package vcdiff

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// How long xdelta3 may run, and how long it may take to exit after its end or a
// kill.
const (
	recodeTime = time.Hour
	recodeWait = 10 * time.Second
)

// A recoder is a running `xdelta3 recode`. It rewrites the delta without secondary
// compression, with the same windows and checksums.
type recoder struct {
	cmd    *exec.Cmd
	out    *os.File
	in     *noted
	stderr limited
	cancel context.CancelFunc
	name   Secondary
}

// recode starts xdelta3 for a delta whose header was read.
func recode(ctx context.Context, command string, h Header, rest io.Reader) (*recoder, error) {
	path, err := exec.LookPath(command)
	if err != nil {
		return nil, &SecondaryError{Secondary: h.Secondary, Err: err}
	}
	pr, pw, err := os.Pipe()
	if err != nil {
		return nil, &SecondaryError{Secondary: h.Secondary, Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, recodeTime)
	c := &recoder{out: pr, cancel: cancel, name: h.Secondary}
	// -A: write no application header (it was read already), -D -R: whatever
	// that header says, start no gzip.
	c.cmd = exec.CommandContext(ctx, path, "recode", "-q", "-c", "-A", "-D", "-R", "-S", "none")
	head := Magic + string([]byte{hdrSecondary, byte(h.Secondary)})
	c.in = &noted{r: io.MultiReader(strings.NewReader(head), rest)}
	c.cmd.Stdin = c.in
	c.cmd.Stdout = pw
	c.cmd.Stderr = &c.stderr
	c.cmd.Dir = "/"
	// Pass on nothing of our environment: xdelta3 reads arguments from $XDELTA.
	c.cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.cmd.Cancel = func() error { return syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) }
	c.cmd.WaitDelay = recodeWait
	err = c.cmd.Start()
	_ = pw.Close()
	if err != nil {
		_ = pr.Close()
		cancel()
		return nil, &SecondaryError{Secondary: h.Secondary, Err: err}
	}
	return c, nil
}

// kill ends the command. It may leave a goroutine that reads the delta until
// that read returns.
func (c *recoder) kill() { _ = c.wait(false) }

// wait waits for the end of the command, and returns its error with what it
// printed.
func (c *recoder) wait(ended bool) error {
	defer c.cancel()
	_ = c.out.Close()
	if !ended {
		// The command may have failed, which explains the error. To kill a command
		// that has ended is harmless.
		c.cancel()
	}
	err := c.cmd.Wait()
	var exit *exec.ExitError
	if !ended && (!errors.As(err, &exit) || !exit.Exited()) {
		return nil // it was killed here, so its messages mean nothing
	}
	if rerr := c.in.error(); rerr != nil {
		return rerr // the reader failed, and xdelta3 saw the end of its input
	}
	if err == nil {
		return nil
	}
	if msg := c.stderr.line(); msg != "" {
		err = fmt.Errorf("%w: %s", err, msg)
	}
	return &SecondaryError{Secondary: c.name, Err: fmt.Errorf("xdelta3 recode: %w", err)}
}

// noted keeps the error of its reader, which the command does not see.
type noted struct {
	r   io.Reader
	err atomic.Pointer[error]
}

func (n *noted) Read(p []byte) (int, error) {
	m, err := n.r.Read(p)
	if err != nil && err != io.EOF {
		n.err.Store(&err)
	}
	return m, err
}

func (n *noted) error() error {
	if err := n.err.Load(); err != nil {
		return *err
	}
	return nil
}

// limited keeps the first bytes that are written to it.
type limited struct{ buf []byte }

func (l *limited) Write(p []byte) (int, error) {
	if room := 512 - len(l.buf); room > 0 {
		l.buf = append(l.buf, p[:min(room, len(p))]...)
	}
	return len(p), nil
}

// line returns these bytes as one line.
func (l *limited) line() string {
	return strings.Join(strings.Fields(strings.ToValidUTF8(string(l.buf), "?")), " ")
}
