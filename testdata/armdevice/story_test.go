package armdevice

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
)

// MachinesEnv lists the machines to test on; without it nothing runs, for an
// emulated device takes minutes.
const MachinesEnv = "MENDER_APP_ARM_DEVICES"

const (
	updateModule = "/usr/share/mender/modules/v3/app"
	subModule    = "/usr/share/mender/app-modules/v1/docker-compose"
	// maxPeak is what each of our programs may take, in KiB: promise 5 of
	// docs/DESIGN.md.
	maxPeak = 32 << 10
)

// story is one device and what was measured on it.
type story struct {
	*testing.T
	vm      *VM
	machine Machine
	files   map[string]string // artifacts on this machine, by name
	rows    []row
}

// row is one step with deltas, and the same with full images.
type row struct {
	step        string
	delta, full measured
}

type measured struct {
	Result
	wire int64 // bytes of the artifact; 0 if there is none
}

// The product on a small device, through the real Mender client: installed,
// updated, failing, taken back, and its power cut in the middle.
func TestOnTheDevice(t *testing.T) {
	names := strings.Fields(os.Getenv(MachinesEnv))
	if len(names) == 0 {
		t.Skip("takes minutes: make test-arm")
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			m, ok := Machines[name]
			require.True(t, ok, "no such machine")
			s := &story{T: t, machine: m, files: map[string]string{}}
			s.begin()
			s.tell()
		})
	}
}

// begin makes the artifacts and the device, and installs the product on it.
func (s *story) begin() {
	start := time.Now()
	programs := filepath.Join(bed.Repository(), "build", s.machine.Programs)
	tree := s.TempDir()
	s.host("make", "-s", "-C", bed.Repository(), "install", "FROM="+programs, "DESTDIR="+tree)
	archive := filepath.Join(s.TempDir(), "programs.tar")
	// The generator is for a build host, and k8s for devices with Kubernetes.
	s.host("tar", "-C", tree, "--owner=0", "--group=0", "--exclude=app-gen*", "--exclude=./usr/share/mender/app-modules/v1/k8s", "-cf", archive, ".")
	s.artifacts()
	s.Logf("artifacts made: %v", time.Since(start).Round(time.Second))

	start = time.Now()
	vm, err := New(s.machine, s.TempDir())
	require.NoError(s, err)
	s.vm = vm
	s.Cleanup(vm.Cut)
	s.Cleanup(func() {
		if s.Failed() && vm.qemu != nil {
			r, err := vm.Try("tail -n 20 /var/log/dockerd.log; dmesg | tail -n 20; docker ps -a; free -k; df -k /")
			s.Logf("the device at the end: %v\n%s", err, r.Output)
		}
	})
	s.Logf("image made: %v", time.Since(start).Round(time.Second))
	start = time.Now()
	require.NoError(s, vm.Start(Booted))
	s.Logf("started from the snapshot: %v", time.Since(start).Round(time.Second))
	require.NoError(s, vm.Put(archive, "/root/programs.tar"))
	s.run("tar -C / -xf /root/programs.tar && rm /root/programs.tar && mender-app --version && " + updateModule + " --version && " + subModule + " --version")
	for name, file := range s.files {
		require.NoError(s, vm.Put(file, "/root/"+name+".mender"))
	}
	require.NoError(s, vm.Save("ready"))
}

func (s *story) host(name string, args ...string) {
	s.Helper()
	text, err := exec.Command(name, args...).CombinedOutput()
	require.NoError(s, err, "%s %s\n%s", name, strings.Join(args, " "), text)
}

// artifacts makes release 1 whole, and 2, 3 (which crashes) and 4
// both whole and as deltas.
func (s *story) artifacts() {
	programs, err := bed.Programs()
	require.NoError(s, err)
	dir := s.TempDir()
	image := func(ref, version, mode, service string) string {
		i, err := bed.Shop{
			Ref: ref, Version: version, Mode: mode, Service: service, Platform: s.machine.Platform,
			Base: 4 << 10, Winter: version != "1",
		}.Image()
		require.NoError(s, err)
		// A check starts a process in the container, for which an emulated
		// processor needs seconds, and the engine gives it thirty: on a busy
		// machine a good release would fail.
		i.Health = nil
		path := filepath.Join(dir, strings.NewReplacer("/", "-", ":", "-").Replace(ref)+".tar")
		require.NoError(s, bed.WriteArchive(path, i))
		return "docker-archive:" + path
	}
	web := map[string]string{}
	for version, mode := range map[string]string{"1": "", "2": "", "3": "crash", "4": ""} {
		web[version] = image("shop/web:"+version, version, mode, "web")
	}
	stock := image("shop/stock:1", "1", "", "stock")
	make := func(name, version string, options ...string) {
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
		s.files[name] = filepath.Join(dir, name+".mender")
		s.host(filepath.Join(programs, "app-gen"), append([]string{
			"--application-name", "shop", "--artifact-name", "shop-" + version, "--software-version", version,
			"--device-type", Type, "--platform", s.machine.Platform, "--orchestrator", "docker-compose",
			"--manifests-dir", manifests, "--output-path", s.files[name],
		}, options...)...)
	}
	make("full-1", "1", "--image="+web["1"], "--image="+stock)
	for version, base := range map[string]string{"2": "1", "3": "2", "4": "2"} {
		make("full-"+version, version, "--image="+web[version], "--image="+stock)
		make("delta-"+version, version, "--deep-delta",
			"--image="+web[base]+","+web[version], "--image="+stock+","+stock)
	}
}

// run runs a script that has to end well.
func (s *story) run(script string) Result {
	s.Helper()
	r, err := s.vm.Run(script)
	require.NoError(s, err)
	require.Zero(s, r.Code, "%s\n%s", script, r.Output)
	return r
}

// mender runs commands of the Mender client with the artifacts' names in them;
// the code of the last is the script's.
func (s *story) mender(artifact string, commands ...string) measured {
	s.Helper()
	var script []string
	for _, c := range commands {
		script = append(script, "mender --no-syslog "+c)
	}
	r, err := s.vm.Run(strings.Join(script, " && "))
	require.NoError(s, err)
	m := measured{Result: r}
	s.Logf("%s: exit %d after %.0f s, %.0f s of the processor; KiB: app %d, docker-compose %d, device %d more than %d; %d bytes written",
		strings.Join(commands, ", "), r.Code, r.Seconds, r.Processor, r.Peaks[updateModule], r.Peaks[subModule], r.Used-r.Before, r.Before, r.Written)
	if artifact != "" {
		info, err := os.Stat(s.files[artifact])
		require.NoError(s, err)
		m.wire = info.Size()
	}
	for _, program := range []string{updateModule, subModule} {
		require.NotZero(s, r.Peaks[program], "%s was not measured", program)
		require.LessOrEqual(s, r.Peaks[program], int64(maxPeak), "%s took more KiB than allowed", program)
	}
	return m
}

func (s *story) update(artifact string) measured {
	s.Helper()
	m := s.mender(artifact, "install /root/"+artifact+".mender", "commit")
	require.Zero(s, m.Code, m.Output)
	return m
}

// failing installs release 3, which ends in the release before.
func (s *story) failing(artifact string) measured {
	s.Helper()
	m := s.mender(artifact, "install /root/"+artifact+".mender")
	require.NotZero(s, m.Code, m.Output)
	require.Contains(s, m.Output, "service web")
	s.at("2")
	return m
}

// undone installs an artifact and takes it back before its commit; the taking
// back is measured.
func (s *story) undone(artifact string) measured {
	s.Helper()
	m := s.mender(artifact, "install /root/"+artifact+".mender")
	require.Zero(s, m.Code, m.Output)
	s.says("4")
	m = s.mender("", "rollback")
	require.Zero(s, m.Code, m.Output)
	s.at("2")
	return m
}

// says asserts which release serves.
func (s *story) says(version string) {
	s.Helper()
	r, err := s.vm.Try(`for _ in $(seq 60); do
		if exec 3<>/dev/tcp/127.0.0.1/8080; then
			printf 'GET /version HTTP/1.0\r\n\r\n' >&3; said=$(tail -n 1 <&3); exec 3>&-
			[ -z "$said" ] || break
		fi 2>/dev/null
		sleep 1
	done; echo "$said"`)
	require.NoError(s, err)
	require.Equal(s, "web "+version, strings.TrimSpace(r.Output))
}

// at asserts that the device is at a release, whole, and the client agrees.
func (s *story) at(version string) {
	s.Helper()
	s.says(version)
	r := s.run("mender --no-syslog show-provides")
	for _, line := range []string{"artifact_name=shop-" + version, "rootfs-image.shop.version=" + version} {
		require.Contains(s, strings.Split(r.Output, "\n"), line)
	}
}

// whole asserts that the device is at a release, with all that belongs to it
// running and nothing else, verified.
func (s *story) whole(version string) {
	s.Helper()
	s.at(version)
	r := s.run("mender-app verify; docker ps --all --format '{{.Image}} {{.State}}' | sort")
	require.Contains(s, r.Output, "shop/stock:1 running\nshop/web:"+version+" running\n")
	require.Equal(s, 2, strings.Count(r.Output, "shop/"), r.Output)
}

// tell is the story.
func (s *story) tell() {
	s.rows = append(s.rows, row{step: "install 1", full: s.update("full-1")})
	s.at("1")
	require.NoError(s, s.vm.Save("one"))

	s.rows = append(s.rows, row{step: "update to 2", delta: s.update("delta-2")})
	s.at("2")
	s.rows = append(s.rows,
		row{step: "failing 3, which rolls itself back", delta: s.failing("delta-3")},
		row{step: "`mender rollback` of 4", delta: s.undone("delta-4")})
	s.cuts()
	s.rows = append(s.rows, row{step: "update to 4, after the power cuts", delta: s.update("delta-4")})
	s.whole("4")

	// The same with full images.
	if !testing.Short() {
		require.NoError(s, s.vm.Load("one"))
		s.rows[1].full = s.update("full-2")
		s.at("2")
		s.rows[2].full = s.failing("full-3")
	}
	s.report()
}

// cuts cuts the power in the middle of updates to 4 and of a rollback of it.
// After the boot the device is at a release that is whole; what a person does
// next settles it.
func (s *story) cuts() {
	const install = "install /root/delta-4.mender"
	s.cut("app Download", "called.LOAD", install)
	s.says("2")
	s.run("mender-app resume")
	s.whole("2")

	s.cut("app ArtifactInstall", "called.ROLLOUT", install)
	s.run("mender-app resume")
	s.whole("2")
	if testing.Short() {
		return
	}

	s.run("mender --no-syslog " + install)
	s.cut("app ArtifactRollback", "call.ROLLBACK", "rollback")
	s.run("mender --no-syslog rollback")
	s.whole("2")
}

// cut lets the Mender client work up to a point of a call of app, where the
// power goes, and boots.
func (s *story) cut(call, point, command string) {
	s.Helper()
	start := time.Now()
	r, err := s.vm.Try(fmt.Sprintf(`export MENDER_APP_FAULT='%s/%s:1:hang' MENDER_APP_FAULT_TRACE=/tmp/trace
		rm -f /tmp/trace
		mender --no-syslog %s >/tmp/log 2>&1 &
		while kill -0 $! && ! grep -qsx %s /tmp/trace; do sleep 0.2; done 2>/dev/null
		kill -0 $! || { cat /tmp/log; exit 1; }`, call, point, command, point))
	require.NoError(s, err)
	require.Zero(s, r.Code, r.Output)
	s.vm.Cut()
	cut := time.Now()
	require.NoError(s, s.vm.Start(""))
	s.Logf("power cut at %s of %s after %v; the engine answered %v later", point, call,
		cut.Sub(start).Round(time.Second), time.Since(cut).Round(time.Second))
}
