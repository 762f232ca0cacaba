package engines

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/testdata/bed"
)

const twoServices = `services:
  web:
    image: shop/web:VERSION
    ports: ["8080:8080"]
    stop_grace_period: 2s
  stock:
    image: shop/stock:1
    ports: ["8081:8080"]
    stop_grace_period: 2s
`

// An update leaves an unchanged service alone. A changed service is down only from
// the engine's stop to the engine's start: its new container is created before the
// old one is stopped, and nothing else happens in between.
func TestDowntime(t *testing.T) {
	onEngines(t, func(t *testing.T, d *bed.Device) {
		a := newApp(t, d, "shop")
		stock := newPicture(t, "shop", "shop/stock:1", "1")
		rollout := func(version string) {
			t.Helper()
			web := newPicture(t, "shop", "shop/web:"+version, version)
			for _, p := range []picture{web, stock} {
				a.load(p, p.archive(t, d, 0))
			}
			dir := a.manifests(version, strings.ReplaceAll(twoServices, "VERSION", version))
			a.call([]submodules.Component{web.Component, stock.Component}, "", submodules.VerbRollout, a.name, dir)
		}
		const state = "{{.Id}} {{.State.Pid}} {{.State.StartedAt}} {{.RestartCount}}"
		rollout("1")
		untouched, old := a.container("stock", state), a.container("web", "{{.Id}}")
		w, err := d.Watch("http://127.0.0.1:8080/version")
		require.NoError(t, err)
		defer w.Stop()
		bed.Eventually(t, 20*time.Second, "web 1 answers", func() bool { return w.Says() == "web 1" })

		since := time.Now()
		rollout("2")
		bed.Eventually(t, 20*time.Second, "web 2 answers", func() bool { return w.Says() == "web 2" })
		down, times := w.Down(since)
		require.Equal(t, 1, times)
		require.Equal(t, untouched, a.container("stock", state), "the unchanged service was touched")

		var order []string
		at := map[string]time.Time{}
		for _, e := range events(t, d, since) {
			which := "new "
			if e.Actor.ID == old {
				which = "old "
			}
			require.Equal(t, "web", e.Actor.Attributes["com.docker.compose.service"], "%v", e)
			if slices.Contains([]string{"create", "kill", "die", "destroy", "start"}, e.Action) {
				order = append(order, which+e.Action)
				at[which+e.Action] = time.Unix(0, e.TimeNano)
			}
		}
		require.Equal(t, []string{"new create", "old kill", "old die", "old destroy", "new start"}, order)

		// Beside it, what the engine takes for the same by itself.
		since = time.Now()
		d.MustRun(t, "docker", "restart", "-t", "2", a.name+"-web-1")
		bed.Eventually(t, 20*time.Second, "web 2 answers again", func() bool { return w.Says() == "web 2" && time.Since(since) > time.Second })
		restart, _ := w.Down(since)
		t.Logf("%s: web was down for %v; from kill to start %v, of which %v to end; docker restart: down for %v", d.Engine,
			down.Round(time.Millisecond), at["new start"].Sub(at["old kill"]).Round(time.Millisecond),
			at["old die"].Sub(at["old kill"]).Round(time.Millisecond), restart.Round(time.Millisecond))
		a.call(nil, "", submodules.VerbPurge, a.name)
	})
}

type event struct {
	Action string
	Actor  struct {
		ID         string
		Attributes map[string]string
	}
	TimeNano int64
}

// events returns the engine's events of containers from since until now, without
// those of health checks.
func events(t *testing.T, d *bed.Device, since time.Time) (all []event) {
	t.Helper()
	said := d.MustRun(t, "docker", "events", "--since", since.Format(time.RFC3339Nano), "--until", time.Now().Format(time.RFC3339Nano),
		"--filter", "type=container", "--format", "{{json .}}")
	for dec := json.NewDecoder(strings.NewReader(said)); dec.More(); {
		var e event
		require.NoError(t, dec.Decode(&e))
		if !strings.HasPrefix(e.Action, "exec_") && !strings.HasPrefix(e.Action, "health_status") {
			all = append(all, e)
		}
	}
	return all
}
