package compose

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/testdata/composefiles"
)

// The device judges Compose files as app-gen does (generator/manifests has the
// same test).
func TestCorpus(t *testing.T) {
	if testing.Short() {
		t.Skip("runs Compose more than a hundred times; left out of -short")
	}
	for _, c := range composefiles.Read(t) {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			r := newReader(t)
			c.Write(t, r.dir)
			_, err := r.read()
			if c.Verdict == composefiles.Newer {
				return // it depends on this machine's Compose; testdata/engines asks several
			}
			if c.Verdict == composefiles.Accepted {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, submodules.ErrContent)
			if c.Verdict == composefiles.Outside {
				require.ErrorContains(t, err, "ALLOW_OUTSIDE in mender-app-docker-compose.conf has "+c.Kind)
			}
		})
	}
}
