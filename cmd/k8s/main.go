// Command k8s is the sub-module of mender-app that runs applications on
// Kubernetes. See submodules/PROTOCOL.md for its arguments and exit codes.
package main

import (
	"os"

	"github.com/mender-app/mender-app/cmd/internal/memory"
	"github.com/mender-app/mender-app/cmd/internal/version"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/k8s"
)

func main() {
	// The heap stays well below this; without a limit the collector would let
	// garbage accumulate.
	memory.Fit(48<<20, 8<<20)
	o := k8s.New(func() (k8s.Settings, error) { return k8s.ReadSettings(os.Getenv) })
	o.Sandbox = true
	os.Exit(submodules.Main(o, k8s.Name, version.String(), os.Args[1:]))
}
