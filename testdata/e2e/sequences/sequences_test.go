// Package sequences lets a person do to the engine what people do, in any state of a
// deployment.
package sequences

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// longest is how many commands a sequence has at most.
const longest = 4

// byHand is Docker Compose as a person calls it on the application.
const byHand = "docker compose -p shop --project-directory /data/mender-app/shop/manifests "

// commands are what a person does. One that the engine refuses is no fault of anybody's.
var commands = []string{
	"docker stop -t 1 shop-web-1", "docker stop -t 1 shop-stock-1",
	"docker start shop-web-1", "docker start shop-stock-1",
	"docker pause shop-web-1", "docker pause shop-stock-1",
	"docker kill shop-web-1", "docker kill shop-stock-1",
	"docker rm -f shop-web-1", "docker rm -f shop-stock-1",
	"docker network disconnect -f shop_default shop-web-1", "docker network disconnect -f shop_default shop-stock-1",
	"docker network rm shop_default", "docker network prune -f",
	"docker rmi shop/web:1", "docker rmi shop/web:2", "docker rmi shop/stock:1",
	"docker volume rm shop_counts",
	"docker tag shop/stock:1 shop/web:1", "docker tag shop/stock:1 shop/web:2", "docker tag shop/web:1 shop/stock:1",
	byHand + "down", byHand + "up -d --pull never", byHand + "stop -t 1",
}

// states are the states of a deployment in which the commands are given.
var states = []string{"before", "while it is started", "before the commit"}

// Whatever a person does to the engine in whatever state of a deployment, it ends in the old
// or in the new release, which runs, and the client agrees, after mender-app resume at most.
// MENDER_APP_SEQUENCES is how many sequences, MENDER_APP_SEED the seed, and
// MENDER_APP_SEQUENCE the only one.
func TestSequences(t *testing.T) {
	count, seed, only := number("MENDER_APP_SEQUENCES", 5), number("MENDER_APP_SEED", time.Now().UnixNano()%1e6), number("MENDER_APP_SEQUENCE", -1)
	t.Logf("MENDER_APP_SEED=%d MENDER_APP_SEQUENCES=%d", seed, count)
	d := e2e.DeviceAsShipped(t)
	d.MustRun(t, "bash", "-ec", "printf 'HEALTH_WINDOW=300ms\nHEALTH_DEADLINE=60\n' >>/etc/mender/mender-app-docker-compose.conf")
	files := map[string]string{}
	for _, v := range []string{"1", "2"} {
		files[v] = e2e.Release(t, d, v, "")
	}
	e2e.Mender(t, d, "install", files["1"])
	e2e.Mender(t, d, "commit")
	runs, resumes, start := "1", 0, time.Now()
	for n := range count {
		if only >= 0 && n != only {
			continue
		}
		s := draw(seed, n)
		began := time.Now()
		before := runs
		runs = s.play(t, d, files, runs, fmt.Sprintf("MENDER_APP_SEED=%d, sequence %d: from release %s, %s", seed, n, before, s), &resumes)
		t.Logf("%d: %s: release %s runs (%.1f s)", n, s, runs, time.Since(began).Seconds())
	}
	t.Logf("figures: sequences of commands by hand, MENDER_APP_SEED=%d: %d sequences, %d with mender-app resume, %.1f s each", seed, count, resumes, time.Since(start).Seconds()/float64(max(count, 1)))
}

// sequence is what a person does, and how the deployment goes on.
type sequence struct {
	state    string
	commands []string
	end      string // of the client
}

func (s sequence) String() string {
	return fmt.Sprintf("%s the update: %s; then %s", s.state, strings.Join(s.commands, "; "), s.end)
}

// number is the number in a variable of the environment.
func number(name string, otherwise int64) int64 {
	n, err := strconv.ParseInt(os.Getenv(name), 10, 64)
	if err != nil {
		return otherwise
	}
	return n
}

func draw(seed, n int64) (s sequence) {
	r := rand.New(rand.NewPCG(uint64(seed), uint64(n)))
	s.state = states[r.IntN(len(states))]
	for range 1 + r.IntN(longest) {
		s.commands = append(s.commands, commands[r.IntN(len(commands))])
	}
	s.end = ends[r.IntN(len(ends))]
	return s
}

// play plays a sequence around an update from the release that runs to the other one, and
// returns the one that runs then.
func (s sequence) play(t *testing.T, d *bed.Device, files map[string]string, from, what string, resumes *int) (runs string) {
	t.Helper()
	said := ""
	person := func() {
		for _, c := range s.commands {
			r, err := d.Run("bash", "-c", c)
			require.NoError(t, err)
			said += "$ " + c + "\n" + r.Output()
		}
	}
	to := map[string]string{"1": "2", "2": "1"}[from]
	client := func(args ...string) bool {
		r, err := d.Mender(args...)
		require.NoError(t, err)
		said += "$ mender " + strings.Join(args, " ") + "\n" + r.Output()
		return r.Code == 0
	}
	installed := false
	switch s.state {
	case states[0]:
		person()
		installed = client("install", files[to])
	case states[1]:
		code, out := e2e.During(t, d, "ArtifactInstall/call.ROLLOUT", person, "install", files[to])
		installed = code == 0
		said += out
	default:
		installed = client("install", files[to])
		person()
	}
	if installed {
		client(s.end)
	}
	runs, why := running(t, d)
	if why != "" {
		*resumes++
		r, err := d.Run("mender-app", "resume")
		require.NoError(t, err)
		said += "$ mender-app resume\n" + r.Output()
		runs, why = running(t, d)
	}
	require.Empty(t, why, "%s\n%s", what, said)
	return runs
}

// running returns the release that runs, and why it is not as it must be.
func running(t *testing.T, d *bed.Device) (release, why string) {
	t.Helper()
	r, err := d.Run("mender-app", "health", "shop")
	require.NoError(t, err)
	if r.Code != 0 {
		return "", "it is not healthy: " + r.Output()
	}
	s := d.MustState(t)
	web, stock := s.Service("shop", "web"), s.Service("shop", "stock")
	if web == nil || stock == nil || web.Status != "running" || stock.Status != "running" {
		return "", fmt.Sprintf("not everything runs: %+v", s.Containers)
	}
	release = strings.TrimPrefix(web.Ref, "shop/web:")
	if list := d.MustRun(t, "mender-app", "list"); strings.Contains(list, "waits") || strings.Contains(list, "interrupted") {
		return "", "a deployment is open: " + list
	}
	for key, want := range e2e.Provides(release) {
		if got := s.Provides[key]; got != want {
			return "", fmt.Sprintf("release %s runs, and the client has %s=%s", release, key, got)
		}
	}
	return release, ""
}
