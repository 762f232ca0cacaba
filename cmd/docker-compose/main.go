// Command docker-compose is the sub-module of mender-app that runs applications
// with Docker Compose. See submodules/PROTOCOL.md for its arguments and exit
// codes.
package main

import (
	"os"

	"github.com/mender-app/mender-app/cmd/internal/memory"
	"github.com/mender-app/mender-app/cmd/internal/version"
	"github.com/mender-app/mender-app/delta/decoder"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/compose"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == submodules.VerbLoad {
		memory.DropProgram() // LOAD rebuilds images
	}
	memory.Fit(decoder.MemoryLimit, decoder.MemoryLimit)
	os.Exit(submodules.Main(compose.Orchestrator{Sandbox: true}, "docker-compose", version.String(), os.Args[1:]))
}
