package e2e

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
)

// PlainSubmodule is a sub-module of protocol 1.0, as a person writes one in an hour:
// LOAD overwrites a file in place, in two steps. The application that runs is a copy
// of the files at the time when it was started. It is healthy if the file "bad" is
// not among them and nothing has changed since.
const PlainSubmodule = `#!/bin/sh
set -eu
verb=$1 root=/data/plain
start() { # APP DIR
	rm -rf "$root/$1.runs" && mkdir -p "$root/$1.runs"
	cp "$2/files.list" "$root/$1.runs/"
	while read -r name; do cp "$root/$1/$name" "$root/$1.runs/$name"; done <"$2/files.list"
	! grep -q bad "$root/$1.runs"/* || { echo "error: it is bad" >&2; exit 1; }
}
case $verb in
LOAD) mkdir -p "$root/$2"; head -c1 "$4" >"$root/$2/$3"; sleep "${PLAIN_LOAD_SLEEP:-0}"; cp "$4" "$root/$2/$3" ;;
SAVE) [ -f "$root/$2/$3" ] || exit 4; cp "$root/$2/$3" "$4" ;;
LIST|LS_COMPONENTS)
	printf '['; sep=
	for f in "$root/$2"/*; do [ ! -f "$f" ] || printf '%s{"type":"python-package","url":"%s"}' "$sep" "${f##*/}"; sep=,; done
	echo ']' ;;
DELETE) rm -f "$root/$3/$2" ;;
ROLLOUT) start "$2" "$3" ;;
ROLLBACK) cp "$3/files.list" "$root/$2.runs/" ;; # it trusts that nothing else has changed
STOP|START) ;;
PURGE) rm -rf "$root/$2" "$root/$2.runs" ;;
ALIVE|HEALTHY)
	while read -r name; do cmp -s "$root/$2/$name" "$root/$2.runs/$name" || { echo false; exit 1; }; done <"$root/$2.runs/files.list"
	echo true ;;
REQS) echo cp:error ;;
*) exit 2 ;;
esac
`

// PlainRelease writes an artifact of files for PlainSubmodule, in the shell
// reference's form.
func PlainRelease(t *testing.T, d *bed.Device, version string, files map[string]string) string {
	t.Helper()
	return PlainReleaseWith(t, d, version, files, nil)
}

// PlainReleaseWith is PlainRelease with a change to the artifact.
func PlainReleaseWith(t *testing.T, d *bed.Device, version string, files map[string]string, change func(*bed.Handmade)) string {
	t.Helper()
	h := bed.Handmade{Name: "tool-" + version, Software: "tool"}
	h.Images = []bed.Member{{Name: "images/", Type: tar.TypeDir}}
	names := slices.Sorted(maps.Keys(files))
	var digests []string
	for _, name := range names {
		digest := fmt.Sprintf("%x", sha256.Sum256([]byte(files[name])))
		digests = append(digests, digest)
		dir := "images/" + digest
		h.Images = append(h.Images, bed.Member{Name: dir + "/", Type: tar.TypeDir},
			bed.Member{Name: dir + "/url-new.txt", Data: []byte(name + "\n")},
			bed.Member{Name: dir + "/url-current.txt", Data: []byte(name + "\n")},
			bed.Member{Name: dir + "/sums-new.txt", Data: []byte(digest + "\n")},
			bed.Member{Name: dir + "/sums-current.txt", Data: []byte(digest + "\n")},
			bed.Member{Name: dir + "/image.img", Data: []byte(files[name])})
	}
	slices.Sort(digests)
	meta, err := json.Marshal(map[string]any{
		"version": "1.0", "application_name": "tool", "orchestrator": "plain", "platform": bed.Platform(), "images": digests,
	})
	require.NoError(t, err)
	h.Metadata = string(meta)
	h.Manifests = []bed.Member{
		{Name: "manifests/", Type: tar.TypeDir},
		{Name: "manifests/files.list", Data: []byte(strings.Join(names, "\n") + "\n")},
	}
	if change != nil {
		change(&h)
	}
	path := d.Share("tool-" + version + ".mender")
	require.NoError(t, h.Write(path))
	return path
}
