package artifact

import (
	"testing"

	"github.com/mender-app/mender-app/artifact/internal/rig"
)

// listing writes down what a directory holds: names, types,
// modes, link targets and contents.
func listing(t testing.TB, dir string) string {
	t.Helper()
	return rig.Run(t, "sh", "-c", `cd "$1" && find . -printf '%P %y %m %l\n' | LC_ALL=C sort && find . -type f -exec sha256sum {} + | LC_ALL=C sort`, "-", dir)
}
