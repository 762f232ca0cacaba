package hooks

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/modules/policy"
)

// rig has a release and a device's directory of hooks.
type rig struct {
	*Runner
	t      *testing.T
	dir    string
	mu     sync.Mutex
	log    strings.Builder
	pauses []time.Duration
}

// Write takes the log.
func (g *rig) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.log.Write(p)
}

func newRig(t *testing.T) *rig {
	g := &rig{t: t, dir: t.TempDir()}
	g.Runner = &Runner{
		Dir: filepath.Join(g.dir, "hooks.d"), Log: slog.New(slog.NewTextHandler(g, nil)), KillAfter: 100 * time.Millisecond,
		Sleep: func(ctx context.Context, d time.Duration) error { g.pauses = append(g.pauses, d); return ctx.Err() },
	}
	return g
}

// write makes a file with its directory.
func (g *rig) write(name, text string, mode os.FileMode) {
	path := filepath.Join(g.dir, name)
	require.NoError(g.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(g.t, os.WriteFile(path, []byte(text), mode))
	require.NoError(g.t, os.Chmod(path, mode))
}

// call runs the hook of a release whose script is given.
func (g *rig) call(h policy.Hook, script string) error {
	g.write("release/hooks/"+h.Name, "#!/bin/sh\n"+script, 0o755)
	return g.run(h)
}

func (g *rig) run(h policy.Hook) error {
	return g.Run(g.t.Context(), Call{
		Own: h, Manifests: filepath.Join(g.dir, "release"), Name: h.Name, Application: "shop",
		Operation: "install", Direction: "upgrade", Automatic: true, Event: "boot",
		Old: Release{"1.0", "/old"}, New: Release{"2.0", "/new"}, Handover: filepath.Join(g.dir, "handover"),
	})
}

func TestEnvironment(t *testing.T) {
	t.Setenv("SECRET_OF_THE_CALLER", "x")
	g := newRig(t)
	require.NoError(t, g.call(policy.Hook{Name: "check"}, `env | sort >"$MENDER_APP_HANDOVER"; pwd >>"$MENDER_APP_HANDOVER"`))
	data, err := os.ReadFile(filepath.Join(g.dir, "handover"))
	require.NoError(t, err)
	for _, line := range []string{
		"MENDER_APP_HOOK=check", "MENDER_APP_APPLICATION=shop", "MENDER_APP_OPERATION=install", "MENDER_APP_MODE=automatic", "MENDER_APP_EVENT=boot",
		"MENDER_APP_DIRECTION=upgrade", "MENDER_APP_OLD_VERSION=1.0", "MENDER_APP_OLD_DIR=/old", "MENDER_APP_NEW_VERSION=2.0", "MENDER_APP_NEW_DIR=/new",
		filepath.Join(g.dir, "release"),
	} {
		require.Contains(t, string(data), line+"\n")
	}
	require.Contains(t, string(data), "MENDER_APP_DEADLINE=")
	require.NotContains(t, string(data), "SECRET_OF_THE_CALLER")
}

func TestOrderAndTrust(t *testing.T) {
	g := newRig(t)
	add := func(name string) { g.write("hooks.d/check/"+name, "#!/bin/sh\necho $0 >>"+g.dir+"/order\n", 0o755) }
	add("20-b")
	add("10-a")
	require.NoError(t, g.call(policy.Hook{Name: "check"}, "echo own >>"+g.dir+"/order"))
	data, err := os.ReadFile(filepath.Join(g.dir, "order"))
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("%[1]s/hooks.d/check/10-a\n%[1]s/hooks.d/check/20-b\nown\n", g.dir), string(data))

	require.NoError(t, os.Chmod(filepath.Join(g.dir, "hooks.d/check/10-a"), 0o775))
	require.ErrorContains(t, g.run(policy.Hook{Name: "check"}), "can be changed by others than its owner")
	require.NoError(t, os.Chmod(filepath.Join(g.dir, "hooks.d/check/10-a"), 0o644))
	require.ErrorContains(t, g.run(policy.Hook{Name: "check"}), "not an executable file")
	require.NoError(t, os.Remove(filepath.Join(g.dir, "hooks.d/check/10-a")))
	require.NoError(t, os.Symlink("20-b", filepath.Join(g.dir, "hooks.d/check/10-a")))
	require.ErrorContains(t, g.run(policy.Hook{Name: "check"}), "10-a is a link")
	require.NoError(t, os.Remove(filepath.Join(g.dir, "hooks.d/check/10-a")))
	require.NoError(t, os.Chmod(filepath.Join(g.dir, "hooks.d"), 0o777))
	require.ErrorContains(t, g.run(policy.Hook{Name: "check"}), "hooks.d can be changed by others than its owner")
}

func TestRefusalSaysWhy(t *testing.T) {
	g := newRig(t)
	err := g.call(policy.Hook{Name: "check"}, "echo looking; echo 'error: the tank is empty' >&2; exit 3")
	require.EqualError(t, err, "check of shop: it exited with 3: the tank is empty")
	require.Contains(t, g.log.String(), "looking")
	require.NoError(t, g.call(policy.Hook{Name: "check", AllowFailure: true}, "exit 1"))
	require.Contains(t, g.log.String(), "a hook failed, and may")
}

func TestRetries(t *testing.T) {
	g := newRig(t)
	count := "echo x >>" + g.dir + "/count; "
	require.Error(t, g.call(policy.Hook{Name: "check", Retries: 5}, count+"exit 1"))
	require.Equal(t, []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second, 30 * time.Second, 30 * time.Second}, g.pauses)
	require.NoError(t, g.call(policy.Hook{Name: "check", Retries: 5}, count+"[ $(wc -l <"+g.dir+"/count) = 8 ]"))
}

func TestStatusIsAskedUntilReady(t *testing.T) {
	g := newRig(t)
	require.NoError(t, g.call(policy.Hook{Name: "status"}, "echo x >>"+g.dir+"/count; [ $(wc -l <"+g.dir+"/count) = 4 ] || exit 75"))
	require.Len(t, g.pauses, 3)
	require.ErrorContains(t, g.call(policy.Hook{Name: "status"}, "exit 1"), "status of shop: it exited with 1")

	// The time ends in a pause, and in an attempt.
	limit := policy.Hook{Name: "status", Timeout: "2s"}
	g.Sleep = func(ctx context.Context, _ time.Duration) error { <-ctx.Done(); return ctx.Err() }
	require.EqualError(t, g.call(limit, "echo 'still at 40 %'; exit 75"), "status of shop: not ready after 2s: still at 40 %")
	g.Sleep = func(context.Context, time.Duration) error { return nil }
	second := "[ -e " + g.dir + "/first ] && sleep 60; touch " + g.dir + "/first; echo 'still at 50 %'; exit 75"
	require.EqualError(t, g.call(limit, second), "status of shop: not ready after 2s: still at 50 %")
}

// Hooks that do what they must not are ended, and named.
func TestBadHooks(t *testing.T) {
	g := newRig(t)
	second := policy.Hook{Name: "check", Timeout: "1s"}
	require.ErrorContains(t, g.call(second, "trap '' TERM; while :; do sleep 0.1; done"), "it did not end in time")

	// A process that stays in the group is killed, one that holds the output does not
	// hold the call.
	require.NoError(t, g.call(policy.Hook{Name: "check"}, "sh -c 'sleep 2; echo alive >"+g.dir+"/alive' & exit 0"))
	require.NoError(t, g.call(policy.Hook{Name: "check"}, "setsid sleep 3 & sleep 0.5"))
	require.Contains(t, g.log.String(), "outside of its process group")

	require.NoError(t, g.call(policy.Hook{Name: "check"}, "i=0; while [ $i -lt 3000 ]; do echo $i; i=$((i+1)); done; head -c 5000000 /dev/zero"))
	require.Contains(t, g.log.String(), "more lines")
	require.Less(t, g.log.Len(), 200<<10)

	g.write("release/hooks/check", "\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x34\x12"+strings.Repeat("\x00", 64), 0o755)
	require.ErrorContains(t, g.run(policy.Hook{Name: "check"}), "it is a program for another processor (ELF machine 4660) and this machine runs ")
	g.write("release/hooks/check", "#!/no/such/interpreter\n", 0o755)
	require.ErrorContains(t, g.run(policy.Hook{Name: "check"}), "its interpreter is missing")

	require.NoFileExists(t, filepath.Join(g.dir, "alive"))
}

// A hook is a file of the release, and nothing else.
func TestFilesOfHooks(t *testing.T) {
	g := newRig(t)
	manifests := filepath.Join(g.dir, "release")
	check := func() error { return g.Check(manifests, []policy.Hook{{Name: "check"}}) }
	require.ErrorContains(t, check(), "no directory hooks")
	require.NoError(t, os.MkdirAll(filepath.Join(manifests, "hooks"), 0o755))
	require.ErrorContains(t, check(), "hooks/check is missing in the manifests")
	require.NoError(t, os.Symlink("/bin/true", filepath.Join(manifests, "hooks/check")))
	require.ErrorContains(t, check(), "hooks/check is not a file")
	require.ErrorContains(t, g.run(policy.Hook{Name: "check"}), "hooks/check is not a file")
	require.NoError(t, os.Remove(filepath.Join(manifests, "hooks/check")))
	g.write("release/hooks/check", "#!/bin/sh\n", 0o644)
	require.ErrorContains(t, check(), "hooks/check is not executable")
	g.write("release/hooks/check", "#!/bin/sh\n", 0o755)
	require.NoError(t, check())
	require.NoError(t, os.Rename(filepath.Join(manifests, "hooks"), filepath.Join(g.dir, "hooks")))
	require.NoError(t, os.Symlink(filepath.Join(g.dir, "hooks"), filepath.Join(manifests, "hooks")))
	require.ErrorContains(t, check(), "no directory hooks", "a link leads out of the manifests")
}
