package submodules

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/artifact/scratch"
)

const (
	maxStdout        = 8 << 20 // of a reply, in bytes
	maxLine          = 4 << 10 // of a line of stderr, in bytes; the rest of it is cut
	maxLines         = 10000   // of stderr passed to Log in a call; the last is always kept
	defaultKillAfter = 10 * time.Second
)

// Call runs one process. It returns when that process and everything in its process
// group has ended. A reply that does not go to Request.Stdout is bounded by 8 MiB.
func (m *Module) Call(ctx context.Context, verb string, r AnyRequest) (reply []byte, err error) {
	args, err := arguments(verb, r)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", m.Name, verb, err)
	}
	if to := r.Common().Stdout; to != nil {
		return nil, m.run(ctx, r, to, verb, args)
	}
	out := &Capped{Max: maxStdout}
	err = m.run(ctx, r, out, verb, args)
	if err == nil && out.Over {
		err = fmt.Errorf("%s %s: reply is longer than %d bytes", m.Name, verb, maxStdout)
	}
	return out.Bytes(), err
}

// run makes one call with its standard output going to stdout.
func (m *Module) run(ctx context.Context, r AnyRequest, stdout io.Writer, verb string, args []string) error {
	if m.Config.Deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, m.Config.Deadline)
		defer cancel()
	}
	for _, a := range args {
		if strings.ContainsRune(a, 0) {
			return fmt.Errorf("%s %s: argument %q has a NUL byte", m.Name, verb, a)
		}
	}
	env, cleanup, err := m.environ(ctx, r)
	if err != nil {
		return fmt.Errorf("%s %s: %w", m.Name, verb, err)
	}
	defer cleanup()

	log := r.Common().Log
	if log == nil {
		log = m.Config.Log
	}
	lines := &lineWriter{log: log}
	callCtx, cancel := context.WithCancel(ctx)
	defer cancel()

	cmd := exec.Command(m.Path, append([]string{verb}, args...)...)
	cmd.Dir = "/"
	cmd.Env = env
	cmd.Stdout = stdout
	cmd.Stderr = lines
	var stdin *source
	if content := r.fields().stdin; content != nil && *content != nil {
		stdin = &source{r: *content, fail: cancel}
		cmd.Stdin = stdin
	}
	err = RunGroup(callCtx, cmd, m.Config.KillAfter)
	lines.flush()
	if errors.Is(err, exec.ErrWaitDelay) { // it ended well
		err = nil
		if stdin == nil && log != nil { // otherwise only the reader of its input may be stuck
			log("warning: " + m.Name + " " + verb + " left a process outside its process group that holds its output open")
		}
	}
	if rerr := stdin.failure(); rerr != nil {
		return fmt.Errorf("%s %s: read content: %w", m.Name, verb, rerr)
	}
	if err == nil {
		return nil
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return m.startError(err)
	}
	ce := &CallError{Module: m.Name, Verb: verb, Code: exit.ExitCode(), LastLine: lines.last}
	if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		ce.Signal = ws.Signal().String()
	}
	if ctx.Err() != nil {
		ce.Code = CodeDeadline
		if ce.LastLine == "" {
			ce.LastLine = ctx.Err().Error()
		}
	}
	return ce
}

// startError says why the executable could not be started.
func (m *Module) startError(err error) error {
	switch {
	case errors.Is(err, syscall.ENOEXEC):
		return &NotExecutableError{Path: m.Path, Reason: "it is " + MadeFor(m.Path) + " and this machine runs " + runtime.GOARCH + ": install the package for it"}
	case errors.Is(err, fs.ErrNotExist):
		if _, serr := os.Stat(m.Path); serr == nil {
			return &NotExecutableError{Path: m.Path, Reason: "its interpreter is missing"}
		}
		return &NotFoundError{Orchestrator: m.Name, Path: m.Path}
	case errors.Is(err, fs.ErrPermission):
		return &NotExecutableError{Path: m.Path, Reason: "permission denied"}
	}
	return fmt.Errorf("run %s: %w", m.Path, err)
}

// MadeFor says what kind of file the kernel refused to run.
func MadeFor(path string) string {
	const other = "not a program for any known machine"
	f, err := os.Open(path)
	if err != nil {
		return other
	}
	defer f.Close()
	var head [20]byte // of an ELF file, to the end of e_machine
	if _, err := io.ReadFull(f, head[:]); err != nil || string(head[:4]) != "\x7fELF" {
		return other
	}
	order := binary.ByteOrder(binary.LittleEndian)
	if head[5] == 2 { // EI_DATA
		order = binary.BigEndian
	}
	machine := order.Uint16(head[18:])
	name, ok := map[uint16]string{
		3: "386", 8: "mips", 20: "ppc", 21: "ppc64", 22: "s390x", 40: "arm", 62: "amd64", 183: "arm64", 243: "riscv64", 258: "loong64",
	}[machine]
	if !ok {
		name = "another processor (ELF machine " + strconv.Itoa(int(machine)) + ")"
	}
	return "a program for " + name
}

// RunGroup runs cmd in its own process group until it ends. If ctx ends first, the
// group gets TERM, and KILL after killAfter (0 means 10 seconds). Processes left in the
// group after cmd has ended are killed, so that nothing stays behind.
func RunGroup(ctx context.Context, cmd *exec.Cmd, killAfter time.Duration) error {
	if killAfter <= 0 {
		killAfter = defaultKillAfter
	}
	// Bounds the wait for our copying goroutines once the process has ended.
	cmd.WaitDelay = killAfter
	if err := ctx.Err(); err != nil {
		return err
	}
	g, err := StartGroup(cmd)
	if err != nil {
		return err
	}
	select {
	case <-g.Ended():
		return g.Wait()
	case <-ctx.Done():
	}
	g.Signal(syscall.SIGTERM)
	t := time.NewTimer(killAfter)
	defer t.Stop()
	select {
	case <-g.Ended():
	case <-t.C:
		g.Signal(syscall.SIGKILL)
	}
	return g.Wait()
}

// Group is a running command in a process group of its own.
type Group struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// StartGroup starts cmd in its own process group. Wait must be called by the same
// goroutine. Until then the goroutine keeps its thread, because the kernel sends the
// parent-death signal when the thread that forked ends, not the process.
func StartGroup(cmd *exec.Cmd) (*Group, error) {
	runtime.LockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		runtime.UnlockOSThread()
		return nil, err
	}
	g := &Group{cmd: cmd, ended: make(chan struct{})}
	go func() {
		waitExited(g.ID())
		close(g.ended)
	}()
	return g, nil
}

// ID is the number of the group and of the process that leads it.
func (g *Group) ID() int { return g.cmd.Process.Pid }

// Ended is closed when the process has ended. Others of its group may still run.
func (g *Group) Ended() <-chan struct{} { return g.ended }

// Signal sends a signal to all processes of the group. The group keeps its number until
// Wait is called, because its leader stays a zombie.
func (g *Group) Signal(s syscall.Signal) { _ = syscall.Kill(-g.ID(), s) }

// Wait waits for the process to end, kills what is left of its group, and returns what
// exec.Cmd's Wait returns.
func (g *Group) Wait() error {
	defer runtime.UnlockOSThread()
	<-g.ended
	g.Signal(syscall.SIGKILL)
	return g.cmd.Wait()
}

// waitExited returns when the process has ended, without reaping it.
func waitExited(pid int) {
	const pPID, wexited, wnowait = 1, 4, 0x1000000
	var siginfo [128]byte
	for {
		_, _, e := syscall.Syscall6(syscall.SYS_WAITID, pPID, uintptr(pid),
			uintptr(unsafe.Pointer(&siginfo)), wexited|wnowait, 0, 0)
		if e != syscall.EINTR {
			return
		}
	}
}

// PassedEnv is the part of the caller's own environment that a sub-module gets, each
// "NAME=value".
func PassedEnv() (env []string) {
	for _, n := range passedEnv {
		if v := os.Getenv(n); v != "" {
			env = append(env, n+"="+v)
		}
	}
	return env
}

// environ returns the complete environment of a call. cleanup removes the files it
// made.
func (m *Module) environ(ctx context.Context, req AnyRequest) (env []string, cleanup func(), err error) {
	cleanup = func() {}
	r, fields := req.Common(), req.fields()
	set := map[string]string{
		"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"LANG": "C.UTF-8",
		"HOME": "/root",
	}
	for _, kv := range PassedEnv() {
		k, v, _ := strings.Cut(kv, "=")
		set[k] = v
	}
	if m.Config.ConfigDir != "" {
		set[EnvConfigDir] = m.Config.ConfigDir
	}
	if m.Config.Store != "" {
		set[EnvStore] = m.Config.Store
	}
	for _, kv := range m.Config.Env {
		k, v, _ := strings.Cut(kv, "=")
		set[k] = v
	}
	for k, v := range r.Env {
		// An artifact must not choose the programs or libraries that root runs.
		if err := names.CheckEnv(k); err != nil {
			return nil, cleanup, fmt.Errorf("the environment of the metadata: %w", err)
		}
		if strings.ContainsRune(v, 0) {
			return nil, cleanup, fmt.Errorf("the metadata's %s has a NUL byte", k)
		}
		set[k] = v
	}
	var options []string
	for word, is := range fields.options {
		if *is {
			options = append(options, word)
		}
	}
	if sort.Strings(options); len(options) > 0 {
		set[EnvOptions] = strings.Join(options, " ")
	}
	maps.Copy(set, fields.variables())
	if r.Platform != "" {
		set[EnvPlatform] = r.Platform
	}
	if len(r.Disabled) > 0 {
		set[EnvDisabled] = strings.Join(r.Disabled, " ")
	}
	if r.CPUSet != nil {
		set[EnvCPUSet] = r.CPUSet.String()
	}
	if d, ok := ctx.Deadline(); ok {
		set[EnvDeadline] = strconv.Itoa(max(int(time.Until(d).Seconds()), 1))
	}
	tmp := r.TempDir
	if tmp == "" {
		if tmp, err = scratch.Dir("", scratch.Prefix); err != nil {
			return nil, cleanup, fmt.Errorf("temporary directory: %w", err)
		}
		own := tmp
		cleanup = func() { _ = scratch.Remove(own) }
	}
	set[EnvTempDir] = tmp
	if r.Components != nil {
		name, err := writeComponents(tmp, r.Components)
		if err != nil {
			cleanup()
			return nil, func() {}, err
		}
		set[EnvComponents] = name
		rest := cleanup
		cleanup = func() { _ = os.Remove(name); rest() }
	}
	if len(r.Overrides) > 0 {
		dir, err := writeOverrides(tmp, r.Overrides)
		if err != nil {
			cleanup()
			return nil, func() {}, fmt.Errorf("overrides: %w", err)
		}
		set[EnvOverrides] = dir
		rest := cleanup
		cleanup = func() { _ = os.RemoveAll(dir); rest() }
	}
	if len(r.Values) > 0 {
		name, err := writeValues(tmp, r.Values)
		if err != nil {
			cleanup()
			return nil, func() {}, fmt.Errorf("values: %w", err)
		}
		set[EnvValues] = name
		rest := cleanup
		cleanup = func() { _ = os.Remove(name); rest() }
	}
	for k, v := range set {
		env = append(env, k+"="+v)
	}
	sort.Strings(env)
	return env, cleanup, nil
}

func writeComponents(dir string, list []Component) (string, error) {
	data, err := json.Marshal(list)
	if err != nil {
		return "", fmt.Errorf("components: %w", err)
	}
	f, err := os.CreateTemp(dir, "components-*.json")
	if err != nil {
		return "", fmt.Errorf("components: %w", err)
	}
	_, err = f.Write(data)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return "", fmt.Errorf("components: %w", err)
	}
	return f.Name(), nil
}

// source passes on r. It remembers an error of r and ends the call: to the sub-module
// a failed reader would look like the end of the content.
type source struct {
	r    io.Reader
	fail func()
	mu   sync.Mutex
	err  error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
		s.fail()
	}
	return n, err
}

func (s *source) failure() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Capped keeps the first Max bytes of a command's output and discards the rest.
type Capped struct {
	Max  int
	Over bool // there was more
	buf  bytes.Buffer
}

// Bytes returns the kept bytes.
func (c *Capped) Bytes() []byte { return c.buf.Bytes() }

// Write implements io.Writer; it never fails.
func (c *Capped) Write(p []byte) (int, error) {
	n := len(p)
	if room := c.Max - c.buf.Len(); n > room {
		c.Over = true
		p = p[:room]
	}
	c.buf.Write(p)
	return n, nil
}

// lineWriter passes on whole lines, bounded in length and number.
type lineWriter struct {
	log   func(string)
	line  []byte
	count int
	last  string
}

func (w *lineWriter) Write(p []byte) (int, error) {
	for _, b := range p {
		if b == '\n' {
			w.flush()
		} else if len(w.line) < maxLine {
			w.line = append(w.line, b)
		}
	}
	return len(p), nil
}

func (w *lineWriter) flush() {
	s := strings.TrimRight(strings.ToValidUTF8(string(w.line), "?"), "\r ")
	w.line = w.line[:0]
	if s == "" {
		return
	}
	w.last = strings.TrimPrefix(s, "error: ")
	w.count++
	if w.log == nil || w.count > maxLines {
		return
	}
	w.log(s)
	if w.count == maxLines {
		w.log("(more output left out)")
	}
}
