#!/bin/bash
# Process 1 of a Machine (machine.go), already in namespaces of its own.
# $1: the machine's directory. $2: its name. $3: the tree that it has; "": this machine's. The
# rest: directories that it has at the same path.
# Writes "ready" when the tree stands, and ends when its input does.
set -eu
dir=$1 name=$2 base=$3 root=$1/root
shift 3

mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs "$root"
new=$root/merged

# layer TREE: the new root has the TREE of the machine or of $base, with all changes in memory.
layer() {
	mkdir -p "$root/upper$1" "$root/work$1" "$new$1"
	mount -t overlay -o "lowerdir=$base$1,upperdir=$root/upper$1,workdir=$root/work$1" overlay "$new$1"
}
# bind SOURCE TARGET: TARGET shows SOURCE, whatever the machine has there.
bind() {
	mkdir -p "$new$2"
	mount --bind "$1" "$new$2"
}

layer /
# A file system of its own on this machine does not show through the overlay.
for tree in /usr /etc /opt /var; do
	[ -n "$base" ] || ! mountpoint -q $tree || layer $tree
done
mount -t proc proc "$new/proc"
mount --rbind /sys "$new/sys"
mount --rbind /dev "$new/dev"
mount -t tmpfs -o mode=755 tmpfs "$new/run"
mount -t tmpfs -o mode=1777 tmpfs "$new/tmp"
mkdir "$new/run/lock"
bind "$dir" "$dir"
for shown; do
	[ ! -d "$shown" ] || bind "$shown" "$shown"
done
# The engine's data root and the product's store lie on a real file system.
bind "$dir/docker" /var/lib/docker
bind "$dir/data" /data
# Nothing of the machine's own configuration of Docker, Mender or this product.
rm -rf "$new"/etc/docker "$new"/root/.docker "$new"/etc/mender "$new"/var/lib/mender "$new"/usr/share/mender
ln -s /data/mender "$new"/var/lib/mender
if [ -z "$base" ]; then
	mkdir -p "$new"/etc/docker "$new"/etc/mender "$new"/usr/share/mender
	echo '{}' >"$new"/etc/mender/mender.conf
	echo 'artifact_name=factory' >"$new"/etc/mender/artifact_info
fi
# The tree may have neither of these commands.
hostname "$name"
ip link set lo up

cd "$new"
pivot_root . .
umount -l .
cd /
echo ready
# bash reaps whatever ends in here; the loop ends with the input.
while read -r _; do :; done
