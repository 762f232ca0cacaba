package compose

import (
	"bytes"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
)

// proxy passes connections on to the engine until it is cut.
type proxy struct {
	path string
	mu   sync.Mutex
	open []net.Conn
	ln   net.Listener
}

func (b *bench) proxy() *proxy {
	b.Helper()
	target, ok := strings.CutPrefix(host(), "unix://")
	if !ok {
		missing(b.T, "this test needs an engine on a unix socket")
	}
	dir, err := os.MkdirTemp("", "p") // a socket's path must be short
	require.NoError(b, err)
	p := &proxy{path: filepath.Join(dir, "s")}
	p.ln, err = net.Listen("unix", p.path)
	require.NoError(b, err)
	b.Cleanup(func() { p.cut(); os.RemoveAll(dir) })
	go func() {
		for {
			c, err := p.ln.Accept()
			if err != nil {
				return
			}
			e, err := net.Dial("unix", target)
			if err != nil {
				c.Close()
				continue
			}
			p.mu.Lock()
			p.open = append(p.open, c, e)
			p.mu.Unlock()
			go func() { _, _ = io.Copy(e, c); _ = e.(*net.UnixConn).CloseWrite() }()
			go func() { _, _ = io.Copy(c, e); c.Close() }()
		}
	}()
	return p
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.ln.Close()
	for _, c := range p.open {
		c.Close()
	}
}

// halfway gives the first part of content, calls then, and goes on.
type halfway struct {
	*bytes.Reader
	at   int
	then func()
}

func (h *halfway) Read(p []byte) (int, error) {
	if done := int(h.Size()) - h.Len(); done >= h.at && h.then != nil {
		f := h.then
		h.then = nil
		f()
	}
	if len(p) > 16<<10 {
		p = p[:16<<10]
	}
	return h.Reader.Read(p)
}

// After a LOAD that did not come to its end, for whatever reason, nothing is
// registered, and the next one brings the image in.
func TestLoadEndsHalfway(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	img, comp := b.image("1")
	content, err := os.ReadFile(b.archive(img, "x:1"))
	require.NoError(t, err)
	request := func(r io.Reader) submodules.LoadRequest {
		return submodules.LoadRequest{Request: submodules.Request{App: b.app, Components: []submodules.Component{comp}}, URL: comp.URL, Path: "-", Stdin: r, Stage: true}
	}
	nothing := func() {
		t.Helper()
		list, err := b.mod.List(t.Context(), submodules.Request{App: b.app})
		require.NoError(t, err)
		require.Empty(t, list)
	}
	t.Run("killed", func(t *testing.T) {
		err := b.mod.Load(t.Context(), request(&halfway{bytes.NewReader(content), len(content) / 2, func() {
			out, err := exec.Command("pkill", "-9", "-P", strconv.Itoa(os.Getpid()), "-f", " LOAD "+b.app).CombinedOutput()
			require.NoError(t, err, "%s", out)
		}}))
		var ce *submodules.CallError
		require.ErrorAs(t, err, &ce)
		require.Equal(t, "killed", ce.Signal)
		nothing()
	})
	t.Run("engine gone", func(t *testing.T) {
		p := b.proxy()
		saved := b.mod.Config.Env
		b.mod.Config.Env = append(append([]string{}, saved...), "DOCKER_HOST=unix://"+p.path)
		err := b.mod.Load(t.Context(), request(&halfway{bytes.NewReader(content), len(content) / 2, p.cut}))
		b.mod.Config.Env = saved
		require.ErrorIs(t, err, submodules.ErrFailed)
		require.ErrorContains(t, err, "docker load")
		nothing()
	})
	require.NoError(t, b.mod.Load(t.Context(), request(bytes.NewReader(content))))
	bad, err := b.mod.Verify(t.Context(), submodules.Request{App: b.app, Components: []submodules.Component{comp}})
	require.NoError(t, err)
	require.Empty(t, bad)
}

// A ROLLOUT killed at any time is made good by the same call, or by ROLLBACK.
func TestRolloutKilled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v1, v2 := b.load("1"), b.load("2")
	one := submodules.Request{App: b.app, Dir: b.release("1", compose(b.app, "")), Components: []submodules.Component{v1}}
	require.NoError(t, b.mod.Rollout(t.Context(), one))
	old := b.id(b.app + ":1")
	two := one
	two.Components = []submodules.Component{v2}
	for _, after := range []time.Duration{100, 300, 600, 1000, 1500, 2500} {
		b.release("2", compose(b.app, "    command: [sleep, v2]\n"))
		done := make(chan error, 1)
		go func() { done <- b.mod.Rollout(t.Context(), two) }()
		time.Sleep(after * time.Millisecond)
		_ = exec.Command("pkill", "-9", "-P", strconv.Itoa(os.Getpid()), "-f", " ROLLOUT "+b.app).Run()
		<-done
		if after%200 == 100 { // the same again first, half of the times
			require.NoError(t, b.mod.Rollout(t.Context(), two))
			require.NotEqual(t, old, b.one("web").ImageID)
		}
		b.release("1", nil)
		require.NoError(t, b.mod.Rollback(t.Context(), submodules.RollbackRequest{Request: one}))
		require.Equal(t, old, b.one("web").ImageID)
		require.Equal(t, "running", string(b.one("web").State))
		require.Equal(t, old, b.id(b.app+":1"))
	}
}
