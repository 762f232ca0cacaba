#!/bin/bash
# Starts a Kubernetes node from nothing and returns when it is ready.
# usage: up.sh node|api DIR
#
#   api   etcd and kube-apiserver only: enough for applying, pruning, namespaces
#   node  controller-manager, scheduler, containerd and kubelet as well (root)
#
# DIR/bin holds what build.sh made. DIR/admin.kubeconfig and
# DIR/run/containerd.sock are for the tests; logs are in DIR/log. Ports, names
# and sockets are the node's own, so that Docker or another cluster on this
# machine is left alone. State of an earlier run is wiped.
set -euo pipefail
mode=${1:?usage: up.sh node|api DIR}
dir=$(realpath "${2:?usage: up.sh node|api DIR}")
here=$(cd "$(dirname "$0")" && pwd)
bin=$dir/bin
node=node1
ip=$(ip -4 -o addr show scope global | awk '{sub("/.*", "", $4); print $4; exit}')
[ -n "$ip" ] || { echo "up.sh: this machine has no IPv4 address beside loopback" >&2; exit 1; }
[ -x "$bin/hyper" ] || { echo "up.sh: $bin/hyper is missing: run build.sh $bin" >&2; exit 1; }
case $mode in
api) api=26443 etcd=22379 ;;
node) api=16443 etcd=12379 ;;
*) echo "up.sh: unknown mode $mode" >&2; exit 2 ;;
esac

# The kubelet's cgroups, CNI names and iptables chains are the machine's: one
# node at a time.
mark=/run/mender-app-k8snode
if [ "$mode" = node ]; then
	[ "$(id -u)" = 0 ] || { echo "up.sh: mode node needs root" >&2; exit 1; }
	other=$(readlink $mark || true)
	if [ -n "$other" ] && [ "$other" != "$dir" ] && [ -f "$other/run/kubelet.pid" ] && kill -0 "$(cat "$other/run/kubelet.pid")" 2>/dev/null; then
		echo "up.sh: a node runs already, in $other" >&2
		exit 1
	fi
	ln -sfn "$dir" $mark
fi
"$here/down.sh" "$dir"
mkdir -p "$dir"/{log,run,conf,cni,state}

start() { # NAME COMMAND...
	local name=$1
	shift
	setsid "$@" >"$dir/log/$name.log" 2>&1 </dev/null 9>&- &
	echo $! >"$dir/run/$name.pid"
}
await() { # SECONDS WHAT COMMAND...
	local end=$((SECONDS + $1)) what=$2
	shift 2
	until "$@" >/dev/null 2>&1; do
		[ $SECONDS -lt $end ] || { echo "up.sh: $what is not ready; see $dir/log" >&2; exit 1; }
		sleep 0.1
	done
}
pki=$dir/pki-$mode
if [ ! -f "$pki/admin.kubeconfig" ] || ! grep -q "$ip" "$pki/ip"; then
	"$here/certs.sh" "$pki" $node "$ip" https://127.0.0.1:$api
	echo "$ip" >"$pki/ip"
fi
cp "$pki/admin.kubeconfig" "$dir/admin.kubeconfig"
get() { curl -sf -m 5 --cacert "$pki/ca.crt" --cert "$pki/admin.crt" --key "$pki/admin.key" "https://127.0.0.1:$api$1"; }

peer=$((etcd + 1))
start etcd "$bin/etcd" --data-dir "$dir/state/etcd" --unsafe-no-fsync --log-level warn \
	--listen-client-urls http://127.0.0.1:$etcd --advertise-client-urls http://127.0.0.1:$etcd \
	--listen-peer-urls http://127.0.0.1:$peer --initial-advertise-peer-urls http://127.0.0.1:$peer \
	--initial-cluster default=http://127.0.0.1:$peer

# It waits for etcd by itself. The command line is kept for tests that stop and
# start the apiserver under a running application.
apiserver=("$bin/kube-apiserver" --etcd-servers="http://127.0.0.1:$etcd"
	--bind-address=0.0.0.0 --advertise-address="$ip" --secure-port="$api"
	--tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key" --client-ca-file="$pki/ca.crt"
	--kubelet-client-certificate="$pki/apiserver-kubelet-client.crt" --kubelet-client-key="$pki/apiserver-kubelet-client.key"
	--kubelet-certificate-authority="$pki/ca.crt" --kubelet-preferred-address-types=InternalIP
	--service-account-issuer=https://kubernetes.default.svc.cluster.local
	--service-account-key-file="$pki/sa.pub" --service-account-signing-key-file="$pki/sa.key"
	--service-cluster-ip-range=10.96.0.0/24 --anonymous-auth=false
	"--authorization-mode=Node,RBAC" --enable-admission-plugins=NodeRestriction --allow-privileged=true
	--profiling=false)
printf '%s\n' "${apiserver[@]}" >"$dir/run/kube-apiserver.args"
start kube-apiserver "${apiserver[@]}"
if [ "$mode" = api ]; then
	await 240 kube-apiserver get /readyz
	exit 0
fi

# restrict_oom_score_adj: without CAP_SYS_RESOURCE, as in a container, runc
# cannot lower it, and no pod would start.
cat >"$dir/conf/containerd.toml" <<EOF
version = 2
root = "$dir/state/containerd"
state = "$dir/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.restart", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper"]
[grpc]
  address = "$dir/run/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "$dir/state/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.k8s.io/pause:3.10"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$dir/cni"
EOF
cat >"$dir/cni/10-bridge.conflist" <<EOF
{"cniVersion": "1.0.0", "name": "k8snode", "plugins": [
  {"type": "bridge", "bridge": "k8snode0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "dataDir": "$dir/state/cni", "ranges": [[{"subnet": "10.244.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}},
  {"type": "firewall"}]}
EOF
start containerd containerd --config "$dir/conf/containerd.toml" --log-level info
ctr() { command ctr -a "$dir/run/containerd.sock" "$@"; }
await 120 containerd ctr version
ctr -n k8s.io images import "$dir/bin/pause.tar" >/dev/null

cat >"$dir/conf/kubelet.yaml" <<EOF
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $ip
port: 20250
readOnlyPort: 0
healthzBindAddress: 127.0.0.1
healthzPort: 20248
tlsCertFile: $pki/kubelet-server.crt
tlsPrivateKeyFile: $pki/kubelet-server.key
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: $pki/ca.crt}
authorization: {mode: Webhook}
containerRuntimeEndpoint: unix://$dir/run/containerd.sock
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
cgroupsPerQOS: true
enforceNodeAllocatable: [pods]
resolvConf: /etc/resolv.conf
podLogsDir: $dir/state/pods-log
volumePluginDir: $dir/state/volumeplugins
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%, nodefs.inodesFree: 1%}
maxPods: 110
serializeImagePulls: false
clusterDomain: cluster.local
EOF
# The kubelet registers the node only once the apiserver answers, and pauses
# long between tries.
await 240 kube-apiserver get /readyz
# Without the higher rates the controllers take five seconds to start.
start kube-controller-manager "$bin/kube-controller-manager" --kubeconfig="$pki/controller-manager.kubeconfig" \
	--use-service-account-credentials=true --kube-api-qps=500 --kube-api-burst=1000 \
	--service-account-private-key-file="$pki/sa.key" --root-ca-file="$pki/ca.crt" --leader-elect=false --secure-port=0 --profiling=false
start kube-scheduler "$bin/kube-scheduler" --kubeconfig="$pki/scheduler.kubeconfig" --leader-elect=false --secure-port=0 --profiling=false
# The kubelet sets these for the whole machine as it starts: put them back once it is up.
for k in vm.overcommit_memory vm.panic_on_oom kernel.panic kernel.panic_on_oops; do
	echo "$k=$(sysctl -n $k)"
done >"$dir/run/sysctl.before"
start kubelet "$bin/kubelet" --config="$dir/conf/kubelet.yaml" --kubeconfig="$pki/kubelet.kubeconfig" --root-dir="$dir/state/kubelet" \
	--cert-dir="$dir/state/kubelet-pki" --hostname-override=$node --node-ip="$ip" --v=2
ready_node() { "$bin/kubectl" --kubeconfig "$dir/admin.kubeconfig" get node $node -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}' | grep -q True; }
await 240 kubelet ready_node
xargs sysctl -q -w <"$dir/run/sysctl.before"
# A pod that is no controller's is refused until this is there.
await 120 "the default service account" get /api/v1/namespaces/default/serviceaccounts/default
