package slow

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// life is a device with the shop, whose releases 1 and 2 replace each other.
type life struct {
	*testing.T
	d     *bed.Device
	w     *bed.Watch
	files map[string]string // the artifacts, by version
	runs  string            // the version that is installed

	resumes int
	engine  sync.Mutex // who stops or starts the engine holds it
}

func newLife(t *testing.T, d *bed.Device) *life {
	t.Helper()
	// An engine that holds a port for nobody is restarted, as by an init system.
	require.NoError(t, d.AddRestartCommand())
	d.MustRun(t, "bash", "-ec", "echo ENGINE_RESTART_COMMAND="+bed.RestartCommand+" >>/etc/mender/mender-app-docker-compose.conf")
	l := &life{T: t, d: d, w: e2e.Watch(t, d), files: map[string]string{}, runs: "1"}
	for _, v := range []string{"1", "2"} {
		l.files[v] = e2e.LastingRelease(t, d, v)
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-time.After(200 * time.Millisecond):
				l.engine.Lock()
				_, err := d.RestartIfWanted()
				l.engine.Unlock()
				if err != nil {
					t.Errorf("restart the engine: %v", err)
				}
			}
		}
	}()
	t.Cleanup(func() { close(done); <-ended })
	e2e.Mender(t, d, "install", l.files["1"])
	e2e.Mender(t, d, "commit")
	e2e.Settled(t, d, l.w, "1")
	return l
}

func (l *life) other() string { return map[string]string{"1": "2", "2": "1"}[l.runs] }

// ends asserts that what runs is one release, and that the client agrees, after mender-app
// resume at most. It may be the other one only if success is.
func (l *life) ends(success bool, said string) {
	l.Helper()
	r, err := l.d.Run("mender-app", "health", "shop")
	require.NoError(l, err)
	state, err := l.d.Run("mender-app", "list")
	require.NoError(l, err)
	if r.Code != 0 || strings.Contains(state.Stdout, "interrupted") {
		l.resumes++
		r, err = l.d.Run("mender-app", "resume")
		require.NoError(l, err)
		said += "\n$ mender-app resume\n" + r.Output()
		require.Zero(l, r.Code, said)
	}
	want := l.runs
	if success {
		want = l.other()
	}
	got := e2e.MustProvides(l.T, l.d)
	require.Equal(l, "shop-"+want, got["artifact_name"], said)
	l.runs = want
	e2e.Settled(l.T, l.d, l.w, want)
}

// crash kills the engine and its containerd, and starts them again.
func (l *life) crash() {
	l.engine.Lock()
	defer l.engine.Unlock()
	l.d.CrashEngine()
	require.NoError(l, l.d.StartEngine())
}

// The engine and its containerd are killed and started again in each phase of an update, of its
// commit and of its rollback. Each ends in one release, and the client agrees.
func TestEngineKilledInEachPhase(t *testing.T) {
	for _, e := range bed.ChosenEngines(t) {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			bed.Require(t, "mender-artifact")
			d := bed.StartWith(t, e)
			e2e.ShortHealthWindow(t, d)
			l := newLife(t, d)
			for _, point := range []string{
				"Download/call.LOAD", "Download/called.LOAD", "Download/call.SYNC", "Download/called.SYNC",
				"ArtifactInstall/call.CHECK", "ArtifactInstall/enter.installing", "ArtifactInstall/call.ROLLOUT", "ArtifactInstall/called.ROLLOUT", "ArtifactInstall/enter.installed",
			} {
				t.Run(point, func(t *testing.T) {
					l.T = t
					code, said := e2e.During(t, d, point, l.crash, "install", l.files[l.other()])
					if code == 0 {
						e2e.Mender(t, d, "rollback")
					}
					l.ends(false, said)
				})
			}
			for _, point := range []string{"ArtifactRollback/enter.rolling-back", "ArtifactRollback/call.ROLLBACK", "ArtifactRollback/called.ROLLBACK", "ArtifactRollback/enter.rolled-back", "Cleanup/call.DELETE"} {
				t.Run(point, func(t *testing.T) {
					l.T = t
					e2e.Mender(t, d, "install", l.files[l.other()])
					code, said := e2e.During(t, d, point, l.crash, "rollback")
					require.Zero(t, code, said)
					l.ends(false, said)
				})
			}
			for _, point := range []string{"ArtifactCommit/call.HEALTHY", "ArtifactCommit/called.HEALTHY", "ArtifactCommit/enter.committed", "Cleanup/enter.cleaning"} {
				t.Run(point, func(t *testing.T) {
					l.T = t
					e2e.Mender(t, d, "install", l.files[l.other()])
					code, said := e2e.During(t, d, point, l.crash, "commit")
					l.ends(code == 0, said)
				})
			}
		})
	}
}

// victims are the processes of a device that are killed, by an expression for their command.
var victims = map[string]string{
	"the sub-module":        "docker-compose (CHECK|LOAD|ROLLOUT|ROLLBACK|HEALTHY|SYNC|DELETE)",
	"Docker Compose":        " up --pull| config --format",
	"helpers of containers": "containerd-shim",
}

// At any instant of an update, of its commit or of its rollback, the engine is killed and
// started again, or the kernel, which is out of memory, kills the sub-module, Docker Compose
// or a container. MENDER_APP_KILLS is how many times, and MENDER_APP_SEED the seed.
func TestKilledAtAnyInstant(t *testing.T) {
	count, seed := number("MENDER_APP_KILLS", 6), number("MENDER_APP_SEED", time.Now().UnixNano()%1e6)
	t.Logf("MENDER_APP_SEED=%d MENDER_APP_KILLS=%d", seed, count)
	l := newLife(t, e2e.Device(t))
	r := rand.New(rand.NewPCG(uint64(seed), 0))
	for n := range count {
		victim := []string{"the engine", "the sub-module", "Docker Compose", "helpers of containers", "a container"}[r.IntN(5)]
		verb := []string{"install", "commit", "rollback"}[r.IntN(3)]
		// What a busy machine takes longer for is not reached, which is as good an instant.
		delay := time.Duration(r.IntN(map[string]int{"install": 9000, "commit": 1500, "rollback": 6000}[verb])) * time.Millisecond
		what := fmt.Sprintf("MENDER_APP_SEED=%d, %d: %s is killed %v after %s from release %s", seed, n, victim, delay, verb, l.runs)
		if verb != "install" {
			e2e.Mender(t, l.d, "install", l.files[l.other()])
		}
		args := []string{verb}
		if verb == "install" {
			args = append(args, l.files[l.other()])
		}
		code, said := l.during(delay, func() { l.kill(victim) }, args...)
		said = what + "\n" + said
		if verb == "install" && code == 0 {
			r, err := l.d.Mender("rollback")
			require.NoError(t, err)
			said += "\n$ mender rollback\n" + r.Output()
		}
		l.ends(verb == "commit" && code == 0, said)
		t.Logf("%s: exit %d, release %s runs", what, code, l.runs)
	}
	t.Logf("%d of %d with mender-app resume", l.resumes, count)
}

// number is the number in a variable of the environment.
func number(name string, otherwise int64) int64 {
	n, err := strconv.ParseInt(os.Getenv(name), 10, 64)
	if err != nil {
		return otherwise
	}
	return n
}

// during runs the Mender client, and calls happens after a while, unless the client has ended.
func (l *life) during(after time.Duration, happens func(), args ...string) (code int, said string) {
	l.Helper()
	c := e2e.Begin(l.T, l.d, nil, args...)
	select {
	case <-c.Ended:
	case <-time.After(after):
		happens()
	}
	return c.End()
}

func (l *life) kill(victim string) {
	l.Helper()
	switch victim {
	case "the engine":
		l.crash()
	case "a container":
		_, err := l.d.Run("bash", "-c", "kill -9 $(docker inspect -f '{{.State.Pid}}' shop-web-1)") // there may be none
		require.NoError(l, err)
	default:
		_, err := l.d.Run("pkill", "-9", "-f", victims[victim]) // there may be none
		require.NoError(l, err)
	}
}
