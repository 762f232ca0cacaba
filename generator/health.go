package generator

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/mender-app/mender-app/generator/manifests"
	"github.com/mender-app/mender-app/generator/source"
)

// What a device gives a release to become healthy, unless it is configured: without a
// health check that asks for more, and at most (rollout_timeout in mender-app.conf).
const (
	usualDeadline = 2 * time.Minute
	mostDeadline  = 15 * time.Minute
)

// defaultInterval is the engine's, between two health checks.
const defaultInterval = 30 * time.Second

// checkHealth warns of services whose first health check comes so late that a device may
// give the release up before. What the compose files do not say, the image says.
func (r *run) checkHealth(images []foundImage, used *manifests.Found) {
	if used == nil {
		return
	}
	ofImage := map[string]manifests.HealthCheck{}
	for _, img := range images {
		var config struct {
			Config struct {
				Healthcheck *struct {
					Test                                 []string
					Interval, StartPeriod, StartInterval time.Duration
				}
			} `json:"config"`
		}
		// A config is checked elsewhere.
		if json.Unmarshal(img.Image.Config, &config) != nil || config.Config.Healthcheck == nil {
			continue
		}
		h := config.Config.Healthcheck
		ofImage[source.Normal(img.URL)] = manifests.HealthCheck{
			Test: len(h.Test) > 0 && h.Test[0] != "NONE", Interval: h.Interval, StartPeriod: h.StartPeriod, StartInterval: h.StartInterval,
		}
	}
	for _, h := range used.HealthChecks {
		img := ofImage[source.Normal(h.Image)]
		if h.Off || !h.Test && !img.Test {
			continue
		}
		first := cmp.Or(h.Interval, img.Interval, defaultInterval)
		if start := cmp.Or(h.StartInterval, img.StartInterval); start > 0 && cmp.Or(h.StartPeriod, img.StartPeriod) > 0 {
			first = min(first, start) // since Docker 25
		}
		const text = "%s: service %q is checked for the first time %v after its start: "
		switch {
		case first >= mostDeadline:
			r.warn(text+"a device gives a release %v at most to become healthy, unless rollout_timeout in its mender-app.conf is longer", h.Place, h.Service, first, mostDeadline)
		case first >= usualDeadline:
			r.note(text+"devices with a shorter HEALTH_DEADLINE in mender-app-docker-compose.conf will never find the release healthy", h.Place, h.Service, first)
		}
	}
}
