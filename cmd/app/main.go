// App is the Mender update module "app"; package updatemodule is all of it.
package main

import (
	"os"

	"github.com/mender-app/mender-app/cmd/internal/memory"
	"github.com/mender-app/mender-app/cmd/internal/updatemodule"
)

func main() {
	memory.Fit(16 << 20) // what an artifact takes to read does not grow with it
	os.Exit(updatemodule.Run(os.Args[1:], os.Stdout, os.Stderr))
}
