package device

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/clip"
	"github.com/mender-app/mender-app/artifact/input"
	"github.com/mender-app/mender-app/modules/deploy"
	"github.com/mender-app/mender-app/submodules"
)

// FetchCommand is the hidden command of mender-app that fetches content. The update module
// has no room for HTTP.
const FetchCommand = "fetch"

// maxFetchOutput is how many bytes of each output of FetchCommand are kept.
const maxFetchOutput = 64 << 10

// FetchRequest is what FetchCommand reads from its standard input, as JSON.
type FetchRequest struct {
	Content artifact.Content `json:"content"`
	Sources []string         `json:"sources"`
}

// contentFetcher fetches content with mender-app.
type contentFetcher struct {
	c   *Config
	log *slog.Logger
}

var _ deploy.Content = &contentFetcher{}

// ContentDir is where content is fetched to.
func (c *Config) ContentDir() string { return c.OpenStore().Meta("content") }

// Fetch runs mender-app, which prints the path of the file. The file is compared here: what
// another process says is not enough.
func (f *contentFetcher) Fetch(ctx context.Context, content artifact.Content, sources []string) (*os.File, error) {
	program, err := exec.LookPath("mender-app")
	if err != nil {
		if program = "/usr/bin/mender-app"; unix.Access(program, unix.X_OK) != nil {
			return nil, fmt.Errorf("%w: its images are not in the artifact, and mender-app, which fetches them, is not installed", deploy.ErrUnfit)
		}
	}
	request, err := json.Marshal(FetchRequest{content, sources})
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, FetchCommand)
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.WaitDelay = killAfter
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	runtime.LockOSThread() // the signal comes when the thread that started the process ends
	defer runtime.UnlockOSThread()
	out, text := &submodules.Capped{Max: maxFetchOutput}, &submodules.Capped{Max: maxFetchOutput}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(request), out, text
	err = cmd.Run()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	lines := strings.Split(strings.TrimSpace(string(text.Bytes())), "\n")
	if err != nil {
		if last := clip.Line(strings.TrimPrefix(lines[len(lines)-1], "error: "), 1024); last != "" {
			return nil, errors.New(last)
		}
		return nil, err
	}
	for _, line := range lines {
		if line = clip.Line(line, 512); line != "" {
			f.log.Info(line)
		}
	}
	file, err := input.Open(strings.TrimSpace(string(out.Bytes())))
	if err != nil {
		return nil, err
	}
	if err := compare(ctx, file, content); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// compare reads a file to its end and goes back to its beginning. The error says that it is
// not the content.
func compare(ctx context.Context, f *os.File, want artifact.Content) error {
	if err := want.Compare(ctx, f); err != nil {
		return fmt.Errorf("%s: %w", f.Name(), err)
	}
	_, err := f.Seek(0, io.SeekStart)
	return err
}

// Drop removes what was fetched.
func (f *contentFetcher) Drop() error { return os.RemoveAll(f.c.ContentDir()) }

// checkMirror refuses what is neither a directory nor a URL to fetch from.
func checkMirror(m string) error {
	if filepath.IsAbs(m) {
		return nil
	}
	u, err := url.Parse(m)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("%q is neither the absolute path of a directory nor a URL https://HOST/DIRECTORY without user and query; content_token_file has a token", clip.Text(input.Source(m).String()))
	}
	return nil
}
