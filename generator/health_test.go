package generator

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/generator/gentest"
)

// A service whose first health check comes so late that a device may give up before is
// named, whether the image or the compose file says so; --strict refuses what no device
// takes as it is delivered.
func TestLateHealthChecks(t *testing.T) {
	const service = "    healthcheck: "
	for name, c := range map[string]struct {
		image  *v1.HealthConfig
		files  string
		want   string // in a warning; "" for none
		strict bool
	}{
		"of the image":      {&v1.HealthConfig{Test: []string{"CMD", "a"}, Interval: 5 * time.Minute}, "", `compose.yaml:3: service "web" is checked for the first time 5m0s after its start: devices with a shorter HEALTH_DEADLINE`, false},
		"of the files":      {&v1.HealthConfig{Test: []string{"CMD", "a"}}, service + "{interval: 20m}\n", `compose.yaml:4: service "web" is checked for the first time 20m0s after its start: a device gives a release 15m0s at most`, true},
		"soon":              {&v1.HealthConfig{Test: []string{"CMD", "a"}, Interval: 5 * time.Minute}, service + "{interval: 10s}\n", "", false},
		"the start is soon": {nil, service + "{test: [CMD, a], interval: 20m, start_period: 1m, start_interval: 2s}\n", "", false},
		"switched off":      {&v1.HealthConfig{Test: []string{"CMD", "a"}, Interval: 5 * time.Minute}, service + "{disable: true}\n", "", false},
		"none":              {nil, service + "{interval: 20m}\n", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &shop{dir: t.TempDir()}
			img := gentest.Image(t, "linux/amd64", gentest.Files{"a": "a"})
			cf, err := img.ConfigFile()
			require.NoError(t, err)
			cf = cf.DeepCopy()
			cf.Config.Healthcheck = c.image
			img, err = mutate.ConfigFile(img, cf)
			require.NoError(t, err)
			gentest.DockerArchive(t, s.archive("web:1"), map[string]v1.Image{"shop/web:1": img})
			o := s.options(t, "web:1")
			require.NoError(t, os.WriteFile(filepath.Join(o.Application.ManifestsDir, "compose.yaml"), []byte("services:\n  web:\n    image: shop/web:1\n"+c.files), 0o644))
			r, err := Generate(t.Context(), o, false)
			require.NoError(t, err)
			said := strings.Join(append(r.Warnings, r.Notes...), "\n")
			if c.want == "" {
				require.NotContains(t, said, "is checked for the first time")
			} else {
				require.Contains(t, said, c.want)
			}
			o.Build.Strict = true
			_, err = Generate(t.Context(), o, false)
			if c.strict {
				require.ErrorContains(t, err, "15m0s at most")
			} else {
				require.NoError(t, err)
			}
		})
	}
}
