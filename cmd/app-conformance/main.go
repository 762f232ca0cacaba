// App-conformance tests a sub-module against the sub-module protocol. It is for those
// who write one: devices do not need it. This package has the flags, the output and the
// exit codes; submodules/conformance makes the calls.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/cmd/internal/table"
	"github.com/mender-app/mender-app/cmd/internal/usage"
	"github.com/mender-app/mender-app/cmd/internal/version"
	"github.com/mender-app/mender-app/submodules/conformance"
)

// The exit codes, as --help lists them.
const (
	exitDone     = 0
	exitFailed   = 1
	exitUsage    = 2
	exitNotFound = 4 // as in mender-app
)

// wholeRun bounds a run, kills and all.
const wholeRun = 30 * time.Minute

// errUsage: the command line or the fixture is wrong.
var errUsage = errors.New("usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run runs the program and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := command(stdout)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	code := exitCode(err)
	switch {
	case err == nil:
	case usage.AsksJSON(args):
		usage.PrintJSON(stderr, device.OneLine(err.Error()), "", code)
	default:
		fmt.Fprintln(stderr, "error: "+device.OneLine(err.Error()))
	}
	return code
}

func exitCode(err error) int {
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errUsage):
		return exitUsage
	case errors.Is(err, fs.ErrNotExist):
		return exitNotFound
	}
	return exitFailed
}

func command(stdout io.Writer) *cobra.Command {
	var fixture string
	var asJSON bool
	o := conformance.Options{}
	c := &cobra.Command{
		Use:   "app-conformance PATH",
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
purged and processes of the sub-module's calls are killed.

Exit status:
  0  every check passed
  1  a check failed, or the sub-module cannot be run
  2  the options or the fixture are wrong
  4  there is no such file`,
		Example: `  app-conformance ./my-submodule
  app-conformance --fixture testdata/fixture ./my-submodule
  app-conformance --json /usr/share/mender/app-modules/v1/docker-compose`,
		Args:              cobra.ArbitraryArgs, // RunE counts them, after it has looked for --version
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return wrong("name one sub-module: app-conformance PATH; see app-conformance --help")
			}
			o.Path = args[0]
			if _, err := os.Stat(o.Path); err != nil {
				return err
			}
			if fixture != "" {
				f, err := conformance.ReadFixture(fixture)
				if err != nil {
					return wrong("%w", err)
				}
				o.Fixture = f
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), wholeRun)
			defer cancel()
			r, err := conformance.Check(ctx, o)
			if err != nil {
				return err
			}
			return report(stdout, r, asJSON)
		},
	}
	usage.PrintVersion(c, version.String())
	usage.FoldHelp(c)
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		if meant := usage.MeantOption(c, err); meant != "" {
			return wrong("%w; %s", err, meant)
		}
		return wrong("%w; see app-conformance --help", err)
	})
	c.Flags().StringVar(&fixture, "fixture", "", "`DIR` with three releases of an application to play with")
	c.Flags().IntVar(&o.Kills, "kills", 3, "how often each verb that changes something is killed")
	c.Flags().DurationVar(&o.Limit, "limit", 3*time.Minute, "how long a call may take")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, errors too")
	if err := c.MarkFlagDirname("fixture"); err != nil {
		panic(err)
	}
	return c
}

func wrong(format string, args ...any) error {
	return fmt.Errorf("%w: %w", errUsage, fmt.Errorf(format, args...))
}

// report prints the report, and fails where a check did.
func report(w io.Writer, r *conformance.Report, asJSON bool) error {
	if err := printReport(w, r, asJSON); err != nil {
		return err
	}
	if failed := r.Failed(); len(failed) > 0 {
		return fmt.Errorf("%d of %s failed, the first: %s", len(failed), metered.Count(len(r.Findings), "check"), failed[0])
	}
	return nil
}

func printReport(w io.Writer, r *conformance.Report, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	rows := [][]string{strings.Split("VERB CHECK RESULT REASON", " ")}
	for _, f := range r.Findings {
		reason := "-"
		if f.Result != conformance.Pass {
			reason = device.OneLine(f.Reason + " (" + f.Section + ")")
		}
		rows = append(rows, []string{f.Verb, f.Check, string(f.Result), reason})
	}
	_, err := fmt.Fprintf(w, "%s\n%s speaks %s: %d passed, %d failed, %d not claimed, %d skipped\n", table.LayOut(rows, table.Width(w)), r.Name, r.Protocol,
		r.Count(conformance.Pass), r.Count(conformance.Fail), r.Count(conformance.NotClaimed), r.Count(conformance.Skipped))
	return err
}
