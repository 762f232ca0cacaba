#!/bin/bash
# Holds a node for as long as its input is open: starts it, writes "ready",
# and at the end of its input, however the caller ended, stops it. One node a
# machine at a time: another one is waited for, an hour at most.
# usage: serve.sh DIR
set -euo pipefail
dir=$(realpath "${1:?usage: serve.sh DIR}")
here=$(cd "$(dirname "$0")" && pwd)
exec 9>/run/mender-app-k8snode.lock
flock -w 3600 9 || { echo "serve.sh: another node runs on this machine" >&2; exit 1; }
trap '"$here/down.sh" "$dir"' EXIT
"$here/up.sh" node "$dir"
echo ready
cat >/dev/null
