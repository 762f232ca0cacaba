#!/bin/bash
# testdata/bed/device.sh DIRECTORY TREE [ENGINES]: process 1 of a device for a script that
# reproduces a fault, in new namespaces (unshare --mount --net --pid --ipc --uts --fork). The
# device has the project's TREE, and the ENGINES of testdata/engines, at their own paths. It
# writes "ready", and ends when its input does. Go tests use bed.New.
set -eu
exec bash "$2/generator/machine/machine.sh" "$1" device "" "$2" "${3:-}"
