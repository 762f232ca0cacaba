package manifests

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/composefiles"
)

// app-gen judges Compose files as the device does (submodules/compose has the
// same test).
func TestComposeFiles(t *testing.T) {
	for _, c := range composefiles.Read(t) {
		t.Run(c.Name, func(t *testing.T) {
			dir := t.TempDir()
			c.Write(t, dir)
			found, err := Compose(t.Context(), dir, ComposeOptions{})
			if err == nil {
				require.NoError(t, AddVariables(dir, found.Ship))
				err = Judge(t.Context(), dir, nil)
			}
			if c.Verdict == composefiles.Refused {
				require.Error(t, err)
				require.Regexp(t, `^[a-z./]+(:[0-9]+)?: .`, err.Error(), "it names the file")
				return
			}
			require.NoError(t, err)
			for _, older := range []string{"2.0", "2.26", "2.40.3", "v5.0.2-1", "5.4"} {
				_, err := Compose(t.Context(), dir, ComposeOptions{Version: older})
				if c.Verdict == composefiles.Newer && compareVersions(t, older, c.Kind) < 0 {
					require.ErrorContains(t, err, "needs Docker Compose "+c.Kind+", and the devices have "+older)
					require.Regexp(t, `^compose.yaml:[0-9]+: `, err.Error())
				} else if c.Verdict == composefiles.Newer || older == "5.4" {
					require.NoError(t, err)
				}
			}
			said := strings.Contains(strings.Join(found.Warnings, "\n"), "ALLOW_OUTSIDE")
			require.Equal(t, c.Verdict == composefiles.Outside, said, "%q", found.Warnings)
		})
	}
}

// What a device's CHECK asks of the files is asked on the build host, in the same words.
func TestJudge(t *testing.T) {
	for _, c := range composefiles.Read(t) {
		t.Run(c.Name, func(t *testing.T) {
			dir := t.TempDir()
			c.Write(t, dir)
			err := Judge(t.Context(), dir, nil)
			if c.Verdict != composefiles.Refused {
				require.NoError(t, err)
				return
			}
			if c.Name == "env-file-outside" || c.Name == "secrets-outside" || c.Name == "jobs" || c.Name == "home" {
				return // what ALLOW_OUTSIDE lets through, what every Compose refuses, a home: Compose says it
			}
			require.Error(t, err)
			require.NotContains(t, err.Error(), dir)
		})
	}
}

func compareVersions(t *testing.T, a, b string) int {
	t.Helper()
	va, err := composeVersion(a)
	require.NoError(t, err)
	vb, err := composeVersion(b)
	require.NoError(t, err)
	return slices.Compare(va, vb)
}
