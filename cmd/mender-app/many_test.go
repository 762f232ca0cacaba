package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/cmd/internal/devicetest"
	"github.com/mender-app/mender-app/store"
)

const (
	manyApps    = 200
	manyRecords = 500      // of each: more than a device keeps
	manyLimit   = 16 << 10 // KiB that mender-app may take on arm/v7
)

// quick is a sub-module that costs little, so that mender-app's own cost shows.
const quick = `#!/bin/sh
case $1 in
PROTOCOL) echo '{"protocol":"1.1","name":"quick","version":"1","features":["status","statuses/1","check/1"]}' ;;
STATUS) shift
	[ $# -gt 1 ] || { echo '{"alive":true,"healthy":true,"services":[{"service":"web","instance":"'$1'-web-1","health":"healthy","since":"2026-11-24T07:13:39Z","restarts":0}]}'; exit; }
	for app; do echo '{"application":"'$app'","alive":true,"healthy":true,"services":[{"service":"web","instance":"'$app'-web-1","health":"healthy","since":"2026-11-24T07:13:39Z","restarts":0}]}'; done ;;
CHECK) echo '{"starts":[],"restarts":["web"],"keeps":[],"removes":[]}' ;;
ENGINE) echo '{"name":"quick","version":"1.0"}' ;;
esac
`

// many makes a device with manyApps applications and manyRecords records of each.
func many(t testing.TB) *devicetest.Device {
	t.Helper()
	d, err := devicetest.NewDevice(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(d.Dir, "sub/quick"), []byte(quick), 0o755))
	s := store.At(filepath.Join(d.Dir, "store"))
	require.NoError(t, s.Prepare())
	history := filepath.Join(s.Dir(), ".mender-app", "history")
	require.NoError(t, os.MkdirAll(history, 0o700))
	begin := time.Now().Add(-manyRecords * time.Hour).UTC().Truncate(time.Second)
	for i := range manyApps {
		name := fmt.Sprintf("app%03d", i)
		a, err := s.Create(name)
		require.NoError(t, err)
		for _, id := range []string{"499-r", "500-r"} {
			require.NoError(t, a.PutRelease(&store.Release{ID: id, ArtifactName: name + "-" + id, Version: "1." + id[:3], Orchestrator: "quick", Platform: "linux/arm/v7",
				Created: begin, Complete: true, Components: []store.Component{{Type: "image", URL: "web:1", Digest: digest.Of([]byte(id))}}}))
		}
		a.Current, a.Kept = "500-r", []string{"499-r"}
		require.NoError(t, a.Point("500-r"))
		require.NoError(t, a.Save())
		var lines bytes.Buffer
		for n := range manyRecords {
			r := store.Record{ID: strconv.Itoa(n), Number: int64(n + 1), Application: name, ArtifactName: name + "-r", From: "499-r", To: "500-r", Status: store.StatusInstalled,
				Driver: "mender", Asked: &store.Asked{How: store.AskedByClient}, Started: begin.Add(time.Duration(n) * time.Hour), Measured: &store.Measured{Received: 1 << 20, Written: 2 << 20}}
			r.Ended = r.Started.Add(40 * time.Second)
			for j, phase := range []store.Phase{"downloading", "loaded", "installing", "installed", "committed", "cleaning"} {
				r.Steps = append(r.Steps, store.Step{Phase: phase, At: r.Started.Add(time.Duration(j) * 6 * time.Second), End: r.Ended, Outcome: store.OutcomeDone})
			}
			line, err := json.Marshal(r)
			require.NoError(t, err)
			if n == manyRecords-1 {
				line = fmt.Appendf(line[:len(line)-1], `,"totals":{"statuses":{"installed":%d},"success":%q}}`, manyRecords, r.Ended.Format(time.RFC3339))
			}
			lines.Write(append(line, '\n'))
		}
		require.NoError(t, os.WriteFile(filepath.Join(history, name+".jsonl"), lines.Bytes(), 0o644))
	}
	return d
}

// emulated builds mender-app for arm/v7, and returns how it is run here.
func emulated(t testing.TB) []string {
	t.Helper()
	qemu, err := exec.LookPath("qemu-arm-static")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("missing in CI: qemu-arm-static")
		}
		t.Skip("needs qemu-arm-static (Debian package qemu-user-static)")
	}
	return []string{qemu, build(t, "GOARCH=arm", "GOARM=7")}
}

// build builds mender-app.
func build(t testing.TB, env ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "mender-app")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", program, ".")
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0"), env...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

// taken is what a process took, without the programs that it started.
type taken struct {
	peak      int64 // KiB
	processor time.Duration
}

// sample adds what a running process took so far. Of a process that QEMU emulates, the
// memory is that of the program: QEMU maps its file at an address, and what the program
// has lies within 4 GiB from there.
func (m *taken) sample(pid int, program string) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", pid))
	var begin, address uint64
	var sum int64
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if first, _, isMap := strings.Cut(fields[0], "-"); isMap {
			address, _ = strconv.ParseUint(first, 16, 64)
			if begin == 0 && fields[len(fields)-1] == program {
				begin = address
			}
		} else if fields[0] == "Rss:" && begin > 0 && address < begin+1<<32 {
			n, _ := strconv.ParseInt(fields[1], 10, 64)
			sum += n
		}
	}
	m.peak = max(m.peak, sum)
	if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
		_, rest, _ := strings.Cut(string(text), ") ")
		if f := strings.Fields(rest); len(f) > 12 {
			user, _ := strconv.ParseInt(f[11], 10, 64)
			system, _ := strconv.ParseInt(f[12], 10, 64)
			m.processor = max(m.processor, time.Duration(user+system)*10*time.Millisecond)
		}
	}
}

// take runs a command to its end.
func take(t testing.TB, cmd *exec.Cmd, program string) (out string, m taken) {
	t.Helper()
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	require.NoError(t, cmd.Start())
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case err := <-done:
			require.NoError(t, err, said.String())
			return said.String(), m
		case <-time.After(2 * time.Millisecond):
			m.sample(cmd.Process.Pid, program)
		}
	}
}

// With many applications and a long history, what is asked most stays within its memory.
// The processor time is logged: it is that of the machine that emulates.
func TestManyApplications(t *testing.T) {
	if os.Getenv("MENDER_APP_BENCH") == "" {
		t.Skip("makes 100,000 records: needs MENDER_APP_BENCH")
	}
	d := many(t)
	arm := emulated(t)
	command := func(args ...string) *exec.Cmd {
		c := d.Command("mender-app")
		c.Path, c.Args = arm[0], append(arm[:2:2], args...)
		return c
	}
	next := devicetest.Artifact{Name: "app000-501", App: "app000", Compose: "one", Images: []string{"web:1=web"}, Orchestrator: "quick"}
	require.NoError(t, next.Write(filepath.Join(d.Dir, "next.mender")))
	for _, args := range [][]string{{"version"}, {"list"}, {"status", "app000"}, {"status"}, {"check", "next.mender"}, {"metrics"}} {
		_, m := take(t, command(args...), arm[1])
		m.within(t, strings.Join(args, " "))
	}

	socket := filepath.Join(d.Dir, "s")
	serve := command("serve", "--socket", socket)
	start(t, serve)
	ask := asking(t, socket)
	var m taken
	for _, path := range []string{"", "/v1/apps/app000", "/v1/apps", "/metrics"} {
		if path != "" {
			require.Contains(t, ask(path), "app000")
		}
		m.sample(serve.Process.Pid, arm[1])
		m.within(t, "serve, after "+path)
	}
}

// within holds the memory of what a process took.
func (m taken) within(t *testing.T, what string) {
	t.Helper()
	t.Logf("%s, arm/v7: %v and %d KiB", what, m.processor, m.peak)
	require.Positive(t, m.peak)
	require.LessOrEqual(t, m.peak, int64(manyLimit), what)
}
