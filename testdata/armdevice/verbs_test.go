package armdevice

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	updateModule = "/usr/share/mender/modules/v3/app"
	subModule    = "/usr/share/mender/app-modules/v1/docker-compose"
	// maxPeak is the most memory that each of our programs may use, in KiB: promise
	// 5 of docs/DESIGN.md.
	maxPeak = 32 << 10
)

// run runs a script and fails the test if the script fails.
func (s *story) run(script string) Result {
	s.Helper()
	r, err := s.vm.Run(script)
	require.NoError(s, err)
	require.Zero(s, r.Code, "%s\n%s", script, r.Output)
	return r
}

// mender runs commands of the Mender client in order, until one fails, and measures
// them. The result has the exit code of the last command that ran. artifact names
// the artifact whose size is recorded; "" is none.
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
		m.Wire = info.Size()
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

// failing installs release 3, which fails, and asserts that the device is back at
// release 2.
func (s *story) failing(artifact string) measured {
	s.Helper()
	m := s.mender(artifact, "install /root/"+artifact+".mender")
	require.NotZero(s, m.Code, m.Output)
	require.Contains(s, m.Output, "service web")
	s.at("2")
	return m
}

// undo installs a release, rolls it back before its commit, and asserts that the
// device is back at the previous release. It measures the rollback, and returns what the
// installation cost.
func (s *story) undo(version, with, before string) measured {
	s.Helper()
	artifact := artifactOf(version, with)
	installed := s.mender(artifact, "install /root/"+artifact+".mender")
	require.Zero(s, installed.Code, installed.Output)
	s.says(version)
	m := s.mender("", "rollback")
	require.Zero(s, m.Code, m.Output)
	s.keep("`mender rollback` of "+version, with, m)
	s.at(before)
	return installed
}

// sandbox loads the delta of an image by hand at release 1, with and without the sandbox
// by turns, and keeps the medians by the time of the processor.
func (s *story) sandbox() {
	const rounds = 5
	require.NoError(s, s.vm.Put(s.webDelta(), "/root/web.delta"))
	taken := map[string][]measured{}
	for range rounds {
		for _, sandbox := range []string{"yes", "no"} {
			s.run("f=/etc/mender/mender-app-docker-compose.conf; touch $f; sed -i /SANDBOX/d $f; echo SANDBOX=" + sandbox + " >>$f")
			m := measured{Result: s.run(subModule + " LOAD shop shop/web:2 - </root/web.delta")}
			s.run(subModule + " DELETE shop/web:2 shop")
			s.Logf("LOAD, SANDBOX=%s: %.1f s, %.1f s of the processor", sandbox, m.Seconds, m.Processor)
			taken[sandbox] = append(taken[sandbox], m)
		}
	}
	for sandbox, all := range taken {
		slices.SortFunc(all, func(a, b measured) int { return cmp.Compare(a.Processor, b.Processor) })
		s.keep("`LOAD` by hand, `SANDBOX="+sandbox+"`", delta, all[rounds/2])
	}
}

// refused runs an installation that must be refused with these words and change
// nothing. The words must be on one line of the output.
func (s *story) refused(artifact, before, words string) {
	s.Helper()
	r, err := s.vm.Try("mender --no-syslog install /root/" + artifact + ".mender")
	require.NoError(s, err)
	require.NotZero(s, r.Code, r.Output)
	require.Contains(s, r.Output, words)
	s.at(before)
}

// refusals tests an artifact for another platform and a sub-module for another
// architecture.
func (s *story) refusals() {
	s.refused("foreign", "2", "the artifact is for "+s.machine.foreign()+" and this machine runs "+s.machine.Platform)
	// e_machine is the two bytes at offset 18; 62 means x86-64.
	s.run("cp " + subModule + " /root/kept && printf '\\76\\0' | dd of=" + subModule + " bs=1 seek=18 conv=notrunc status=none")
	s.refused("delta-4", "2", "a program for amd64 and this machine runs "+strings.Split(s.machine.Platform, "/")[1])
	s.run("mv /root/kept " + subModule)
	s.whole("2")
}

// says asserts which release answers on the web port.
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

// at asserts that a release answers and that the client believes in the same
// release.
func (s *story) at(version string) {
	s.Helper()
	s.says(version)
	r := s.run("mender --no-syslog show-provides")
	for _, line := range []string{"artifact_name=shop-" + version, "data-partition.shop.version=" + version} {
		require.Contains(s, strings.Split(r.Output, "\n"), line)
	}
}

// whole asserts that the device is at a release, that exactly the release's
// containers run, and that mender-app verify finds no damage.
func (s *story) whole(version string) {
	s.Helper()
	s.at(version)
	s.run("mender-app verify") // whose exit code says that all is well
	r := s.run("docker ps --all --format '{{.Image}} {{.State}}' | sort")
	require.Contains(s, r.Output, "shop/stock:1 running\nshop/web:"+version+" running\n")
	require.Equal(s, 2, strings.Count(r.Output, "shop/"), r.Output)
}

// cuts cuts the power during updates to release 4 and during a rollback of it. After
// each boot a person's next command completes the work, and the device is at release
// 2.
func (s *story) cuts() {
	const install = "install /root/delta-4.mender"
	s.cut("app Download", "called.LOAD", install)
	s.says("2")
	s.run("mender-app resume")
	s.whole("2")

	// From here on the device has no battery for its clock.
	s.vm.Clock = "1970-01-01T00:00:00"
	s.cut("app ArtifactInstall", "called.ROLLOUT", install)
	require.Equal(s, "1970", strings.TrimSpace(s.run("date +%Y").Output))
	s.run("mender-app resume")
	s.whole("2")

	s.run("mender --no-syslog " + install)
	s.cut("app ArtifactRollback", "call.ROLLBACK", "rollback")
	s.run("mender --no-syslog rollback")
	s.whole("2")
}

// cut runs the Mender client until a call of app reaches a point, cuts the power
// there, and boots the device.
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
