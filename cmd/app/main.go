// App is the Mender update module "app". Its code is in package updatemodule.
package main

import (
	"os"

	"github.com/mender-app/mender-app/cmd/internal/memory"
	"github.com/mender-app/mender-app/cmd/internal/updatemodule"
)

func main() {
	memory.Fit(16<<20, 8<<20) // reading an artifact takes the same memory whatever its size
	os.Exit(updatemodule.Run(os.Args[1:], os.Stdout, os.Stderr))
}
