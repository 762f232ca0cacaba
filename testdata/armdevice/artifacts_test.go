package armdevice

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
)

func (s *story) host(name string, args ...string) {
	s.Helper()
	text, err := exec.Command(name, args...).CombinedOutput()
	require.NoError(s, err, "%s %s\n%s", name, strings.Join(args, " "), text)
}

// foreign returns a platform that the machine cannot run.
func (m Machine) foreign() string {
	if m.Platform == "linux/arm64" {
		return "linux/amd64" // it may well run 32-bit programs
	}
	return "linux/arm64"
}

// releases returns the names of the artifacts.
func (s *story) releases() []string {
	return []string{"full-1", "full-2", "full-3", "full-4", "delta-2", "delta-3", "delta-4", "foreign"}
}

// webDelta is the file of the delta from the image of web in release 1 to that in 2.
func (s *story) webDelta() string { return filepath.Join(s.dir, "web.delta") }

// artifacts makes release 1 whole, releases 2, 3 (which crashes) and 4 both whole
// and as deltas, and release 2 for another platform.
func (s *story) artifacts() {
	programs, err := bed.Programs()
	require.NoError(s, err)
	dir := s.TempDir()
	image := func(platform, ref, version, mode, service string) string {
		i, err := bed.Shop{
			Ref: ref, Version: version, Mode: mode, Service: service, Platform: platform,
			Base: 4 << 10, Winter: version != "1",
		}.Image()
		require.NoError(s, err)
		// The images have no health check. A check starts a process in the
		// container. An emulated processor needs seconds for that and the engine
		// allows thirty, so a good release could fail on a busy machine.
		i.Health = nil
		path := filepath.Join(dir, strings.NewReplacer("/", "-", ":", "-").Replace(platform+" "+ref)+".tar")
		require.NoError(s, bed.WriteArchive(path, i))
		return "docker-archive:" + path
	}
	web := map[string]string{}
	for version, mode := range map[string]string{"1": "", "2": "", "3": "crash", "4": ""} {
		web[version] = image(s.machine.Platform, "shop/web:"+version, version, mode, "web")
	}
	stock := image(s.machine.Platform, "shop/stock:1", "1", "", "stock")
	make := func(name, version, platform string, options ...string) {
		manifests := filepath.Join(dir, name)
		require.NoError(s, os.Mkdir(manifests, 0o755))
		require.NoError(s, os.WriteFile(filepath.Join(manifests, "docker-compose.yml"), []byte(fmt.Sprintf(`services:
  web:
    image: shop/web:%s
    ports: ["8080:8080"]
    restart: always
    stop_grace_period: 2s
  stock:
    image: shop/stock:1
    restart: always
`, version)), 0o644))
		s.host(filepath.Join(programs, "app-gen"), append([]string{
			"--application-name", "shop", "--artifact-name", "shop-" + version, "--software-version", version,
			"--device-type", Type, "--platform", platform, "--orchestrator", "docker-compose",
			"--manifests-dir", manifests, "--replace", "--output-path", s.files[name],
		}, options...)...)
	}
	make("full-1", "1", s.machine.Platform, "--deep-delta=false", "--image="+web["1"], "--image="+stock)
	for version, base := range map[string]string{"2": "1", "3": "2", "4": "2"} {
		make("full-"+version, version, s.machine.Platform, "--deep-delta=false", "--image="+web[version], "--image="+stock)
		make("delta-"+version, version, s.machine.Platform, "--deep-delta",
			"--image="+web[base]+","+web[version], "--image="+stock+","+stock)
	}
	old, new := strings.TrimPrefix(web["1"], "docker-archive:"), strings.TrimPrefix(web["2"], "docker-archive:")
	s.host(filepath.Join(programs, "app-gen"), "delta", "encode", old, new, "-o", s.webDelta())
	other := s.machine.foreign()
	make("foreign", "2", other, "--deep-delta=false", "--image="+image(other, "shop/web:2", "2", "", "web"), "--image="+image(other, "shop/stock:1", "1", "", "stock"))
}
