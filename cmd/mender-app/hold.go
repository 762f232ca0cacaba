package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/modules/hold"
	"github.com/mender-app/mender-app/store"
)

func (p *program) holdCommand() *cobra.Command {
	show := false
	alone := p.holdSetCommand(&show)
	alone.Flags().BoolVar(&show, "show", false, "only say whether updates are held")
	return noun(cobra.Command{
		Use:     "hold",
		Short:   "Make updates wait while something else works on the machine",
		Long:    "Holds updates of all applications, for example while the operating system is updated.",
		Example: "  mender-app hold set --reason 'update of the operating system' --for 2h\n  mender-app hold release",
	}, alone, p.holdSetCommand(new(bool)), p.holdShowCommand(), p.holdReleaseCommand())
}

// holdSetCommand is the command that takes a hold, or only shows the one there is.
func (p *program) holdSetCommand(show *bool) *cobra.Command {
	var reason string
	var length time.Duration
	cmd := &cobra.Command{
		Use:   "set",
		Short: "Make updates wait while something else works on the machine",
		Long: `Holds updates of all applications, such as during an OS update. Until "mender-app hold
release", or until the time is over, a new update and stop, start, purge and rollback of
an application are refused with exit code 75, and the error names the reason. A hold
survives a reboot. Commands that end an update are never held.

With the reason of the present hold, the time starts again. During a hold with another
reason, or an open update of an application, the exit code is 75 and nothing changes.`,
		Example: "  mender-app hold set --reason 'update of the operating system' --for 2h",
		Args: func(cmd *cobra.Command, words []string) error {
			if len(words) > 0 {
				return wrongUsage(cmd, fmt.Errorf("%s takes no words", cmd.CommandPath()), "give the reason with --reason '"+strings.Join(words, " ")+"'")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if *show {
				return p.showHold()
			}
			e := p.engine()
			if length < time.Second || length > hold.MaxTime {
				return fmt.Errorf("%w: --for %s is not between 1s and %s", device.ErrUsage, length, hold.MaxTime)
			}
			if err := hold.CheckReason(reason); err != nil {
				return fmt.Errorf("%w: --reason: %w", device.ErrUsage, err)
			}
			h, err := hold.Take(cmd.Context(), e.Store, e.HoldClock(), store.Hold{
				Reason: reason, Asked: e.Asked.OrNil(), Seconds: int64(length / time.Second),
			})
			if err != nil {
				return err
			}
			return p.printResult(hold.ReportOf(h), "updates are held until %s; mender-app hold release ends that", hold.Stamp(hold.Until(h)))
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "held by hand", "the reason, which refused commands print")
	cmd.Flags().DurationVar(&length, "for", hold.DefaultTime, "how long at most")
	return cmd
}

func (p *program) holdShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "show",
		Short:   "Say whether updates are held, by whom and until when",
		Example: "  mender-app hold show --json",
		RunE:    func(*cobra.Command, []string) error { return p.showHold() },
	}
}

func (p *program) showHold() error {
	e := p.engine()
	h, err := hold.Current(e.Store, e.HoldClock())
	if err != nil {
		return err
	}
	if h == nil {
		return p.printResult(hold.Report{}, "nothing holds updates")
	}
	return p.printResult(hold.ReportOf(h), "updates are held: %s, since %s, until %s", hold.Who(h), hold.Stamp(h.Since), hold.Stamp(hold.Until(h)))
}

func (p *program) holdReleaseCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "release",
		Short: "Let updates happen again",
		Long: `Ends the hold of "mender-app hold set". With --reason it ends only a hold of this
reason, so that a script does not end another's hold. Without a hold it does nothing.`,
		Example: "  mender-app hold release\n  mender-app hold release --reason 'update of the operating system'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			e := p.engine()
			given, left, err := hold.Give(cmd.Context(), e.Store, e.HoldClock(), reason)
			switch {
			case err != nil:
				return err
			case left != nil:
				return p.printResult(hold.ReportOf(left), "updates stay held: %s", hold.Who(left))
			case !given:
				return p.printResult(hold.Report{}, "nothing holds updates")
			}
			return p.printResult(hold.Report{}, "updates are no longer held")
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "end only a hold of this reason")
	return cmd
}
