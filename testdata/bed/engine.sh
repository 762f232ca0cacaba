#!/bin/bash
# Runs inside a Device, in a mount namespace of its own: becomes a program of
# another engine's tree. $1: the tree, which is never written: changes are in
# memory. $2: the device's directory. The rest is the command.
set -eu
tree=$1 dir=$2 root=$2/root/engine
shift 2
mkdir -p "$root"
mount -t tmpfs -o mode=755 tmpfs "$root"
mkdir "$root/upper" "$root/work" "$root/merged"
new=$root/merged
mount -t overlay -o "lowerdir=$tree,upperdir=$root/upper,workdir=$root/work" overlay "$new"
# What the engine is told of by its path, it finds there.
for path in /proc /sys /dev /run /tmp /data /var/lib/docker "$dir"; do
	mkdir -p "$new$path"
	mount --rbind "$path" "$new$path"
done
# A chroot is not enough: what enters a container of it, for a health check,
# would stand at the root of the namespace.
cd "$new"
pivot_root . .
umount -l .
cd /
exec "$@"
