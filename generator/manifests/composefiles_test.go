package manifests

import (
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
			if c.Verdict == composefiles.Refused {
				require.Error(t, err)
				require.Regexp(t, `^[a-z./]+(:[0-9]+)?: .`, err.Error(), "it names the file")
				return
			}
			require.NoError(t, err)
			said := strings.Contains(strings.Join(found.Warnings, "\n"), "ALLOW_OUTSIDE")
			require.Equal(t, c.Verdict == composefiles.Outside, said, "%q", found.Warnings)
		})
	}
}
