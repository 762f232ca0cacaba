package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/modules/view"
)

// The statuses of a finding, for the checks here.
const (
	statusOK   = view.FindingOK
	statusWarn = view.FindingWarn
	statusFail = view.FindingFail
)

type finding = view.Finding

func (p *program) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check that this device is ready for updates",
		Long: `Checks the programs and their versions, the engines, the store and its permissions, free
space, the clock, the keys for signatures, durable writes, and the parts of the sandbox
that protect the reading of unverified content. Each line is ok, warn or fail, and says
what to do. Nothing is changed.

The exit code is 1 if a line says fail.`,
		Example: "  mender-app doctor\n  mender-app doctor --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := &checkup{ctx: cmd.Context(), config: p.config}
			c.all(p.broken)
			if p.json {
				if err := p.printJSON(c.findings); err != nil {
					return err
				}
			} else {
				var rows [][]string
				for _, f := range c.findings {
					rows = append(rows, []string{f.Status, f.Check, device.OneLine(f.Found), device.OneLine(f.Do)})
				}
				if err := p.table("STATUS\tCHECK\tFOUND\tWHAT TO DO", rows); err != nil {
					return err
				}
			}
			return c.err()
		},
	}
}

// err says how many checks failed, nil for none.
func (c *checkup) err() error {
	failed := 0
	for _, f := range c.findings {
		if f.Status == statusFail {
			failed++
		}
	}
	switch failed {
	case 0:
		return nil
	case 1:
		i := slices.IndexFunc(c.findings, func(f finding) bool { return f.Status == statusFail })
		return fmt.Errorf("%s: %s", c.findings[i].Check, c.findings[i].Found)
	}
	return errors.New(fmt.Sprint(failed, " checks failed"))
}
