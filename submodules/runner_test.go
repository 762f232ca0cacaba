package submodules

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
)

func TestFind(t *testing.T) {
	dir := t.TempDir()
	_, err := Find(dir, "../sh")
	require.ErrorContains(t, err, "does not begin with a letter or a digit")
	_, err = Find(dir, "none")
	var nf *NotFoundError
	require.ErrorAs(t, err, &nf)
	require.ErrorIs(t, err, ErrRequirement)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "plain"), []byte("x"), 0o600))
	_, err = Find(dir, "plain")
	var ne *NotExecutableError
	require.ErrorAs(t, err, &ne)
	require.ErrorContains(t, err, "chmod +x")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "sub"), 0o700))
	_, err = Find(dir, "sub")
	require.ErrorAs(t, err, &ne)

	// A program for another machine, and a script without its interpreter. The s390x
	// program has the file type ET_NONE: emulators that are registered for s390x would
	// run an ET_EXEC.
	for head, says := range map[string]string{
		"\x7fELF\x02\x02\x01" + strings.Repeat("\x00", 9) + "\x00\x00\x00\x16": "it is a program for s390x and this machine runs " + runtime.GOARCH + ":",
		"\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + "\x02\x00\xff\xfe": "it is a program for another processor (ELF machine 65279) and",
		"MZ": "it is not a program for any known machine and",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "alien"), []byte(head+strings.Repeat("\x00", 44)), 0o700))
		m, err := Find(dir, "alien")
		require.NoError(t, err)
		err = m.Client().Sync(t.Context(), Request{App: "a"})
		require.ErrorAs(t, err, &ne)
		require.ErrorContains(t, err, says)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "script"), []byte("#!/no/such/shell\n"), 0o700))
	m, err := Find(dir, "script")
	require.NoError(t, err)
	err = m.Client().Sync(t.Context(), Request{App: "a"})
	require.ErrorContains(t, err, "interpreter is missing")
}

func TestRoundTrip(t *testing.T) {
	m, rec := module(t)
	var log []string
	m.Config.Log = func(l string) { log = append(log, l) }
	ctx := t.Context()

	info, err := m.Describe(ctx)
	require.NoError(t, err)
	require.Equal(t, Info{Protocol: "1.1", Name: "fake", Version: "0.1", Features: []string{"stream", "status", "logs/1", "check/1", "overrides/1", "data/1", "from-the-future", "statuses/1"}}, info)
	require.True(t, info.Has(FeatureStream))
	require.False(t, info.Has(FeatureSync))

	tmp := t.TempDir()
	req := Request{App: "shop", Platform: "linux/arm/v7", TempDir: tmp,
		Components: []Component{{Type: "image", URL: "web:2", Digest: "sha256:11", DiffIDs: []digest.Digest{"sha256:22"}}}, Env: map[string]string{"K8S_NAMESPACE": "shop"}}
	require.NoError(t, m.Load(ctx, LoadRequest{Request: req, URL: "web:2", Path: "/x", CurrentURL: "web:1", DeepDelta: true, Stage: true}))
	got := read[LoadRequest](t, rec, VerbLoad)
	require.Equal(t, "shop", got.App)
	require.Equal(t, "web:2", got.URL)
	require.Equal(t, "/x", got.Path)
	require.Equal(t, "web:1", got.CurrentURL)
	require.Equal(t, []bool{true, true, false, false}, []bool{got.DeepDelta, got.Stage, got.Delta, got.Distrust})
	require.Equal(t, req.Components, got.Components)
	require.Equal(t, "linux/arm/v7", got.Platform)
	require.Equal(t, tmp, got.TempDir)
	require.Equal(t, req.Env, got.Env)
	require.Equal(t, []string{"loading web:2"}, log)
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	require.Empty(t, left, "the components file goes with the call")

	require.NoError(t, m.Delete(ctx, DeleteRequest{Request: Request{App: "shop"}, URL: "web:1"}))
	require.Equal(t, "web:1", read[DeleteRequest](t, rec, VerbDelete).URL)
	require.NoError(t, m.Rollout(ctx, Request{App: "shop", Dir: "/d"}))
	require.NoError(t, m.Rollback(ctx, RollbackRequest{Request: Request{App: "shop", Dir: "/d"}, FailedDir: "/f"}))
	require.Equal(t, "/f", read[RollbackRequest](t, rec, VerbRollback).FailedDir)
	require.NoError(t, m.Rollback(ctx, RollbackRequest{Request: Request{App: "shop", Dir: "/d"}}))
	require.Empty(t, read[RollbackRequest](t, rec, VerbRollback).FailedDir)
	var down []Downtime
	m.Downtimes = func(l []Downtime) { down = append(down, l...) }
	require.Error(t, m.Rollout(ctx, Request{App: "shop", Dir: "/unhealthy"}))
	require.NoError(t, m.Rollback(ctx, RollbackRequest{Request: Request{App: "shop", Dir: "/d"}}))
	require.Len(t, down, 2)
	require.True(t, down[0].Up.IsZero())
	require.Equal(t, 1500*time.Millisecond, down[1].Up.Sub(down[1].Down))
	require.NoError(t, m.Stop(ctx, StopRequest{Request: Request{App: "shop", Dir: "/d"}}))
	require.NoError(t, m.Start(ctx, Request{App: "shop", Dir: "/d"}))
	require.NoError(t, m.Sync(ctx, Request{App: "shop"}))
	require.NoError(t, m.ExportManifest(ctx, Request{App: "shop", Dir: "/d"}))
	require.NoError(t, m.Restore(ctx, Request{App: "shop", Dir: "/d"}))
	require.Equal(t, "/d", read[Request](t, rec, VerbRestore).Dir)
	require.NoError(t, m.Purge(ctx, PurgeRequest{Request: Request{App: "shop"}, Data: true}))
	require.True(t, read[PurgeRequest](t, rec, VerbPurge).Data)
	require.Empty(t, read[PurgeRequest](t, rec, VerbPurge).Dir)
	require.NoError(t, m.Purge(ctx, PurgeRequest{Request: Request{App: "shop", Dir: "/d"}}))
	require.Equal(t, "/d", read[PurgeRequest](t, rec, VerbPurge).Dir)

	list, err := m.List(ctx, Request{App: "shop"})
	require.NoError(t, err)
	require.Equal(t, []Component{{Type: "image", URL: "web:1", Digest: "sha256:00", AdditionalData: json.RawMessage(`{"size":1}`)}}, list)
	reqs, err := m.Reqs(ctx, ReqsRequest{Recipients: []string{"age1a", "age1b"}})
	require.NoError(t, err)
	require.Equal(t, []string{"age1a", "age1b"}, read[ReqsRequest](t, rec, VerbReqs).Recipients)
	require.Equal(t, []Requirement{{"docker", false}, {"xz", true}}, reqs)
	ok, err := m.Alive(ctx, Request{App: "shop"})
	require.NoError(t, err)
	require.True(t, ok)
	ok, err = m.Healthy(ctx, Request{App: "shop"})
	require.NoError(t, err)
	require.False(t, ok)
	_, err = m.Healthy(ctx, Request{App: "broken"})
	require.ErrorIs(t, err, ErrFailed)
	lines, err := m.Verify(ctx, req)
	require.NoError(t, err)
	require.Equal(t, []string{"web:2 is missing"}, lines)
	lines, err = m.Verify(ctx, Request{App: "shop"})
	require.NoError(t, err)
	require.Empty(t, lines)
	apps, err := m.Repair(ctx, RepairRequest{Request: Request{App: "shop"}, Work: "/r", Source: "/source", Finish: true})
	require.NoError(t, err)
	require.Equal(t, []string{"shop", "other"}, apps)
	repair := read[RepairRequest](t, rec, VerbRepair)
	require.Equal(t, "/r", repair.Work)
	require.Equal(t, "/source", repair.Source)
	_, err = m.Repair(ctx, RepairRequest{Request: Request{App: "shop"}, Work: "/r"})
	require.NoError(t, err)
	require.Empty(t, read[RepairRequest](t, rec, VerbRepair).Source)
	dirs, err := m.Storage(ctx, Request{App: "shop"})
	require.NoError(t, err)
	require.Equal(t, []string{rec}, dirs)
	engine, err := m.Engine(ctx, Request{})
	require.NoError(t, err)
	require.Equal(t, Engine{Name: "docker", Version: "28.5.2"}, engine)
	var out bytes.Buffer
	require.NoError(t, m.Save(ctx, SaveRequest{Request: Request{App: "shop", Stdout: &out}, URL: "u", Path: "-"}))
	require.Equal(t, "content", out.String())
}

func TestErrors(t *testing.T) {
	m, _ := module(t)
	err := m.Rollout(t.Context(), Request{App: "shop", Dir: "/unhealthy"})
	require.ErrorIs(t, err, ErrUnhealthy)
	require.NotErrorIs(t, err, ErrContent)
	require.EqualError(t, err, "fake ROLLOUT: web is unhealthy")
	err = m.Rollout(t.Context(), Request{App: "shop", Dir: "/space"})
	require.ErrorIs(t, err, ErrSpace)
	err = m.Rollout(t.Context(), Request{App: "../shop", Dir: "/x"})
	require.ErrorIs(t, err, ErrUsage)
	err = m.Rollout(t.Context(), Request{App: "shop"})
	require.ErrorIs(t, err, ErrUsage)
	err = m.Rollout(t.Context(), Request{App: "sh\x00op", Dir: "/x"})
	require.ErrorContains(t, err, "NUL")
	err = m.Rollout(t.Context(), Request{App: "shop", Dir: "/x", Env: map[string]string{"LD_PRELOAD": "/x.so"}})
	require.ErrorContains(t, err, `the name "LD_PRELOAD" means something`)
}

func TestEnvironmentIsFixed(t *testing.T) {
	t.Setenv("SECRET_OF_THE_CALLER", "x")
	t.Setenv("DOCKER_HOST", "unix:///x.sock")
	m, rec := module(t)
	m.Config.ConfigDir = "/conf"
	require.NoError(t, m.Sync(t.Context(), Request{App: "shop"}))
	env := readCall[Request](t, rec, VerbSync).Environ
	require.Contains(t, env, "DOCKER_HOST=unix:///x.sock")
	require.Contains(t, env, "MENDER_APP_CONFIG_DIR=/conf")
	require.NotContains(t, strings.Join(env, "\n"), "SECRET")
}

func TestStdin(t *testing.T) {
	m, rec := module(t)
	content := strings.Repeat("0123456789", 100000)
	require.NoError(t, m.Load(t.Context(), LoadRequest{Request: Request{App: "a"}, URL: "u", Path: "-", Stdin: strings.NewReader(content)}))
	b, err := os.ReadFile(filepath.Join(rec, "stdin"))
	require.NoError(t, err)
	require.Equal(t, content, string(b))

	// A sub-module that gives up early leaves the rest unread and is heard.
	r := strings.NewReader(strings.Repeat(content, 10))
	err = m.Load(t.Context(), LoadRequest{Request: Request{App: "a"}, URL: "early", Path: "-", Stdin: r})
	require.ErrorIs(t, err, ErrContent)
	require.Positive(t, r.Len())

	// A reader that fails must not look like the end of the content.
	broken := errors.New("the network is gone")
	require.NoError(t, os.Remove(filepath.Join(rec, VerbLoad)))
	err = m.Load(t.Context(), LoadRequest{Request: Request{App: "a"}, URL: "u", Path: "-", Stdin: io.MultiReader(strings.NewReader("x"), iotest.ErrReader(broken))})
	require.ErrorIs(t, err, broken)
}

func TestDeadlineLeavesNothingBehind(t *testing.T) {
	for _, kind := range []string{"slow", "stubborn"} {
		t.Run(kind, func(t *testing.T) {
			m, rec := module(t)
			m.Config.Deadline = 3 * time.Second // an emulated processor takes half a second to start a program
			m.Config.KillAfter = 500 * time.Millisecond
			err := m.Rollout(t.Context(), Request{App: "a", Dir: "/" + kind})
			require.ErrorIs(t, err, ErrDeadline)
			pids, err := os.ReadFile(filepath.Join(rec, "child"))
			require.NoError(t, err)
			gone(t, string(pids))
		})
	}
}

func TestOldSubModule(t *testing.T) {
	m := script(t, `case "$1" in
LIST) echo '[{"type":"image","url":"x","new":{"a":1}}]';;
HEALTHY) exit 1;;
ALIVE) ;;
SYNC) sleep 1000 & echo 1>&2 "no newline at the end"; printf 'last word' >&2; exit 17;;
LOAD) yes | head -c 100000 >&2; echo; echo >&2 "error: that was much";  exit 1;;
SAVE) yes;;
*) echo >&2 "unknown verb"; exit 1;;
esac
`)
	ctx := t.Context()
	info, err := m.Describe(ctx)
	require.NoError(t, err)
	require.Equal(t, "1.0", info.Protocol)
	require.Empty(t, info.Features)
	list, err := m.List(ctx, Request{App: "a"})
	require.NoError(t, err)
	require.Equal(t, "x", list[0].URL)
	ok, err := m.Alive(ctx, Request{App: "a"})
	require.NoError(t, err)
	require.True(t, ok)
	ok, err = m.Healthy(ctx, Request{App: "a"})
	require.ErrorIs(t, err, ErrFailed, "exit 1 without a word is a failure, not an answer")
	require.False(t, ok)
	err = m.Sync(ctx, Request{App: "a"})
	require.EqualError(t, err, "sh SYNC: last word")
	require.ErrorIs(t, err, ErrFailed)
	lines := 0
	err = m.Load(ctx, LoadRequest{Request: Request{App: "a", Log: func(string) { lines++ }}, URL: "u", Path: "p"})
	require.EqualError(t, err, "sh LOAD: that was much")
	require.Equal(t, maxLines+1, lines)
	ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	err = m.Save(ctx, SaveRequest{Request: Request{App: "a"}, URL: "u", Path: "p"})
	require.ErrorIs(t, err, ErrDeadline)
}

func TestDescribeSurprises(t *testing.T) {
	for text, want := range map[string]string{
		`echo hello`:                "1.0",
		`echo '{"protocol":"2.0"}'`: "1.0",
		`echo '{"protocol":"1.7","features":["x"],"more":[1]}'`: "1.7",
		`head -c 20000000 /dev/zero; exit 1`:                    "1.0",
	} {
		info, err := script(t, text).Describe(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, info.Protocol, text)
		require.NotEmpty(t, info.Name)
	}
}

// A caller that is killed takes the sub-module and its children with it.
func TestKilledCaller(t *testing.T) {
	m, rec := module(t)
	caller := exec.Command(m.Path)
	caller.Env = append(os.Environ(), m.Config.Env[0], "TEST_CALLER="+m.Path)
	require.NoError(t, caller.Start())
	var pids []byte
	require.Eventually(t, func() bool {
		var err error
		pids, err = os.ReadFile(filepath.Join(rec, "child"))
		return err == nil && len(pids) > 0
	}, 20*time.Second, 20*time.Millisecond)
	require.NoError(t, caller.Process.Kill())
	_ = caller.Wait()
	self, _, _ := strings.Cut(strings.TrimSpace(string(pids)), " ")
	gone(t, self)
	// Its child is the verb's to end; the fake one leaves that to us.
	if _, child, ok := strings.Cut(strings.TrimSpace(string(pids)), " "); ok {
		pid, err := strconv.Atoi(child)
		require.NoError(t, err)
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// What a command says is kept as far as there is room, and it never waits.
func TestCapped(t *testing.T) {
	c := Capped{Max: 5}
	for _, s := range []string{"", "abc", "de"} {
		n, err := c.Write([]byte(s))
		require.NoError(t, err)
		require.Equal(t, len(s), n)
		require.False(t, c.Over)
	}
	for range 2 {
		n, err := c.Write([]byte("fgh"))
		require.NoError(t, err)
		require.Equal(t, 3, n)
		require.True(t, c.Over)
		require.Equal(t, "abcde", c.buf.String())
	}
}
