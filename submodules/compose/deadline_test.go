package compose

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/stretchr/testify/require"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/submodules"
)

// The time until healthy is that of the engine's own verdict: no check that it still waits
// for is cut off.
func TestTimeToHealth(t *testing.T) {
	t.Parallel()
	image := &container.HealthConfig{Test: []string{"CMD", "/bin/true"}, Interval: 5 * time.Minute, Timeout: 3 * time.Second}
	for name, c := range map[string]struct {
		files string
		image *container.HealthConfig
		want  time.Duration // 0: there is no health check
	}{
		"none":                  {"null", nil, 0},
		"of the image":          {"null", image, 3*303*time.Second + 3*time.Second},
		"the engine's defaults": {`{"test": ["CMD", "a"]}`, nil, 3*time.Minute + 30*time.Second},
		"both":                  {`{"interval": "1m30s", "retries": 2, "start_period": "10s"}`, image, 10*time.Second + 2*93*time.Second + 3*time.Second},
		"disabled":              {`{"disable": true}`, image, 0},
		"NONE":                  {`{"test": ["NONE"]}`, image, 0},
		"NONE in the image":     {`{"interval": "1s"}`, &container.HealthConfig{Test: []string{"NONE"}}, 0},
		"hostile":               {`{"test": ["CMD", "a"], "interval": "2562047h", "retries": 18446744073709551615, "start_period": "2562047h", "timeout": "2562047h"}`, nil, maxDeadline},
		"hostile image":         {"null", &container.HealthConfig{Test: []string{"CMD", "a"}, Interval: math.MaxInt64, Retries: math.MaxInt, StartPeriod: math.MinInt64}, maxDeadline},
	} {
		t.Run(name, func(t *testing.T) {
			var files *healthcheck
			require.NoError(t, json.Unmarshal([]byte(c.files), &files))
			at, ok := scheduled(files, c.image)
			require.Equal(t, c.want != 0, ok)
			require.Equal(t, c.want, at.verdict())
		})
	}

	// Who waits for the health of another comes after it; who waits for its start does not.
	minute := schedule{interval: time.Minute, retries: 1}
	after := func(name, condition string) map[string]dependency {
		return map[string]dependency{name: {Condition: condition}}
	}
	m := model{Services: map[string]service{
		"db":      {},
		"migrate": {DependsOn: after("db", conditionHealthy)},
		"web":     {DependsOn: after("migrate", conditionCompleted)},
		"early":   {DependsOn: after("web", "service_started")},
	}}
	require.Equal(t, time.Minute+defaultDeadline+time.Minute, m.timeToHealth(map[string]schedule{"db": minute, "web": minute, "early": {interval: time.Second, retries: 1}}))
	off := m.Services["db"]
	off.off = true
	m.Services["db"] = off
	require.Equal(t, defaultDeadline+time.Minute, m.timeToHealth(map[string]schedule{"db": minute, "web": minute}))
}

// With HEALTH_DEADLINE, that is the deadline, and a warning says which service cannot meet
// it; without, the health check of the image says how long the release has.
func TestDeadlineFollowsTheImage(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	img, _ := b.image("1")
	cf, err := img.ConfigFile()
	require.NoError(t, err)
	cf = cf.DeepCopy()
	cf.Config.Healthcheck = &v1.HealthConfig{Test: []string{"CMD", "/prog", "check", "/version"}, Interval: 6 * time.Second, Timeout: 3 * time.Minute}
	img, err = mutate.ConfigFile(img, cf)
	require.NoError(t, err)
	config, err := img.ConfigName()
	require.NoError(t, err)
	_, comp := b.image("1")
	comp.Digest = digest.Digest(config.String())
	require.NoError(t, b.mod.Load(t.Context(), submodules.LoadRequest{Request: submodules.Request{App: b.app, Components: []submodules.Component{comp}}, URL: comp.URL, Path: b.archive(img, b.app+"-other:9"), Stage: true}))
	req := submodules.Request{App: b.app, Dir: b.release("1", compose(b.app, "")), Components: []submodules.Component{comp}}

	const late = "warning: service web is checked for the first time 6s after its start, and HEALTH_DEADLINE in mender-app-docker-compose.conf gives the release 3s to become healthy"
	b.conf("HEALTH_DEADLINE=3\nHEALTH_WINDOW=300ms\n")
	changes, err := b.mod.Check(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, 3, changes.HealthyWithin)
	require.Contains(t, b.log.String(), late)
	require.ErrorContains(t, b.mod.Rollout(t.Context(), req), "service web is not healthy yet after 3s")

	b.conf("HEALTH_WINDOW=300ms\n")
	b.log.Reset()
	changes, err = b.mod.Check(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, 3*60+3*(6+3*60), changes.HealthyWithin)
	require.NoError(t, b.mod.Rollout(t.Context(), req))
	require.NotContains(t, b.log.String(), "warning: service web")
}
