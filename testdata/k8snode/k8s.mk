# Tests against a real Kubernetes node; see testdata/k8snode/README.md.
K8SNODE := build/k8snode

.PHONY: k8snode
k8snode: # build the Kubernetes node of the tests (minutes the first time)
	testdata/k8snode/build.sh $(K8SNODE)/bin

.PHONY: test-k8s
test-k8s: k8snode # test the k8s sub-module alone, and app-gen's jobs, on a real node (root, containerd, runc, CNI plugins)
	$(GO) test -count=1 -p 1 -timeout 20m ./testdata/bed/kube ./submodules/imagestore/containerd ./submodules/k8s/... ./cmd/k8s ./testdata/fleet
