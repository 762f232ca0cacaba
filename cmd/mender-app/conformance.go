package main

import (
	"errors"

	"github.com/spf13/cobra"
)

// conformanceCommand names the program that tests sub-modules, which this one did once.
func conformanceCommand() *cobra.Command {
	return &cobra.Command{
		Use: "conformance", Hidden: true, DisableFlagParsing: true, Args: cobra.ArbitraryArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return wrongUsage(cmd, errors.New("mender-app does not test sub-modules"), "run app-conformance PATH, a program of build hosts (make install-host)")
		},
	}
}
