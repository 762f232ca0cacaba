package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Nothing of a sandbox can be undone: what is tested runs in processes of its
// own, which are this binary with an action in the environment.
func TestMain(m *testing.M) {
	if os.Getenv("TEST_SANDBOX") != "" {
		os.Exit(act())
	}
	os.Exit(m.Run())
}

// job is what a process does: it enters a sandbox, takes the steps, and reports.
type job struct {
	Rights Rights
	Limits Limits
	Steps  []step
}

type step struct {
	Action, Arg string
	Want        string // a regular expression for the error; "" is success
}

type report struct {
	State State
	Errs  []string // of the steps
}

func act() int {
	var j job
	if err := json.NewDecoder(os.Stdin).Decode(&j); err != nil {
		panic(err)
	}
	if err := j.Limits.Set(); err != nil {
		panic(err)
	}
	// Threads that are there already are restricted too.
	var ready, over sync.WaitGroup
	result := make(chan []string, 1)
	start := make(chan struct{})
	ready.Add(1)
	over.Add(1)
	go func() {
		defer over.Done()
		lockThread(ready.Done)
		<-start
		var errs []string
		for _, s := range j.Steps {
			said := ""
			if err := actions[s.Action](s.Arg); err != nil {
				said = err.Error()
			}
			errs = append(errs, said)
		}
		result <- errs
	}()
	ready.Wait()
	state, err := Enter(j.Rights)
	if err != nil {
		panic(err)
	}
	close(start)
	r := report{State: state, Errs: <-result}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		panic(err)
	}
	return 0
}

// run lets a process take the steps and checks what came of each.
func run(t *testing.T, j job) State {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	in, err := json.Marshal(j)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), "TEST_SANDBOX=1", "GORACE=atexit_sleep_ms=0")
	cmd.Stdin = strings.NewReader(string(in))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s", stderr.String())
	var r report
	require.NoError(t, json.Unmarshal(out, &r), "%s", out)
	require.Len(t, r.Errs, len(j.Steps))
	for i, s := range j.Steps {
		if s.Want == "" {
			require.Empty(t, r.Errs[i], "%s %s", s.Action, s.Arg)
		} else {
			require.Regexp(t, s.Want, r.Errs[i], "%s %s", s.Action, s.Arg)
		}
	}
	return r.State
}

func call(number uintptr, args ...uintptr) error {
	var a [3]uintptr
	copy(a[:], args)
	if _, _, e := unix.RawSyscall(number, a[0], a[1], a[2]); e != 0 {
		return e
	}
	return nil
}

// open opens a file and closes it.
func open(flags int) func(string) error {
	return func(at string) error {
		f, err := os.OpenFile(at, flags, 0o600)
		if err != nil {
			return err
		}
		return f.Close()
	}
}

func socket(family, kind int) func(string) error {
	return func(string) error {
		fd, err := unix.Socket(family, kind, 0)
		if err == nil {
			err = unix.Close(fd)
		}
		return err
	}
}

var actions = map[string]func(arg string) error{
	"read":   open(os.O_RDONLY),
	"write":  open(os.O_WRONLY),
	"create": open(os.O_WRONLY | os.O_CREATE | os.O_EXCL),
	"list":   func(at string) error { _, err := os.ReadDir(at); return err },
	"remove": os.Remove,
	"mkdir":  func(at string) error { return os.Mkdir(at, 0o700) },
	"rename": func(at string) error { return os.Rename(at, at+".new") },
	"link":   func(at string) error { return os.Symlink("/etc/passwd", at) },
	"exec":   func(at string) error { return exec.Command(at).Run() },
	"exec-here": func(at string) error {
		return unix.Exec(at, []string{at}, nil)
	},
	"connect": func(to string) error {
		network, address, _ := strings.Cut(to, ":")
		c, err := net.DialTimeout(network, address, time.Second)
		if err == nil {
			err = c.Close()
		}
		return err
	},
	"listen": func(at string) error {
		l, err := net.Listen("tcp", at)
		if err == nil {
			err = l.Close()
		}
		return err
	},
	"udp":     socket(unix.AF_INET, unix.SOCK_DGRAM),
	"packet":  socket(unix.AF_PACKET, unix.SOCK_RAW),
	"netlink": socket(unix.AF_NETLINK, unix.SOCK_RAW),
	"unix":    socket(unix.AF_UNIX, unix.SOCK_STREAM),
	"fork": func(string) error {
		return call(unix.SYS_CLONE, uintptr(unix.SIGCHLD))
	},
	"kill":      func(string) error { return unix.Kill(os.Getppid(), unix.SIGCONT) },
	"tgkill":    func(string) error { return unix.Tgkill(os.Getppid(), os.Getppid(), unix.SIGCONT) },
	"interrupt": func(string) error { return unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGCONT) },
	"ptrace":    func(string) error { return unix.PtraceAttach(os.Getppid()) },
	"mount":     func(at string) error { return unix.Mount("none", at, "tmpfs", 0, "") },
	"unshare":   func(string) error { return unix.Unshare(unix.CLONE_NEWUSER) },
	"chroot":    unix.Chroot,
	"bpf":       func(string) error { return call(unix.SYS_BPF) },
	"io_uring": func(string) error {
		return call(unix.SYS_IO_URING_SETUP, 1)
	},
	"module": func(string) error { return unix.DeleteModule("no-such-module", 0) },
	"own": func(dir string) error { // what a load does in its own directory
		at := filepath.Join(dir, "file")
		if err := os.WriteFile(at, []byte("text"), 0o600); err != nil {
			return err
		}
		if b, err := os.ReadFile(at); err != nil || string(b) != "text" {
			return fmt.Errorf("read %q: %w", b, err)
		}
		if err := os.Truncate(at, 2); err != nil {
			return err
		}
		return errors.Join(os.Remove(at), os.Mkdir(at, 0o700), os.Remove(at))
	},
	"many": func(string) error { // threads, timers, pipes
		done := make(chan error)
		for range 50 {
			go lockThread(func() {
				time.Sleep(5 * time.Millisecond)
				r, w := io.Pipe()
				go w.Close()
				_, err := io.Copy(io.Discard, r)
				done <- err
			})
		}
		var err error
		for range 50 {
			err = errors.Join(err, <-done)
		}
		return err
	},
	"large": func(dir string) error {
		return os.WriteFile(filepath.Join(dir, "large"), make([]byte, 1<<20), 0o600)
	},
	"lift": func(string) error {
		return unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: 8 << 30, Max: 8 << 30})
	},
}

// lockThread gives f a thread of its own.
func lockThread(f func()) {
	runtime.LockOSThread()
	f()
}

// need skips a test where the kernel lacks what it is about, and names it.
func need(t *testing.T, landlock int, seccomp bool) {
	t.Helper()
	k := Kernel()
	if k.Landlock < landlock {
		t.Skipf("the kernel has Landlock %d, this needs %d (0 is none)", k.Landlock, landlock)
	}
	if seccomp && !k.Seccomp {
		t.Skip("the kernel has no seccomp filters")
	}
}

// What a step without the right to it fails with: Landlock's error or seccomp's.
const (
	denied       = "permission denied"
	notPermitted = "operation not permitted"
	either       = denied + "|" + notPermitted
)

func TestFiles(t *testing.T) {
	need(t, 3, false)
	work, old, other := t.TempDir(), t.TempDir(), t.TempDir()
	for _, dir := range []string{old, other} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o666))
	}
	state := run(t, job{Rights: Rights{Read: []string{old, "/does/not/exist"}, Write: []string{work}}, Steps: []step{
		{"own", work, ""},
		{"read", old + "/file", ""},
		{"list", old, ""},
		{"read", "/dev/null", ""},
		{"write", "/dev/null", ""},
		{"write", "/etc/shadow", denied},
		{"read", "/etc/shadow", denied},
		{"read", "/proc/self/environ", denied},
		{"read", other + "/file", denied},
		{"list", other, denied},
		{"write", old + "/file", denied},
		{"create", old + "/new", denied},
		{"create", other + "/new", denied},
		{"create", "/tmp/mender-app-sandbox-test", denied},
		{"remove", old + "/file", denied},
		{"mkdir", other + "/dir", denied},
		{"rename", other + "/file", denied},
		{"link", other + "/link", either},
		{"remove", other, denied},
	}})
	require.Positive(t, state.Landlock)
	require.True(t, state.NoNewPrivs)
	require.FileExists(t, other+"/file")
	require.NoFileExists(t, "/tmp/mender-app-sandbox-test")
}

// The directory that a process was given to write in can be removed at its end,
// and nothing beside it that is not empty.
func TestRemoveIn(t *testing.T) {
	need(t, 1, false)
	parent := t.TempDir()
	work, full := filepath.Join(parent, "work"), filepath.Join(parent, "full")
	require.NoError(t, os.MkdirAll(filepath.Join(full, "inner"), 0o700))
	require.NoError(t, os.Mkdir(work, 0o700))
	run(t, job{Rights: Rights{Write: []string{work}, RemoveIn: []string{parent}}, Steps: []step{{"remove", full, "directory not empty"}, {"remove", work, ""}}})
	require.NoDirExists(t, work)
	require.DirExists(t, full)
}

func TestCalls(t *testing.T) {
	need(t, 0, true)
	at := filepath.Join(t.TempDir(), "socket")
	l, err := net.Listen("unix", at)
	require.NoError(t, err)
	defer l.Close()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer tcp.Close()
	port, work := "tcp:"+tcp.Addr().String(), t.TempDir()

	j := job{Steps: []step{{"connect", "unix:" + at, ""}, {"unix", "", ""}, {"many", "", ""}, {"interrupt", "", ""}}}
	for _, s := range []step{
		{"exec", "/bin/true", ""}, {"exec-here", "/bin/true", ""}, {"fork", "", ""}, {"connect", port, ""}, {"listen", "127.0.0.1:0", ""},
		{"udp", "", ""}, {"packet", "", ""}, {"netlink", "", ""}, {"kill", "", ""}, {"tgkill", "", ""}, {"ptrace", "", ""}, {"mount", work, ""}, {"unshare", "", ""},
		{"chroot", work, ""}, {"bpf", "", ""}, {"io_uring", "", ""}, {"module", "", ""}, {"lift", "", ""},
	} {
		s.Want = notPermitted
		j.Steps = append(j.Steps, s)
	}
	require.True(t, run(t, j).Seccomp)

	j = job{Rights: Rights{Network: true}, Steps: []step{{"connect", port, ""}, {"packet", "", notPermitted}, {"exec", "/bin/true", either}}}
	if Kernel().Landlock >= 4 {
		j.Steps = append(j.Steps, step{"listen", "127.0.0.1:0", denied})
	}
	run(t, j)
	run(t, job{Rights: Rights{Run: true}, Steps: []step{{"exec", "/bin/true", ""}, {"connect", port, notPermitted}, {"mount", work, notPermitted}}})
}

func TestLimits(t *testing.T) {
	dir := t.TempDir()
	run(t, job{Rights: Rights{Write: []string{dir}}, Limits: Limits{File: 1000}, Steps: []step{{"large", dir, "file too large"}}})
	fi, err := os.Stat(filepath.Join(dir, "large"))
	require.NoError(t, err)
	require.LessOrEqual(t, fi.Size(), int64(1000))
	run(t, job{Rights: Rights{Write: []string{dir}}, Limits: Limits{File: 2 << 20}, Steps: []step{{"large", dir, ""}}})
}

func TestProcessorTime(t *testing.T) {
	require.Zero(t, ProcessorTime(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	require.GreaterOrEqual(t, ProcessorTime(ctx), uint64(3599))
}
