package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/submodules/conformance"
)

// conformanceTime bounds a whole run, kills and all.
const conformanceTime = 30 * time.Minute

func (p *program) conformanceCommand() *cobra.Command {
	var fixture string
	o := conformance.Options{}
	c := &cobra.Command{
		Use:   "conformance PATH",
		Short: "Test a sub-module against the sub-module protocol",
		Long: `Runs the sub-module PATH, any executable, against the protocol for sub-modules
(submodules/PROTOCOL.md) and prints a line for each check: the verb, what was
checked, the result, and the reason with the section that has the rule.

The results are pass, fail, not claimed (the protocol asks it only of those that
speak 1.1 or have a feature) and skipped (it could not be checked).

Without --fixture: arguments, replies, exit codes, options, environment, and the
answers about an application that is not there. With it, the suite installs,
updates, fails, rolls back, stops and purges an application of a new name, and
kills calls in the middle. DIR has three releases:

  good/manifests/      files of a release that becomes healthy
  good/components/     its components; the path of each is its url
  better/              the next release, with the same urls
  bad/                 one that does not become healthy; may be left out

Images, and components whose url is no path, stand in good/components.json: the
list that LIST prints, each with a member "file", its path below good/.

The sub-module runs as you and can do what you can. In the end the application is
purged and processes of the sub-module's calls are killed. The exit code is 1 if a
check failed.`,
		Example: `  mender-app conformance ./my-submodule
  mender-app conformance --fixture testdata/fixture ./my-submodule
  mender-app conformance --json /usr/share/mender/app-modules/v1/docker-compose`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Path = args[0]
			if _, err := os.Stat(o.Path); err != nil {
				return err
			}
			if fixture != "" {
				f, err := conformance.ReadFixture(fixture)
				if err != nil {
					return fmt.Errorf("%w: %w", device.ErrUsage, err)
				}
				o.Fixture = f
			}
			return p.conformance(cmd, o)
		},
	}
	c.Flags().StringVar(&fixture, "fixture", "", "`DIR` with three releases of an application to play with")
	c.Flags().IntVar(&o.Kills, "kills", 3, "how often each verb that changes something is killed")
	c.Flags().DurationVar(&o.Limit, "limit", 3*time.Minute, "how long a call may take")
	if err := c.MarkFlagDirname("fixture"); err != nil {
		panic(err)
	}
	return c
}

// conformance prints the report, and fails where a check did.
func (p *program) conformance(cmd *cobra.Command, o conformance.Options) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), conformanceTime)
	defer cancel()
	r, err := conformance.Check(ctx, o)
	if err != nil {
		return err
	}
	if p.json {
		err = p.printJSON(r)
	} else {
		var rows [][]string
		for _, f := range r.Findings {
			reason := ""
			if f.Result != conformance.Pass {
				reason = f.Reason + " (" + f.Section + ")"
			}
			rows = append(rows, []string{f.Verb, f.Check, string(f.Result), device.OneLine(reason)})
		}
		err = p.table("VERB\tCHECK\tRESULT\tREASON", rows)
		if err == nil {
			_, err = fmt.Fprintf(p.stdout, "\n%s speaks %s: %d passed, %d failed, %d not claimed, %d skipped\n", r.Name, r.Protocol,
				r.Count(conformance.Pass), r.Count(conformance.Fail), r.Count(conformance.NotClaimed), r.Count(conformance.Skipped))
		}
	}
	if failed := r.Failed(); err == nil && len(failed) > 0 {
		err = fmt.Errorf("%d of %d checks failed, the first: %s", len(failed), len(r.Findings), failed[0])
	}
	return err
}
