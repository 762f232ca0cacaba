package bed

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// A ComposeVersion is a version of Docker Compose that a Device can have.
type ComposeVersion struct {
	Name string
	// Program is where testdata/engines/setup puts it, below the trees of engines.
	Program string
}

// ComposeVersions are the versions of Docker Compose that the project is tested with, the
// oldest first. The first is the one that testdata/bed/setup gives this machine.
var ComposeVersions = []ComposeVersion{
	{"2.26", "trixie/usr/libexec/docker/cli-plugins/docker-compose"},
	{"2.40", "sid/usr/libexec/docker/cli-plugins/docker-compose"},
	{"5", "compose-5/docker-compose"},
}

// composePlugin is the path of the plugin that the docker command and the product prefer.
const composePlugin = "/usr/local/lib/docker/cli-plugins/docker-compose"

// giveCompose gives the device the version of Docker Compose that MENDER_APP_COMPOSE names.
// Without it the device has this machine's.
func (d *Device) giveCompose(t testing.TB) {
	t.Helper()
	name := os.Getenv("MENDER_APP_COMPOSE")
	if name == "" {
		return
	}
	at := slices.IndexFunc(ComposeVersions, func(v ComposeVersion) bool { return v.Name == name })
	if at < 0 {
		t.Fatalf("MENDER_APP_COMPOSE: no version %q; there are %v", name, ComposeVersions)
	}
	program, err := EngineTree(ComposeVersions[at].Program)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(program); err != nil {
		need(t, "Docker Compose "+name+" (testdata/engines/setup)")
	}
	d.MustRun(t, "bash", "-ec", fmt.Sprintf("mkdir -p %[1]s; touch %[2]s; mount --bind '%[3]s' %[2]s",
		composePlugin[:strings.LastIndex(composePlugin, "/")], composePlugin, program))
}
