package compose

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/mender-app/mender-app/artifact/clip"
	"github.com/mender-app/mender-app/submodules"
)

// command is the Compose command of this machine.
type command struct {
	words  []string
	env    []string
	bounds *bounds // nil for none
}

// limited is the command with bounds on memory and processor time: six lines of YAML
// aliases can make the program take everything there is. processor is the most
// processor time it may take.
func (c *command) limited(processor time.Duration) *command {
	l := *c
	l.bounds = &bounds{Memory: composeMemory(), Processor: processor}
	return &l
}

// environ is the command's environment by name.
func (c *command) environ() map[string]string {
	env := map[string]string{}
	for _, kv := range c.env {
		k, v, _ := strings.Cut(kv, "=")
		env[k] = v
	}
	return env
}

// plugins are the places where the docker command looks for Compose, in its order. The
// plugin also runs without the docker command.
var plugins = []string{
	"/usr/local/lib/docker/cli-plugins/docker-compose",
	"/usr/local/libexec/docker/cli-plugins/docker-compose",
	"/usr/lib/docker/cli-plugins/docker-compose",
	"/usr/libexec/docker/cli-plugins/docker-compose",
}

// composeCommands are the commands that may be Compose, the best first.
//
// The docker command starts a plugin twice: it first asks for its name. So a plugin
// that the docker command would choose is started without it. A directory of the
// user's with Docker's configuration may name another one.
func (s *session) composeCommands() [][]string {
	if s.set.compose != nil {
		return [][]string{s.set.compose}
	}
	var direct [][]string
	for _, p := range plugins {
		direct = append(direct, []string{p})
	}
	asked := [][]string{append(slices.Clone(s.set.docker), "compose"), {"docker-compose"}}
	if !slices.Equal(s.set.docker, []string{defaultDocker}) || hasDockerConfig() {
		return append(asked, direct...)
	}
	return append(direct, asked...)
}

// hasDockerConfig reports whether there is a directory with Docker's configuration
// where Compose finds it.
func hasDockerConfig() bool {
	dir := os.Getenv("DOCKER_CONFIG")
	if dir == "" {
		u, err := user.LookupId(strconv.Itoa(os.Getuid())) // Compose does not get HOME
		if err != nil {
			return true // it cannot be known
		}
		dir = filepath.Join(u.HomeDir, ".docker")
	}
	_, err := os.Lstat(dir)
	return !errors.Is(err, fs.ErrNotExist)
}

// version asks the command for its version. Starting Compose takes about as long as the
// work of a verb: ask only where the answer matters.
func (c *command) version(ctx context.Context) (string, error) {
	out := submodules.Capped{Max: 4 << 10}
	if err := c.run(ctx, "", &out, io.Discard, "version", "--short"); err != nil {
		return "", err
	}
	return strings.TrimPrefix(strings.TrimSpace(string(out.Bytes())), "v"), nil
}

// before reports whether a version of Docker Compose is older than another one.
func before(version string, major, minor int) bool {
	var a, b int
	if _, err := fmt.Sscanf(version, "%d.%d", &a, &b); err != nil {
		return false
	}
	return a < major || a == major && b < minor
}

// findCompose finds Compose version 2 or later. Anything else is a missing
// requirement, and the error says what to do. A plugin is not asked for its version:
// Compose 1 was none.
func (s *session) findCompose(ctx context.Context) (*command, error) {
	env := composeEnv(s.engine.Host())
	const hint = "install the Docker Compose plugin (docker-compose-plugin, docker-compose-v2, or docker-compose of Debian 13), or set DOCKER_COMPOSE_COMMAND"
	var reason error
	for _, words := range s.composeCommands() {
		c := &command{words: words, env: env}
		if slices.Contains(plugins, words[0]) {
			if _, err := exec.LookPath(words[0]); err == nil {
				return c, nil
			}
			continue
		}
		version, err := c.version(ctx)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			continue
		}
		major, _, _ := strings.Cut(version, ".")
		n, err := strconv.Atoi(major)
		switch {
		case err != nil:
			reason = fmt.Errorf("%q does not say which Docker Compose it is; %s", strings.Join(words, " "), hint)
		case n < 2:
			reason = fmt.Errorf("%q is Docker Compose %s, too old: version 2 or later is needed; %s", strings.Join(words, " "), clip.Text(version), hint)
		default:
			return c, nil
		}
	}
	if reason == nil {
		reason = fmt.Errorf("no Docker Compose found; %s", hint)
	}
	return nil, submodules.Mark(reason, submodules.ErrRequirement)
}

// checkCompose makes sure that Compose is there and runs.
func (s *session) checkCompose(ctx context.Context) error {
	c, err := s.findCompose(ctx)
	if err != nil {
		return err
	}
	if _, err := c.version(ctx); err != nil && ctx.Err() == nil {
		return submodules.Mark(fmt.Errorf("%s does not run: %w; install the Docker Compose plugin again, or set DOCKER_COMPOSE_COMMAND", strings.Join(c.words, " "), err), submodules.ErrRequirement)
	}
	return ctx.Err()
}

// composeEnv is the whole environment of Compose: variables that an application's
// files use must come with the files, not from the caller. HOME is not set, so that
// files cannot use it; Compose finds its directory in the password file. Remote
// files are switched off, because some versions read them by default.
func composeEnv(host string) []string {
	env := []string{"DOCKER_HOST=" + host, "COMPOSE_ANSI=never", "DOCKER_CLI_HINTS=false", "COMPOSE_MENU=false",
		"COMPOSE_EXPERIMENTAL_GIT_REMOTE=false", "COMPOSE_EXPERIMENTAL_OCI_REMOTE=false"}
	for _, n := range []string{"PATH", "LANG", "DOCKER_CONFIG", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY", "DOCKER_API_VERSION", "XDG_RUNTIME_DIR"} {
		if v, ok := os.LookupEnv(n); ok {
			env = append(env, n+"="+v)
		}
	}
	return env
}

// graceful is the time that a command has after TERM: the update module kills a verb
// after 3 s.
const graceful = 2 * time.Second

// run runs Compose in dir and leaves no process behind: when the context ends, the
// command and all its descendants get TERM, and KILL later.
func (c *command) run(ctx context.Context, dir string, stdout, stderr io.Writer, args ...string) error {
	// The kernel sends the parent-death signal when the thread ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	args = append(append([]string{}, c.words[1:]...), args...)
	cmd := exec.CommandContext(ctx, c.words[0], args...)
	cmd.Dir = dir
	cmd.Env = c.env
	cmd.Stdout = stdout
	cmd.Stderr = stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	cmd.WaitDelay = graceful
	var tree []int
	cmd.Cancel = func() error {
		tree = descendants(cmd.Process.Pid)
		for _, pid := range tree {
			_ = syscall.Kill(pid, syscall.SIGTERM)
		}
		return cmd.Process.Signal(syscall.SIGTERM)
	}
	var over *overrun
	if c.bounds != nil {
		over = &overrun{Writer: stderr}
		if stdout == stderr {
			cmd.Stdout = over // one writer for both, or they would write to it at the same time
		}
		cmd.Stderr = over
	}
	err := cmd.Start()
	if err == nil {
		if c.bounds != nil {
			c.bounds.Set(cmd.Process.Pid)
		}
		err = cmd.Wait()
	}
	for _, pid := range tree {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	if ctx.Err() != nil && err != nil {
		return ctx.Err()
	}
	if err != nil && c.bounds != nil {
		return c.bounds.Explain(err, over)
	}
	return err
}

// killTries is how often Compose is called if it is killed each time, as by a kernel that is
// out of memory.
const killTries = 3

// wasKilled reports whether a command was killed by somebody else. The docker command ends
// with 255 or 128 and the signal when its child was.
func wasKilled(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	ws, ok := exit.Sys().(syscall.WaitStatus)
	return ok && (ws.Signaled() && ws.Signal() == syscall.SIGKILL || ws.ExitStatus() == 128+int(syscall.SIGKILL) || ws.ExitStatus() == 255)
}

// tail passes on lines and remembers the last ones.
type tail struct {
	log  func(string)
	line []byte
	last []string
}

const (
	tailLines = 5
	tailLine  = 1000
)

func (t *tail) Write(p []byte) (int, error) {
	for _, b := range p {
		if b == '\n' || b == '\r' {
			t.flush()
		} else if len(t.line) < tailLine {
			t.line = append(t.line, b)
		}
	}
	return len(p), nil
}

func (t *tail) flush() {
	s := strings.TrimSpace(strings.ToValidUTF8(string(t.line), "?"))
	t.line = t.line[:0]
	if s == "" {
		return
	}
	if t.log != nil {
		t.log(s)
	}
	if t.last = append(t.last, s); len(t.last) > tailLines {
		t.last = t.last[1:]
	}
}

// text is everything that is remembered.
func (t *tail) text() string {
	t.flush()
	return strings.Join(t.last, " ")
}

// reason is why a command failed: the last line of its output, or the signal that ended it.
func (t *tail) reason(err error) error {
	t.flush()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || len(t.last) == 0 {
		return err
	}
	if exit.ExitCode() < 0 {
		return fmt.Errorf("%w; it said last: %s", err, t.final())
	}
	return errors.New(t.final())
}

// final is the last line.
func (t *tail) final() string {
	if len(t.last) == 0 {
		return ""
	}
	return t.last[len(t.last)-1]
}
