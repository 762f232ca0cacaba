package device

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/modules/client"
	"github.com/mender-app/mender-app/modules/deploy"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

func TestDockerRoot(t *testing.T) {
	root := t.TempDir()
	require.Empty(t, dockerRoot(root))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "var/lib/docker"), 0o755))
	require.Empty(t, dockerRoot(root), "no engine has used it")
	require.NoError(t, os.MkdirAll(filepath.Join(root, "var/lib/docker/containers"), 0o755))
	require.Equal(t, filepath.Join(root, "var/lib/docker"), dockerRoot(root))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "etc/docker"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "etc/docker/daemon.json"), []byte(`{"data-root":"/data/docker","x":1}`), 0o644))
	require.Equal(t, filepath.Join(root, "data/docker"), dockerRoot(root))
}

func load(t *testing.T, text string) (*Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "mender-app.conf")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	t.Setenv(ConfigEnv, file)
	return Load()
}

func TestConfigForms(t *testing.T) {
	for _, text := range []string{
		"persistent_store = \"/srv/apps\"\nkeep = 3\n", "persistent_store=/srv/apps\nkeep=3\n", "PERSISTENT_STORE=/srv/apps\nKEEP=3\n",
	} {
		c, err := load(t, text)
		require.NoError(t, err, text)
		require.Equal(t, "/srv/apps", c.Store)
		require.Equal(t, 3, c.Keep)
		require.Empty(t, c.Warnings)
	}
	c, err := load(t, "platform = \"linux/arm/v7, arm64\"\nrollout_timeout = 90\nlog_level = \"warn\"\n")
	require.NoError(t, err)
	require.Equal(t, "/data/mender-app", c.Store)
	require.Equal(t, 90*time.Second, c.Timeouts.RolloutTimeout)
	require.Equal(t, slog.LevelWarn, c.LogLevel)
	require.Len(t, c.Platforms, 2)
	c, err = load(t, "platform = \"any\"\n")
	require.NoError(t, err)
	require.Empty(t, c.Platforms)
}

func TestConfigThatIsBroken(t *testing.T) {
	for text, says := range map[string]string{
		"persistent_store = \"relative\"": "absolute", "keep = -1": "keep", "keep = \"many\"": "whole number",
		"platform = \"toaster//\"": "platform", "log_level = \"loud\"": "log_level", "rollout_timeout = \"soon\"": "duration",
		"[": ":1:",
	} {
		_, err := load(t, text)
		require.ErrorContains(t, err, says, text)
	}
	c, err := load(t, "NONSENSE=1")
	require.NoError(t, err)
	require.Len(t, c.Warnings, 1)
	require.Contains(t, c.Warnings[0], ":1: unknown setting")
}

func TestExitCodes(t *testing.T) {
	for want, errs := range map[int][]error{
		ExitDone:        {nil},
		ExitFailed:      {errors.New("x"), &client.CallError{Code: 1}},
		ExitUsage:       {ErrUsage},
		ExitRequirement: {&submodules.NotFoundError{}, fmt.Errorf("x: %w", &submodules.NotExecutableError{}), &submodules.CallError{Code: submodules.CodeRequirement}},
		ExitNotFound:    {store.ErrNoApp, store.ErrNoRelease, os.ErrNotExist},
		ExitContent:     {artifact.ErrPayload, &submodules.CallError{Code: submodules.CodeContent}},
		ExitUnhealthy:   {&submodules.CallError{Code: submodules.CodeUnhealthy}},
		ExitSpace:       {unix.ENOSPC, &submodules.CallError{Code: submodules.CodeSpace}},
		ExitBase:        {&submodules.CallError{Code: submodules.CodeBase}},
		ExitRefused:     {deploy.ErrUnfit, client.ErrRefused, artifact.ErrMetadata, &artifact.RequiresError{}, &client.CallError{Code: ExitRefused}},
		ExitBusy:        {&store.LockedError{}, client.ErrBusy},
		ExitInterrupted: {ErrInterrupted, errors.Join(&stopped{key: true}, &client.CallError{Code: ExitStopped})},
		ExitStopped:     {context.Canceled, context.DeadlineExceeded, &stopped{}, &submodules.CallError{Code: submodules.CodeDeadline}},
	} {
		for _, err := range errs {
			require.Equal(t, want, ExitCode(err), "%v", err)
		}
		require.Contains(t, ExitHelp+InterruptHelp, fmt.Sprintf("\n  %-4d ", want))
	}
}

// writes counts the writes.
type writes struct {
	text bytes.Buffer
	n    int
}

func (w *writes) Write(p []byte) (int, error) { w.n++; return w.text.Write(p) }

func TestLogIsOneWriteALine(t *testing.T) {
	var w writes
	log := NewLog(&w, slog.LevelInfo)
	log.Debug("not this")
	log.Info("loading", "app", "shop", "bytes", 7)
	log.Warn("odd", "error", errors.New("two\nlines \x1b[31m"))
	require.Equal(t, 2, w.n)
	require.Equal(t, "loading (app shop, bytes 7)\nwarning: odd (error two | lines \\x1b[31m)\n", w.text.String())
	require.Equal(t, 1, strings.Count(OneLine("a\r\nb"), "|"))
}

// TestSampleConfiguration: the sample with every setting switched on is
// understood.
func TestSampleConfiguration(t *testing.T) {
	data, err := os.ReadFile("../../../packaging/etc/mender-app.conf")
	require.NoError(t, err)
	var on strings.Builder
	for line := range strings.Lines(string(data)) {
		if setting, ok := strings.CutPrefix(line, "#"); ok && !strings.HasPrefix(setting, " ") {
			on.WriteString(setting)
		}
	}
	c, err := load(t, on.String())
	require.NoError(t, err)
	require.Empty(t, c.Warnings)
	require.NoError(t, c.Signatures.Err)
	want := []Key{{File: "/etc/mender/shop.pub", Applications: []string{"shop", "ci-*"}}}
	for _, name := range []string{"anna", "bert", "carl"} {
		want = append(want, Key{File: "/etc/mender/" + name + ".pub", Applications: []string{"*"}, Threshold: 2, Table: 2})
	}
	require.Equal(t, want, c.Signatures.Keys)
	require.True(t, c.Signatures.Bound)
	require.False(t, c.Signatures.RequireStatement)
	require.False(t, c.Signatures.RequireUnexpired)
	require.False(t, c.RefuseOlder)
	_, err = load(t, "refuse_oldr = true")
	require.ErrorContains(t, err, `unknown setting "refuse_oldr"`)
}
