#!/bin/bash
# Builds the node's programs, and the programs of its test images, into OUTDIR.
# usage: build.sh OUTDIR
set -euo pipefail
out=$(realpath -m "${1:?usage: build.sh OUTDIR}")
cd "$(dirname "$0")"
mkdir -p "$out"

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
go build -trimpath -ldflags "-s -w $x" -o "$out/hyper" ./hyper
for c in kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl etcd; do
	ln -sf hyper "$out/$c"
done
go build -trimpath -ldflags "-s -w" -o "$out/" ./pause ./probe
go run ./mkpause "$out/pause" "$out/pause.tar"
