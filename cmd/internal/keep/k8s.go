//go:build keep

package keep

import (
	_ "github.com/containerd/containerd/v2/client"
	_ "github.com/fluxcd/cli-utils/pkg/kstatus/status"
	_ "k8s.io/client-go/discovery/cached/memory"
	_ "k8s.io/client-go/dynamic"
	_ "k8s.io/client-go/restmapper"
	_ "k8s.io/client-go/tools/clientcmd"
	_ "sigs.k8s.io/yaml"
)
