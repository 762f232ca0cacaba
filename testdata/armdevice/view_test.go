package armdevice

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	program = "/usr/bin/mender-app"
	// maxViewPeak is the most memory that looking at the applications may take, in KiB.
	maxViewPeak = 16 << 10
)

// foretold is undo, and holds what mender-app check says of the time before to the time
// that the installation then takes. basis is what the installations cost that it knows.
// When this machine has no processor for the device, its clock runs on. So both times are
// compared as if it had had one: what the device waited for, and what QEMU took of this
// machine's processors.
func (s *story) foretold(version, with, before string, basis measured) {
	s.Helper()
	r, err := s.vm.Try("mender-app check /root/" + artifactOf(version, with) + ".mender --json 2>/dev/null")
	require.NoError(s, err)
	var said struct {
		Seconds float64
		Basis   int
	}
	require.NoError(s, json.Unmarshal([]byte(r.Output), &said), r.Output)
	require.Positive(s, said.Basis, r.Output)
	m := s.undo(version, with, before)
	var record struct {
		Started time.Time
		Steps   []struct {
			Phase string
			At    time.Time
		}
	}
	text := s.run("mender-app history shop --limit 1 --json").Output
	var page []json.RawMessage
	require.NoError(s, json.Unmarshal([]byte(text), &page), text)
	require.Len(s, page, 1, text)
	require.NoError(s, json.Unmarshal(page[0], &record), text)
	took := 0.0
	for _, step := range record.Steps {
		if step.Phase == "installed" {
			took = step.At.Sub(record.Started).Seconds()
		}
	}
	fair := func(m measured) float64 { return (m.Idle + m.Processor) / m.Seconds }
	s.Logf("%s of %s: check says %.1f s, of %d installations; it took %.1f s. With a processor of its own the device would have taken %.2f of the one time and %.2f of the other",
		with, version, said.Seconds, said.Basis, took, fair(basis), fair(m))
	require.InEpsilon(s, took*fair(m), said.Seconds*fair(basis), 0.25)
}

// artifactOf is the name of the artifact of a version.
func artifactOf(version, with string) string {
	if with == full {
		return "full-" + version
	}
	return "delta-" + version
}

// many makes a store of 200 applications, with 500 records of each, from that of shop.
const many = `set -e
store=/data/mender-app
rm -rf /root/many; mkdir -p /root/many/store/.mender-app/history /root/many/sub
cd /root/many
cat >sub/quick <<'END'
#!/bin/sh
case $1 in
PROTOCOL) echo '{"protocol":"1.1","name":"quick","version":"1","features":["status","statuses/1"]}' ;;
STATUS) shift; for app; do echo '{"application":"'$app'","alive":true,"healthy":true,"services":[{"service":"web","instance":"'$app'-web-1","health":"healthy","since":"2026-11-24T07:13:39Z","restarts":0}]}'; done ;;
esac
END
chmod 755 sub/quick
printf 'persistent_store = "/root/many/store"\napp_modules_dir = "/root/many/sub"\n' >conf
record=$(tail -n 1 "$store/.mender-app/history/shop.jsonl")
for i in $(seq 499); do echo "$record"; done >records
cp -a "$store/shop" one
find one -type f ! -name '*.json' -delete
sed -i 's/docker-compose/quick/g' one/releases/*/release.json
for i in $(seq -w 200); do
	cp -a one store/app$i
	sed -i "s/\"shop\"/\"app$i\"/" store/app$i/app.json
	{ cat records; echo "$record" | sed "s/\"shop\"/\"app$i\"/"; } >store/.mender-app/history/app$i.jsonl
done
sync
`

// view asks for a lot of applications. It holds the memory; the time of the processor is
// that of the device.
func (s *story) view() {
	s.run(many)
	const ask = `exec 3<>/dev/tcp/127.0.0.1/8099; printf 'GET %s HTTP/1.0\r\nAuthorization: Bearer 0123456789abcdef\r\n\r\n' >&3; cat <&3 | grep -c app200; exec 3>&-`
	for _, c := range []struct{ what, script string }{
		{"mender-app version", "mender-app version"},
		{"mender-app status", "mender-app status | grep -c '^application'"},
		{"mender-app status, again", "mender-app status | grep -c '^application'"},
		{"its sub-module alone", "cd sub; ./quick PROTOCOL; for n in 1 65 129; do ./quick STATUS $(seq -f app%03g $n $((n+63))); done; ./quick STATUS $(seq -f app%03g 193 200)"},
		{"mender-app check", "unset MENDER_APP_CONFIG; mender-app check /root/full-2.mender || [ $? = 9 ]"},
		{"mender-app serve", "echo 0123456789abcdef >token; chmod 600 token; mender-app serve --listen 127.0.0.1:8099 --token-file token --idle 10s & until (exec 3<>/dev/tcp/127.0.0.1/8099) 2>/dev/null; do sleep 0.2; done; " +
			fmt.Sprintf(ask, "/v1/apps") + "; " + fmt.Sprintf(ask, "/metrics") + "; wait $!"},
	} {
		r := s.run("export MENDER_APP_CONFIG=/root/many/conf; cd /root/many; exec 2>&1; TIMEFORMAT='%U s and %S s'; time { " + c.script + "; }")
		lines := strings.Split(strings.TrimSpace(r.Output), "\n")
		s.Logf("%s: %s of the processor, %d KiB", c.what, lines[len(lines)-1], r.Peaks[program])
		require.LessOrEqual(s, r.Peaks[program], int64(maxViewPeak), c.what)
		if strings.HasPrefix(c.what, "mender-app status") {
			require.Equal(s, "200", lines[0], r.Output)
		}
	}
}
