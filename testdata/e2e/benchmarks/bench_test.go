// Package benchmarks measures whole updates on a device. make bench runs what is in
// docs/BENCHMARKS.md.
package benchmarks

import (
	"crypto/ecdsa"
	"crypto/x509"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// TestBenchOfChecks measures what checking what arrives costs a plain update: a whole
// image, through the Mender client. MENDER_APP_BEFORE is a directory with the
// programs of before these checks; they are measured in turn with the present ones.
// Processor time is that of the client and everything that it starts, which is not the
// engine.
func TestBenchOfChecks(t *testing.T) {
	before := os.Getenv("MENDER_APP_BEFORE")
	if os.Getenv("MENDER_APP_BENCH") == "" || before == "" {
		t.Skip("takes minutes: set MENDER_APP_BENCH and MENDER_APP_BEFORE")
	}
	const rounds = 8
	t.Parallel()
	bed.Require(t, "mender-artifact")
	key, ok := e2e.ECDSAKey(t).(*ecdsa.PrivateKey)
	require.True(t, ok)
	private, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "key")
	e2e.WritePEM(t, file, "EC PRIVATE KEY", private)
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	require.NoError(t, err)
	present, err := bed.Released()
	require.NoError(t, err)

	// Each has a device and a store of its own, and artifacts of its own app-gen.
	type row struct {
		what, programs string
		options        []string
		device         *bed.Device
		artifact       string
		taken          []float64
	}
	rows := []*row{
		{what: "before", programs: before},
		{what: "now", programs: present},
		{what: "now, with a statement and a key bound to the application", programs: present, options: []string{"--key", file}},
	}
	for _, r := range rows {
		r.device = bed.Start(t)
		for program, place := range map[string]string{"app": "modules/v3", "docker-compose": "app-modules/v1"} {
			data, err := os.ReadFile(filepath.Join(r.programs, program))
			require.NoError(t, err)
			to := r.device.Path(filepath.Join("/usr/share/mender", place, program))
			require.NoError(t, os.Remove(to))
			require.NoError(t, os.WriteFile(to, data, 0o755))
		}
		conf := "HEALTH_WINDOW=500ms\n"
		require.NoError(t, os.WriteFile(r.device.Path("/etc/mender/mender-app-docker-compose.conf"), []byte(conf), 0o644))
		if len(r.options) > 0 {
			e2e.WritePEM(t, r.device.Path("/etc/mender/key.pub"), "PUBLIC KEY", public)
			conf, err := os.ReadFile(r.device.Path("/etc/mender/mender-app.conf"))
			require.NoError(t, err)
			conf = append(conf, "\n[[keys]]\nfile = \"/etc/mender/key.pub\"\napplications = [\"shop\"]\n"...)
			require.NoError(t, os.WriteFile(r.device.Path("/etc/mender/mender-app.conf"), conf, 0o644))
		}
		for n := range 2 {
			version := strconv.Itoa(n + 1)
			manifests := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(manifests, "docker-compose.yml"), []byte(e2e.EditionCompose(n+1)), 0o644))
			r.artifact = r.device.Share("shop-" + version + ".mender")
			said, err := exec.Command(filepath.Join(r.programs, "app-gen"), append([]string{
				"--application-name", "shop", "--artifact-name", "shop-" + version, "--software-version", version, "--orchestrator", "docker-compose",
				"--device-type", bed.Type, "--platform", bed.Platform(), "--manifests-dir", manifests, "--output-path", r.artifact, "--deep-delta=false", e2e.Archive(t, e2e.Edition(t, n+1)),
			}, r.options...)...).CombinedOutput()
			require.NoError(t, err, "%s", said)
			if n == 0 {
				e2e.Mender(t, r.device, "install", r.artifact)
				e2e.Mender(t, r.device, "commit")
			}
		}
	}

	seconds := regexp.MustCompile(`took ([0-9.]+) ([0-9.]+)`)
	for i := range rounds {
		for _, r := range rows {
			said, err := r.device.Run("bash", "-c", `TIMEFORMAT='took %U %S'; time mender --no-syslog install "$1"`, "install", r.artifact)
			require.NoError(t, err)
			require.Zero(t, said.Code, said.Output())
			found := seconds.FindStringSubmatch(said.Output())
			require.NotNil(t, found, said.Output())
			sum := 0.0
			for _, text := range found[1:] {
				s, err := strconv.ParseFloat(text, 64)
				require.NoError(t, err)
				sum += s
			}
			if i > 0 { // the first round fills caches
				r.taken = append(r.taken, sum)
			}
			e2e.Mender(t, r.device, "rollback")
		}
	}
	fmt.Printf("\n| programs | processor s, median of %d | least | most |\n|---|---|---|---|\n", rounds-1)
	for _, r := range rows {
		slices.Sort(r.taken)
		fmt.Printf("| %s | %.2f | %.2f | %.2f |\n", r.what, r.taken[len(r.taken)/2], r.taken[0], r.taken[len(r.taken)-1])
	}
}
