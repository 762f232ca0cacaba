#!/bin/bash
# Makes the certificates and kubeconfigs of a node, with ECDSA keys, in a second.
# usage: certs.sh DIR NODE IP URL
set -euo pipefail
dir=$1 node=$2 ip=$3 url=$4
mkdir -p "$dir"
cd "$dir"

key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1"; }

# cert NAME SUBJECT USAGE [ALTNAMES]
cert() {
	key "$1.key"
	{
		echo basicConstraints=CA:FALSE
		echo keyUsage=digitalSignature,keyEncipherment
		echo "extendedKeyUsage=$3"
		[ -z "${4:-}" ] || echo "subjectAltName=$4"
	} >"$1.ext"
	openssl req -new -key "$1.key" -subj "$2" -out "$1.csr" 2>/dev/null
	openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days 3650 -extfile "$1.ext" -out "$1.crt" 2>/dev/null
	rm "$1.csr" "$1.ext"
}

# client NAME SUBJECT: a certificate and NAME.kubeconfig
client() {
	cert "$1" "$2" clientAuth
	cat >"$1.kubeconfig" <<-EOF
		apiVersion: v1
		kind: Config
		clusters: [{name: node, cluster: {server: "$url", certificate-authority: $dir/ca.crt}}]
		users: [{name: user, user: {client-certificate: $dir/$1.crt, client-key: $dir/$1.key}}]
		contexts: [{name: node, context: {cluster: node, user: user}}]
		current-context: node
	EOF
}

key ca.key
openssl req -x509 -new -key ca.key -subj /CN=kubernetes-ca -days 3650 -out ca.crt \
	-addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign,digitalSignature 2>/dev/null
cert apiserver /CN=kube-apiserver serverAuth \
	"DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,IP:127.0.0.1,IP:10.96.0.1,IP:$ip"
cert apiserver-kubelet-client /O=system:masters/CN=kube-apiserver-kubelet-client clientAuth
cert kubelet-server "/O=system:nodes/CN=system:node:$node" serverAuth "DNS:$node,IP:127.0.0.1,IP:$ip"
key sa.key
openssl ec -in sa.key -pubout -out sa.pub 2>/dev/null
client admin /O=system:masters/CN=admin
client controller-manager /CN=system:kube-controller-manager
client scheduler /CN=system:kube-scheduler
client kubelet "/O=system:nodes/CN=system:node:$node"
