package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/modules/view"
)

// show and verify tell who signed the statement of a release, with today's keys;
// verify finds one that is about something else than the store has.
func TestShowStatement(t *testing.T) {
	d := signedDevice(t)
	run := func(args ...string) (stdout string, code int) {
		t.Helper()
		stdout, stderr, err := d.Run(nil, "mender-app", args...)
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return stdout + stderr, exit.ExitCode()
		}
		require.NoError(t, err)
		return stdout, 0
	}
	must := func(args ...string) string {
		t.Helper()
		out, code := run(args...)
		require.Zero(t, code, out)
		return out
	}
	shown := func() *view.Signed {
		t.Helper()
		var a view.Document
		require.NoError(t, json.Unmarshal([]byte(must("show", "--json", "shop")), &a))
		return a.Statement
	}
	ed := filepath.Join(d.Dir, "ed.pub")
	configure(t, d, "artifact_verify_key = \"@/ed.pub\"")
	must("install", "--commit", "shop-ed.mender")

	require.Regexp(t, `(?m)^statement +signed by `+ed+` sha256:[0-9a-f]{64}$`, must("show", "shop"))
	s := shown()
	require.True(t, s.Verified)
	require.Equal(t, ed, s.Key)
	require.Equal(t, "shop", s.Text.Application)
	require.Contains(t, must("verify", "shop"), "shop 1-shop-1: statement signed by "+ed+" sha256:")

	// The key is no longer configured, or is another application's.
	configure(t, d, "artifact_verify_key = \"@/ec.pub\"")
	require.Regexp(t, `(?m)^statement +not verified: .*no trusted key signed it$`, must("show", "shop"))
	require.Contains(t, must("verify", "shop"), "shop 1-shop-1: statement not verified: ")
	require.False(t, shown().Verified)
	configure(t, d, "[[keys]]\nfile = \"@/ed.pub\"\napplications = [\"ci-*\"]\n")
	require.Contains(t, shown().Problem, `may not sign for application "shop", only for ci-*`)
	configure(t, d, "allow_unsigned = true")
	require.Contains(t, shown().Problem, "no public key is configured")

	// What the store has is not what was signed.
	configure(t, d, "artifact_verify_key = \"@/ed.pub\"")
	file := filepath.Join(d.Dir, "store/shop/releases/1-shop-1/release.json")
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	changed := strings.Replace(string(b), `"application_version": "1"`, `"application_version": "9"`, 1)
	require.NotEqual(t, string(b), changed)
	require.NoError(t, os.WriteFile(file, []byte(changed), 0o644))
	require.Contains(t, must("show", "shop"), "not verified: it is about a release other than the stored one")
	out, code := run("verify", "shop")
	require.Equal(t, device.ExitContent, code, out)
	require.Contains(t, out, "shop 1-shop-1: statement: it is about a release other than the stored one")
	out, code = run("verify", "--json", "shop")
	require.Equal(t, device.ExitContent, code, out)
	require.Contains(t, out, `"component": "statement"`)

	// A release without a statement.
	configure(t, d, "allow_unsigned = true")
	require.NoError(t, os.RemoveAll(filepath.Join(d.Dir, "store")))
	must("install", "--commit", "shop.mender")
	require.Nil(t, shown())
	require.NotContains(t, must("show", "shop"), "statement")
	require.NotContains(t, must("verify", "shop"), "statement")
}
