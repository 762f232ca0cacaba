package daily

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// plainDocker is a sub-module of protocol 1.0 for one container, as a person writes
// one in an hour: LOAD is docker load, which moves the name of the image that runs. It
// knows no deltas.
const plainDocker = `#!/bin/sh
set -eu
verb=$1
start() { # APP DIR
	docker rm -f "$1" >/dev/null 2>&1 || true
	docker run -d --name "$1" -p 8080:8080 "$(cat "$2/image")" >/dev/null
	[ ! -e "$2/bad" ] || { echo "error: it is bad" >&2; exit 1; }
}
healthy() { # APP
	[ "$(docker inspect -f '{{.State.Running}} {{.Image}}' "$1")" = "true $(docker image inspect -f '{{.Id}}' "$(docker inspect -f '{{.Config.Image}}' "$1")")" ]
}
case $verb in
LOAD) docker load -q -i "$4" >/dev/null ;;
SAVE) docker image inspect "$3" >/dev/null 2>&1 || exit 4; docker save -o "$4" "$3" ;;
LIST|LS_COMPONENTS) echo '[]' ;;
DELETE) docker rmi "$2" >/dev/null 2>&1 || true ;;
ROLLOUT) start "$2" "$3" ;;
ROLLBACK|STOP|START) ;;
PURGE) docker rm -f "$2" >/dev/null ;;
ALIVE|HEALTHY) healthy "$2" && echo true || { echo false; exit 1; } ;;
REQS) echo docker:error ;;
*) exit 2 ;;
esac
`

// plainDockerRelease makes an artifact of an edition of the web service for
// plainDocker, always under the same name: a delta over each of the older editions, or
// over nothing if there is none.
func plainDockerRelease(t *testing.T, d *bed.Device, name string, n int, bad bool, over ...int) string {
	t.Helper()
	const url = "=shop/web:stable"
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "image"), []byte("shop/web:stable\n"), 0o644))
	if bad {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "bad"), nil, 0o644))
	}
	of := func(n int) string { return strings.TrimPrefix(e2e.Archive(t, e2e.Edition(t, n)), "--image=") + url }
	next := of(n)
	var options []string
	for _, o := range over {
		options = append(options, "--image="+of(o)+","+next)
	}
	if len(over) == 0 {
		options = append(options, e2e.Coded, "--image="+next)
	}
	return e2e.AppGen(t, d, name, dir, append(options, "--application-name", "shop", "--orchestrator", "plain-docker", "--software-version", fmt.Sprint(n))...)
}

// Deltas of images install and update an application whose sub-module knows no deltas:
// over nothing, over one base and over one of several, with a failing release, a rollback, and kills while
// the delta is applied.
func TestImageDeltas(t *testing.T) {
	d := e2e.Device(t)
	require.NoError(t, os.WriteFile(d.Share("plain-docker"), []byte(plainDocker), 0o755))
	d.MustRun(t, "install", "-m755", d.Share("plain-docker"), "/usr/share/mender/app-modules/v1/plain-docker")
	one := plainDockerRelease(t, d, "shop-1", 1, false)
	two := plainDockerRelease(t, d, "shop-2", 2, false, 1)
	bad := plainDockerRelease(t, d, "shop-bad", 3, true, 2)
	three := plainDockerRelease(t, d, "shop-3", 3, false, 1, 2)
	require.Less(t, e2e.FileSize(t, two), e2e.FileSize(t, one)/2)
	w := e2e.Watch(t, d)
	at := func(n int) {
		t.Helper()
		e2e.Says(t, w, fmt.Sprintf("web %d", n))
		require.Empty(t, strings.TrimSpace(d.MustRun(t, "sh", "-c", "ls -d /data/mender-app/.*/tmp/* 2>/dev/null || true")), "temporary files")
	}

	e2e.Mender(t, d, "install", one)
	e2e.Mender(t, d, "commit")
	at(1)
	e2e.Mender(t, d, "install", two)
	at(2)
	e2e.Mender(t, d, "rollback")
	at(1)
	e2e.Mender(t, d, "install", two)
	e2e.Mender(t, d, "commit")
	at(2)
	require.Contains(t, e2e.MenderFails(t, d, "install", bad), "it is bad")
	at(2)
	killedInDelta(t, d, three, func(string) { at(2) })
	e2e.Mender(t, d, "install", three)
	e2e.Mender(t, d, "commit")
	at(3)
	d.MustRun(t, "mender-app", "rollback", "shop")
	at(2)

	// Another image under the name of the base: the update is refused, and what the
	// operator put there stays.
	d.MustRun(t, "docker", "tag", "shop/web:stable", "shop/web:kept")
	_, archived, _ := strings.Cut(e2e.Archive(t, e2e.Stock(t)), "docker-archive:")
	text, err := os.ReadFile(archived)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(d.Share("stock.tar"), text, 0o644))
	d.MustRun(t, "docker", "load", "-i", d.Share("stock.tar"))
	d.MustRun(t, "docker", "tag", "shop/stock:1", "shop/web:stable")
	require.Contains(t, e2e.MenderFails(t, d, "install", bad), "install the full artifact")
}
