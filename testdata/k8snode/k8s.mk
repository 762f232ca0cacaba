# Tests against a real Kubernetes node; see testdata/k8snode/README.md.
K8SNODE := build/k8snode

.PHONY: k8snode
k8snode: ## build the Kubernetes node of the tests into build/k8snode (minutes the first time)
	testdata/k8snode/build.sh $(K8SNODE)/bin

.PHONY: test-k8s
test-k8s: k8snode ## test the k8s sub-module on a real node (root, containerd, runc, CNI plugins)
	testdata/k8snode/up.sh node $(K8SNODE)
	MENDER_APP_K8SNODE=$(abspath $(K8SNODE)) $(GO) test -tags k8snode -count=1 -p 1 -timeout 20m ./submodules/imagestore/containerd ./submodules/k8s/... ./cmd/k8s; \
	rc=$$?; testdata/k8snode/down.sh $(K8SNODE); exit $$rc
