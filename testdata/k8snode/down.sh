#!/bin/bash
# Stops what up.sh started in DIR, and wipes its state. The logs stay in DIR/log.old.
# usage: down.sh DIR
set -u
dir=$(realpath "${1:?usage: down.sh DIR}")

# KILL: the state goes anyway, and a graceful stop takes 15 seconds.
stop() {
	local pid file=$dir/run/$1.pid
	[ -f "$file" ] || return 0
	pid=$(cat "$file")
	# A number left from before a reboot may be another process by now.
	if grep -qa "$dir" "/proc/$pid/cmdline" 2>/dev/null; then
		kill -9 "$pid" 2>/dev/null
		while [ -d "/proc/$pid" ] && ! grep -q '^State:.Z' "/proc/$pid/status" 2>/dev/null; do sleep 0.05; done
	fi
	rm -f "$file"
}
for p in kube-scheduler kube-controller-manager kubelet; do stop $p; done
if [ -S "$dir/run/containerd.sock" ]; then
	ctr() { timeout 20 ctr -a "$dir/run/containerd.sock" -n k8s.io "$@" 2>/dev/null; }
	for t in $(ctr tasks ls -q); do ctr tasks kill -s SIGKILL "$t"; done
	sleep 0.3
	for t in $(ctr tasks ls -q); do ctr tasks rm -f "$t" >/dev/null; done
	for c in $(ctr containers ls -q); do ctr containers rm "$c" >/dev/null; done
fi
for p in kube-apiserver etcd containerd; do stop $p; done

if [ -d "$dir/state/kubelet" ] || [ -d "$dir/run/containerd" ]; then
	awk -v d="$dir/" 'index($2, d) == 1 {print $2}' /proc/mounts | sort -r | while read -r m; do umount -l "$m"; done
	for n in /run/netns/cni-*; do
		n=${n##*/}
		ip netns exec "$n" ip -4 addr 2>/dev/null | grep -q 10.244.0. && ip netns del "$n"
	done
	ip link del k8snode0 2>/dev/null
	find /sys/fs/cgroup -maxdepth 2 -type d -name kubepods | while read -r c; do find "$c" -depth -type d -exec rmdir {} \; 2>/dev/null; done
	# Rules of the kubelet and of the CNI plugins; Docker's are left alone.
	for t in filter nat mangle; do
		iptables-save -t $t 2>/dev/null | grep -E 'KUBE-|CNI-|10\.244\.0\.' | sed -n 's/^-A/-D/p' | while read -r r; do
			eval "iptables -w -t $t $r" 2>/dev/null
		done
		for _ in 1 2; do
			iptables-save -t $t 2>/dev/null | sed -n 's/^:\(\(KUBE\|CNI\)-[^ ]*\).*/\1/p' | while read -r c; do
				iptables -w -t $t -F "$c"
				iptables -w -t $t -X "$c"
			done 2>/dev/null
		done
	done
	rm -rf /var/lib/cni/results
	find /var/log/containers -xtype l -delete 2>/dev/null
	[ "$(readlink /run/mender-app-k8snode)" != "$dir" ] || rm -f /run/mender-app-k8snode
fi
# up.sh has put these back, unless it was ended before that.
[ ! -f "$dir/run/sysctl.before" ] || xargs sysctl -q -w <"$dir/run/sysctl.before"
rm -rf "$dir/state" "$dir/run" "$dir/log.old"
[ ! -d "$dir/log" ] || mv "$dir/log" "$dir/log.old"
