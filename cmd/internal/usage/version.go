package usage

import (
	"fmt"

	"github.com/spf13/cobra"
)

// PrintVersion gives the root command the option --version. Cobra's own option needs
// text/template to print the line that every program prints. A program that links that
// package keeps every method, even uncalled ones: mender-app for arm/v7 has 13.2 MB without
// it, and 15.1 MB with it.
func PrintVersion(root *cobra.Command, version string) {
	root.Flags().BoolP("version", "v", false, "version for "+root.Name())
	run := root.RunE
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if asked, err := cmd.Flags().GetBool("version"); err != nil || asked {
			if err == nil {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), root.Name(), version)
			}
			return err
		}
		return run(cmd, args)
	}
}
