package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/submodules"
)

// Bounds of a call. The update module has the same.
const (
	maxReply = 8 << 20                // bytes of standard output
	maxLog   = 10000                  // lines of standard error
	maxLine  = 4 << 10                // bytes of one of them
	killWait = 3 * time.Second        // between TERM and KILL
	settle   = 300 * time.Millisecond // for processes that are just ending
)

// call is one call of the sub-module.
type call struct {
	args       []string // the verb first
	env        []string // beside the usual
	options    []string
	components []submodules.Component
	stopAfter  time.Duration  // when to send stopWith to the group; 0: never
	stopWith   syscall.Signal // KILL or TERM
	limit      time.Duration  // 0: the suite's
}

func (c call) verb() string {
	if len(c.args) == 0 {
		return "(none)"
	}
	return c.args[0]
}

// reply says how a call ended.
type reply struct {
	code           int // -1: ended by a signal
	stdout, stderr string
	took           time.Duration
	hung           bool // it did not end in time and was killed
	stopped        bool // it was still running when stopWith was sent
}

// error says what the call said, for a reason.
func (r reply) String() string {
	s := fmt.Sprintf("exit code %d", r.code)
	switch {
	case r.hung:
		s = fmt.Sprintf("it did not end within %s", r.took.Round(time.Second))
	case r.code < 0:
		s = "ended by a signal"
	}
	if last := lastLine(r.stderr); last != "" {
		s += ": " + excerpt(last)
	}
	return s
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

// caller calls the sub-module.
type caller struct {
	path   string
	env    []string
	limit  time.Duration
	marker string          // a variable of every call, by which its processes are found
	temp   string          // for the calls' temporary files
	begun  uint64          // when, in ticks since the machine started
	allow  map[int]bool    // processes that are the application's
	hung   map[string]bool // verbs that did not end in time
}

// do makes one call with bounded time and output. faults holds the rules that the
// call broke, with a reason for each.
func (c *caller) do(ctx context.Context, in call) (r reply, faults map[rule]string, err error) {
	faults = map[rule]string{}
	limit := in.limit
	if limit == 0 {
		limit = c.limit
	}
	if c.hung[in.verb()] {
		return reply{code: -1, hung: true}, faults, nil
	}
	tmp, err := os.MkdirTemp(c.temp, "call-")
	if err != nil {
		return r, nil, err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	cmd := exec.Command(c.path, in.args...)
	cmd.Dir = "/"
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/root", "LANG=C.UTF-8", submodules.EnvTempDir + "=" + tmp,
		submodules.EnvDeadline + "=" + strconv.Itoa(max(1, int(limit.Seconds()))), c.marker,
	}
	cmd.Env = append(append(cmd.Env, submodules.PassedEnv()...), c.env...)
	cmd.Env = append(cmd.Env, in.env...)
	if len(in.options) > 0 {
		cmd.Env = append(cmd.Env, submodules.EnvOptions+"="+strings.Join(in.options, " "))
	}
	if in.components != nil {
		file := filepath.Join(tmp, "components.json")
		text, err := json.Marshal(in.components)
		if err != nil {
			return r, nil, err
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return r, nil, err
		}
		cmd.Env = append(cmd.Env, submodules.EnvComponents+"="+file)
	}
	out, errs := &submodules.Capped{Max: maxReply}, &submodules.Capped{Max: maxReply}
	cmd.Stdout, cmd.Stderr = out, errs
	cmd.WaitDelay = settle
	begun := time.Now()
	group, err := submodules.StartGroup(cmd)
	if err != nil {
		return r, nil, err
	}
	var stop <-chan time.Time
	if in.stopAfter > 0 {
		stop = time.After(in.stopAfter)
	}
	late := time.After(limit)
	for running := true; running; {
		select {
		case <-group.Ended():
			running = false
		case <-stop:
			r.stopped = true
			group.Signal(in.stopWith)
			if in.stopWith != syscall.SIGKILL {
				late = time.After(killWait)
			}
		case <-late:
			r.hung = true
			group.Signal(syscall.SIGKILL)
			running = false
		case <-ctx.Done():
			group.Signal(syscall.SIGKILL)
			running = false
		}
	}
	r.took = time.Since(begun)
	whole := !r.hung && !r.stopped && ctx.Err() == nil
	if whole {
		c.judgeProcesses(in, group.ID(), faults)
	}
	err = group.Wait()
	if !whole {
		c.judgeProcesses(in, group.ID(), faults)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		return r, nil, err
	}
	if ctx.Err() != nil {
		return r, nil, ctx.Err()
	}
	r.code, r.stdout, r.stderr = cmd.ProcessState.ExitCode(), string(out.Bytes()), string(errs.Bytes())
	c.judge(in, r, out.Over || errs.Over, faults)
	if r.hung && !r.stopped {
		c.hung[in.verb()] = true
	}
	return r, faults, nil
}

// judge notes the rules that a call broke.
func (c *caller) judge(in call, r reply, over bool, faults map[rule]string) {
	if r.hung {
		faults[ruleTime] = r.String()
		if r.stopped {
			faults[ruleTime] = fmt.Sprintf("it did not end within %s after TERM", killWait)
		}
	}
	lines := strings.Split(r.stderr, "\n")
	if over {
		faults[ruleBounds] = fmt.Sprintf("it printed more than %d bytes", maxReply)
	} else if len(lines) > maxLog {
		faults[ruleBounds] = fmt.Sprintf("it printed more than %d lines to standard error", maxLog)
	}
	for _, line := range lines {
		if len(line) > maxLine {
			faults[ruleBounds] = fmt.Sprintf("it printed a line of more than %d bytes to standard error", maxLine)
		}
	}
	if r.hung || r.stopped || r.code == submodules.CodeDone || r.code < 0 || in.verb() == submodules.VerbAlive || in.verb() == submodules.VerbHealthy {
		return
	}
	if !strings.HasPrefix(lastLine(r.stderr), "error: ") || !strings.HasSuffix(r.stderr, "\n") {
		faults[ruleError] = fmt.Sprintf("it failed with code %d, and the last line of its standard error is %s", r.code, excerpt(lastLine(r.stderr)))
	}
}

// judgeProcesses notes the processes that a call left behind: those in its process
// group, and those outside of it that are not the application's. It kills the
// latter.
func (c *caller) judgeProcesses(in call, pgid int, faults map[rule]string) {
	own, _ := unix.Getsid(0)
	runs := slices.Contains([]string{submodules.VerbRollout, submodules.VerbRollback, submodules.VerbStart}, in.verb())
	for deadline := time.Now().Add(settle); ; time.Sleep(10 * time.Millisecond) {
		left := ""
		for pid, p := range c.mine() {
			switch {
			case p.group == pgid:
				left = "it left " + p.name + " running in its process group"
			case c.allow[pid], c.allow[p.parent], c.allow[p.session], runs:
				c.allow[pid] = true
				if p.session != own { // what its programs begin later is the application's as well
					c.allow[p.session] = true
				}
			default:
				left = "it left " + p.name + " running, outside of its process group"
				if time.Now().After(deadline) {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
		}
		if left == "" {
			return
		}
		if time.Now().After(deadline) { // it is not just ending
			faults[ruleProcesses] = left
			return
		}
	}
}

// mine returns the processes that any call so far has left, by process ID.
func (c *caller) mine() map[int]process {
	found := processes(c.begun)
	for pid := range found {
		env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
		if err != nil || pid == os.Getpid() || !strings.Contains("\x00"+string(env), "\x00"+c.marker+"\x00") {
			delete(found, pid)
		}
	}
	return found
}

type process struct {
	name                   string
	parent, group, session int
	begun                  uint64 // ticks since the machine started
}

// processes returns this machine's running processes that were started since a time,
// in ticks since the machine's start.
func processes(since uint64) map[int]process {
	list := map[int]process{}
	stats, _ := fs.Glob(os.DirFS("/proc"), "[0-9]*/stat")
	for _, stat := range stats {
		pid, err := strconv.Atoi(filepath.Dir(stat))
		text, rerr := os.ReadFile(filepath.Join("/proc", stat))
		if err != nil || rerr != nil {
			continue // it has ended
		}
		// PID (NAME) STATE PARENT GROUP SESSION …, see proc(5). NAME may contain any
		// character.
		open, end := strings.IndexByte(string(text), '('), strings.LastIndexByte(string(text), ')')
		if open < 0 || end < open {
			continue
		}
		rest := strings.Fields(string(text[end+1:]))
		if len(rest) < 20 || rest[0] == "Z" || rest[0] == "X" {
			continue
		}
		p := process{name: string(text[open+1 : end])}
		p.begun, err = strconv.ParseUint(rest[19], 10, 64)
		for i, number := range []*int{&p.parent, &p.group, &p.session} {
			var nerr error
			*number, nerr = strconv.Atoi(rest[1+i])
			err = errors.Join(err, nerr)
		}
		if err == nil && p.begun >= since {
			list[pid] = p
		}
	}
	return list
}

// now returns the current time in the unit of process.begun.
func now() uint64 {
	const perSecond = 100 // USER_HZ, the same on all machines that Go runs on
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t)
	return uint64(t.Sec)*perSecond + uint64(t.Nsec)/(1e9/perSecond)
}

// end kills the processes that calls left behind.
func (c *caller) end() {
	for range 10 {
		left := c.mine()
		if len(left) == 0 {
			return
		}
		for pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
