// Command docker-compose is the sub-module of mender-app that runs applications
// with Docker Compose. See submodules/PROTOCOL.md for its arguments and exit
// codes.
package main

import (
	"os"

	"github.com/mender-app/mender-app/cmd/internal/memory"
	"github.com/mender-app/mender-app/cmd/internal/version"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/compose"
)

func main() {
	// Decoding a delta takes up to 16 MiB at once, and Go's runtime 4. With 20 MiB the
	// collector ran thousands of times, and two images took twice the processor time
	// (docs/BENCHMARKS.md).
	const limit = 23 << 20
	memory.Fit(limit, limit)
	os.Exit(submodules.Main(compose.Orchestrator{Sandbox: true}, "docker-compose", version.String(), os.Args[1:]))
}
