#!/bin/bash
# Builds the node's programs, and the program of its test images, into OUTDIR.
# What was built from the same sources before is taken from the user's cache.
# usage: build.sh OUTDIR
set -euo pipefail
out=$(realpath -ms "${1:?usage: build.sh OUTDIR}") # the link itself, if it is one
cd "$(dirname "$0")"

sum=$( (go env GOVERSION GOARCH && cat go.mod go.sum build.sh ./*/main.go) | sha256sum | cut -c 1-16)
cache=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/mender-app/k8snode
if [ ! -x "$cache/$sum/hyper" ]; then
	mkdir -p "$cache"
	tmp=$(mktemp -d "$cache/tmp.XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
	# Kubernetes takes its version from the linker only, and refuses to run without one.
	version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
	minor=${version#v*.}
	minor=${minor%%.*}
	x=
	for p in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
		x+=" -X $p.gitVersion=$version -X $p.gitMajor=1 -X $p.gitMinor=$minor -X $p.gitTreeState=clean"
		x+=" -X $p.gitCommit=0000000000000000000000000000000000000000 -X $p.buildDate=1970-01-01T00:00:00Z"
	done
	export CGO_ENABLED=0
	go build -trimpath -ldflags "-s -w $x" -o "$tmp/hyper" ./hyper
	for c in kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl etcd; do
		ln -sf hyper "$tmp/$c"
	done
	go build -trimpath -ldflags "-s -w" -o "$tmp/" ./pause ./probe
	go run ./mkpause "$tmp/pause" "$tmp/pause.tar"
	chmod 755 "$tmp"
	# Older builds go, but for those that someone may be using.
	find "$cache" -mindepth 1 -maxdepth 1 -mtime +7 -exec rm -rf {} +
	# Another build of the same may have been quicker.
	[ -x "$cache/$sum/hyper" ] || { rm -rf "${cache:?}/$sum" && mv -T "$tmp" "$cache/$sum"; }
fi
mkdir -p "$(dirname "$out")"
rm -rf "$out"
ln -s "$cache/$sum" "$out"
