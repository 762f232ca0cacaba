// Package hostile installs artifacts that were changed at random. make test-all installs
// a few, make test-hostile as many as wanted.
package hostile

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/bed/mutants"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// Limits of what any artifact, however hostile, may cost.
const (
	hostileTime   = 10 * time.Second // until it is refused; of the processor's time always
	startTime     = time.Minute      // where the release was started, as any update that fails or is taken back, or others use the processor
	hostileMemory = 64 << 10         // KiB, of each process of the product
)

// Artifacts with one change, at any level from the container down to the files in
// the layers, with right or wrong checksums, go through the Mender client and
// through mender-app install. Whatever was changed, the device is afterwards as
// before: engine, store, /etc, /tmp and what the client believes. MENDER_APP_HOSTILE
// is how many artifacts, MENDER_APP_SEED the seed.
func TestHostileArtifacts(t *testing.T) {
	count, seed := 24, uint64(1)
	if s := os.Getenv("MENDER_APP_HOSTILE"); s != "" {
		var err error
		count, err = strconv.Atoi(s)
		require.NoError(t, err)
	}
	if s := os.Getenv("MENDER_APP_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	for name, with := range map[string]client{
		"the Mender client": {install: []string{"mender", "--no-syslog", "install"}, rollback: []string{"mender", "--no-syslog", "rollback"}},
		"mender-app":        {install: []string{"mender-app", "install", "--unsigned"}, rollback: []string{"mender-app", "rollback"}, alone: true},
	} {
		t.Run(name, func(t *testing.T) {
			d := e2e.DeviceAsShipped(t)
			if with.alone {
				require.NoError(t, d.WithoutMender())
			}
			t.Logf("MENDER_APP_SEED=%d MENDER_APP_HOSTILE=%d", seed, count)
			with.survive(t, d, count, seed)
		})
	}
}

// client is how artifacts are installed and taken back.
type client struct {
	install, rollback []string
	alone             bool // there is no Mender client
}

func (c client) survive(t *testing.T, d *bed.Device, count int, seed uint64) {
	t.Helper()
	// This test is not about how long a release must be healthy.
	d.MustRun(t, "bash", "-ec", `printf 'HEALTH_WINDOW=500ms\nHEALTH_DEADLINE=3s\n' >>/etc/mender/mender-app-docker-compose.conf`)
	one := e2e.WholeEdition(t, d, 1)
	d.MustRun(t, c.install[0], append(c.install[1:], one)...)
	if c.alone {
		d.MustRun(t, "mender-app", "commit")
	} else {
		e2e.Mender(t, d, "commit")
	}
	reference, err := bed.Reference("shop", "shop-2", e2e.EditionCompose(2), e2e.Edition(t, 2))
	require.NoError(t, err)
	var originals [][]byte
	for _, file := range []string{e2e.WholeEdition(t, d, 2), e2e.ThirdEdition(t, d, []string{one}), e2e.Handmade(t, d, reference)} {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		require.True(t, mutants.Consistent(data), file) // else no checksum is made right
		originals = append(originals, data)
	}

	// The machine below the device writes there, and that shows through.
	d.MustRun(t, "bash", "-ec", "mount -t tmpfs none /root; mount -t tmpfs none /var/tmp")
	peaks := sample(t, d)
	d.MustRun(t, "touch", "/run/before")
	before := e2e.Unchanging(d.MustState(t))
	file := d.Share("mutant.mender")
	accepted, slowest, busiest := 0, time.Duration(0), time.Duration(0)
	for i := range count {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		data, what := mutants.Make(r, originals[r.IntN(len(originals))])
		what = fmt.Sprintf("mutant %d: %s", i, what)
		require.NoError(t, os.WriteFile(file, data, 0o644))

		start := time.Now()
		result, err := d.Run("bash", append([]string{"-c", `TIMEFORMAT='processor %U %S'; time "$@"`, "install"}, append(c.install, file)...)...)
		require.NoError(t, err)
		took, processor := time.Since(start), processorTime(t, result.Stderr)
		limit := hostileTime
		if strings.Contains(result.Output(), "rolling out (app ") {
			limit = startTime
		} else {
			slowest, busiest = max(slowest, took), max(busiest, processor)
		}
		if busy(t) { // the time until it is its turn is not the product's
			limit = startTime
		}
		if took > limit || processor > hostileTime {
			t.Errorf("%s took %v, of which %v of the processor\n%s", what, took, processor, result.Output())
		}
		// The client in Go itself panics if there is no type-info.
		require.NotRegexp(t, `(?s)goroutine .*github\.com/mender-app/mender-app/`, result.Output(), what)
		require.GreaterOrEqual(t, result.Code, 0, what)
		sound := mutants.Consistent(data)
		if result.Code == 0 {
			accepted++
			require.True(t, sound, "%s was installed", what)
			d.MustRun(t, c.rollback[0], c.rollback[1:]...)
		}

		after := e2e.Unchanging(d.MustState(t))
		if sound { // it may have been started, and the old release then is again
			require.Equal(t, restarted(before), restarted(after), "%s\n%s", what, result.Output())
		} else {
			require.Equal(t, before, after, "%s\n%s", what, result.Output())
		}
		before = after
		require.Empty(t, strays(t, d), "%s\n%s", what, result.Output())
	}
	for program, peak := range peaks() {
		t.Logf("%s: at most %d KiB", program, peak)
		require.Less(t, peak, hostileMemory, program)
	}
	t.Logf("%d mutants, %d of them installed and taken back, the slowest refusal in %v, the busiest with %v of the processor", count, accepted, slowest, busiest)
	d.MustRun(t, "mender-app", "verify", "shop")
}

// processorTime is what bash says at the end of stderr that the client and its calls took.
func processorTime(t *testing.T, stderr string) time.Duration {
	t.Helper()
	var user, system float64
	_, err := fmt.Sscanf(stderr[max(0, strings.LastIndex(stderr, "processor ")):], "processor %f %f", &user, &system)
	require.NoError(t, err, stderr)
	return time.Duration((user + system) * float64(time.Second))
}

// busy reports whether more processes want to run than this machine has processors.
func busy(t *testing.T) bool {
	t.Helper()
	text, err := os.ReadFile("/proc/loadavg")
	require.NoError(t, err)
	var load float64
	_, err = fmt.Sscan(string(text), &load)
	require.NoError(t, err)
	return load > float64(runtime.NumCPU())
}

// restarted is a state without what a restart of the same containers changes.
func restarted(s bed.State) bed.State {
	containers := map[string]bed.Container{}
	for name, c := range s.Containers {
		c.ID, c.Started = "", ""
		containers[name] = c
	}
	s.Containers = containers
	return s
}

// strays are files changed since /run/before outside of what State compares.
func strays(t *testing.T, d *bed.Device) string {
	t.Helper()
	return d.MustRun(t, "find", "/etc", "/tmp", "/root", "/usr/bin", "/usr/share/mender", "/var/tmp",
		"-xdev", "-cnewer", "/run/before", "-not", "-path", "/tmp", "-not", "-path", d.Dir, "-not", "-path", bed.Repository(), "-not", "-name", "runc-process*")
}

// sample samples the memory of the product's processes until the function that it
// returns is called. That function returns the highest resident set of each program,
// in KiB.
func sample(t *testing.T, d *bed.Device) func() map[string]int {
	t.Helper()
	room, err := os.Readlink(filepath.Join(filepath.Dir(d.Path("")), "ns/pid"))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	result := make(chan map[string]int, 1)
	go func() {
		peaks := map[string]int{}
		for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
			dirs, _ := filepath.Glob("/proc/[0-9]*")
			for _, dir := range dirs {
				if ns, err := os.Readlink(dir + "/ns/pid"); err != nil || ns != room {
					continue
				}
				exe, _ := os.Readlink(dir + "/exe")
				if !strings.HasPrefix(exe, "/usr/share/mender/") && exe != "/usr/bin/mender-app" {
					continue
				}
				status, _ := os.ReadFile(dir + "/status")
				var peak int
				if _, after, ok := strings.Cut(string(status), "VmHWM:"); ok {
					_, _ = fmt.Sscan(after, &peak)
				}
				peaks[exe] = max(peaks[exe], peak)
			}
		}
		result <- peaks
	}()
	return func() map[string]int {
		stop()
		peaks := <-result
		require.NotEmpty(t, peaks, "no process was seen")
		return peaks
	}
}
