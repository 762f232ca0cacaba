package benchmarks

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// readers are how many programs read the events of serve during an update. Each asks how
// the applications are as well, again and again.
const readers = 50

// TestBenchOfClients measures what clients of serve cost an update: the same update
// through the Mender client, with and without them in turn. The medians differ by no more
// than the updates without clients do among themselves.
func TestBenchOfClients(t *testing.T) {
	if os.Getenv("MENDER_APP_BENCH") == "" {
		t.Skip("takes minutes: make bench")
	}
	const rounds = 8
	d := e2e.Device(t)
	e2e.Mender(t, d, "install", e2e.Release(t, d, "1", ""))
	e2e.Mender(t, d, "commit")
	artifact := e2e.Release(t, d, "2", "")
	socket := d.Share("s")
	serve := d.Command(t.Context(), "mender-app", "serve", "--socket", socket)
	require.NoError(t, serve.Start())
	t.Cleanup(func() { _ = serve.Process.Kill(); _ = serve.Wait() })
	bed.Eventually(t, time.Minute, "serve listens", func() bool { _, err := os.Stat(socket); return err == nil })

	taken := map[int][]float64{}
	for i := range rounds {
		for _, n := range []int{0, readers} {
			events, stop := connect(t, socket, n)
			begin := time.Now()
			e2e.Mender(t, d, "install", artifact)
			took := time.Since(begin).Seconds()
			bed.Eventually(t, time.Minute, "the clients hear of the update", func() bool { return events.Load() == int64(n) })
			require.GreaterOrEqual(t, stop(), int64(n), "a client got no answer")
			e2e.Mender(t, d, "rollback")
			if i > 0 { // the first round fills caches
				taken[n] = append(taken[n], took)
			}
		}
	}
	fmt.Printf("\n| clients | s, median of %d | least | most |\n|---|---|---|---|\n", rounds-1)
	for _, n := range []int{0, readers} {
		slices.Sort(taken[n])
		fmt.Printf("| %d | %.2f | %.2f | %.2f |\n", n, taken[n][len(taken[n])/2], taken[n][0], taken[n][len(taken[n])-1])
	}
	none, some := taken[0], taken[readers]
	require.LessOrEqual(t, some[len(some)/2]-none[len(none)/2], none[len(none)-1]-none[0])
}

// connect connects n clients. events counts the installations that they hear of; stop ends them, and
// returns how many answers they got otherwise.
func connect(t *testing.T, socket string, n int) (events *atomic.Int64, stop func() int64) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	get := func(path string) (io.ReadCloser, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil)
		if err != nil {
			return nil, err
		}
		r, err := transport.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		return r.Body, nil
	}
	events = &atomic.Int64{}
	var answers atomic.Int64
	var all sync.WaitGroup
	for i := range n {
		stream, err := get("/v1/events")
		require.NoError(t, err)
		all.Go(func() {
			defer stream.Close()
			for lines := bufio.NewScanner(stream); lines.Scan(); {
				if strings.Contains(lines.Text(), `"phase":"installed"`) {
					events.Add(1)
				}
			}
		})
		all.Go(func() {
			for pause := time.Duration(i) * 40 * time.Millisecond; ; pause = 2 * time.Second {
				body, err := get("/v1/apps")
				if err == nil {
					_, err = io.Copy(io.Discard, body)
					_ = body.Close()
				}
				if err == nil {
					answers.Add(1)
				}
				select {
				case <-ctx.Done():
					return
				case <-time.After(pause):
				}
			}
		})
	}
	return events, func() int64 {
		cancel()
		all.Wait()
		transport.CloseIdleConnections()
		return answers.Load()
	}
}
