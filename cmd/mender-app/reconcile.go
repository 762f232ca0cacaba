package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/modules/facts"
	"github.com/mender-app/mender-app/modules/hold"
	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/modules/reconcile"
)

// Bounds of what a person or a program may raise.
const (
	maxFields = 32
	maxValue  = 512
	// defaultPatience is how long reconcile tries failed tasks again.
	defaultPatience = 2 * time.Minute
	onDemand        = "on-demand"
)

func (p *program) reconcileCommand() *cobra.Command {
	var event string
	var patience time.Duration
	cmd := &cobra.Command{
		Use:   "reconcile",
		Short: "Do what the policies of managed applications ask for, and restart what is down",
		Long: `Does what the policies of managed applications (managed = true) ask for:

  - restart an application that should run and does not, such as after a
    container was removed by hand; the history says so (reconciled)
  - install and commit a newer staged artifact (upgrades.automatic)
  - return to the older staged artifact if that of the installed release was
    withdrawn with "mender-app stage rm" (downgrades.automatic)
  - after an event in [[reapply]] of its policy, roll an application out again
    if something of it has changed, such as its overrides
  - install a staged release that runs on the engine's version if the installed
    one does not (engine_upgrades.automatic)

The work waits in queues on disk, which "mender-app queue" shows. A failed task stays
first in its queue and is repeated after 5 s, 10 s, 20 s and then every 30 s, for the time
of --for, and then by the next call. An artifact that was refused or aborted, or that
failed three times, is given up until it is staged again or the machine reboots. During
an open or held update, the work waits for the next call, and the exit code is 75.

The device's hooks before-all and after-all run before and after, and on-startup at boot
(/etc/mender/mender-app/hooks.d). If on-startup or before-all fails, nothing is done.

Without a managed application it asks no engine and writes nothing. On a device with a Mender
client no artifact is installed: use that client. systemd units run this at boot, when
the staged artifacts change and, if enabled, from time to time.`,
		Example: "  mender-app reconcile\n  mender-app reconcile --event boot --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.runReconcile(cmd.Context(), policy.Event{Name: event}, patience)
		},
	}
	cmd.Flags().StringVar(&event, "event", onDemand, "the event that it runs for, in the history")
	cmd.Flags().DurationVar(&patience, "for", defaultPatience, "how long failed tasks are repeated")
	return cmd
}

func (p *program) triggerCommand() *cobra.Command {
	var fields []string
	cmd := &cobra.Command{
		Use:   "trigger NAME",
		Short: "Raise an event for reconcile",
		Long: `Puts an event into the queue, and runs "mender-app reconcile". NAME has lower-case
letters, digits and hyphens. If another reconcile is at work, that one handles it.
Applications whose policies name the event in [[reapply]] are rolled out again if
something of them has changed.`,
		Example: "  mender-app trigger battery-full\n  mender-app trigger os-updated --field version=4.2.1",
		RunE: func(cmd *cobra.Command, args []string) error {
			e := policy.Event{Name: args[0]}
			for _, f := range fields {
				key, value, ok := strings.Cut(f, "=")
				if !ok || key == "" || len(f) > maxValue || len(e.Fields) >= maxFields {
					return fmt.Errorf("%w: --field %s is not NAME=VALUE of at most %d bytes, or there are more than %d", device.ErrUsage, device.OneLine(f), maxValue, maxFields)
				}
				if e.Fields == nil {
					e.Fields = map[string]string{}
				}
				e.Fields[key] = value
			}
			return p.runReconcile(cmd.Context(), e, defaultPatience)
		},
	}
	cmd.Flags().StringArrayVar(&fields, "field", nil, "a field of the event, NAME=VALUE; may be repeated")
	return cmd
}

// raise raises an event and does what comes of it.
func (p *program) raise(ctx context.Context, event string) error {
	return p.runReconcile(ctx, policy.Event{Name: event}, defaultPatience)
}

// runReconcile raises an event and works on the queues.
func (p *program) runReconcile(ctx context.Context, event policy.Event, patience time.Duration) error {
	if err := policy.CheckEvent(event.Name); err != nil {
		return fmt.Errorf("%w: %w", device.ErrUsage, err)
	}
	if err := p.engine().Unload(ctx); err != nil { // what a kill has left; it keeps nothing waiting
		p.log.Warn("images of artifacts that are no longer staged are still loaded", "error", err)
	}
	q := &reconcile.Queue{Store: p.config.OpenStore()}
	some, err := p.anyManaged(q)
	if err != nil {
		return err
	}
	if !some {
		return p.printResult(reconcile.Report{Done: []reconcile.Done{}, Left: []reconcile.Task{}}, "no application is managed")
	}
	r := reconcile.Reconciler{Queue: q, Device: &actor{p}, Log: p.log, Patience: patience}
	report, err := r.Run(ctx, event)
	if errors.Is(err, reconcile.ErrBusy) {
		return p.printResult(report, "another mender-app reconcile is at work, and does this too")
	}
	if err != nil {
		return err
	}
	return errors.Join(p.showReconciled(report), reconcileVerdict(report))
}

// anyManaged reports whether an application is managed or a task waits.
func (p *program) anyManaged(q *reconcile.Queue) (bool, error) {
	tasks, err := q.List()
	if err != nil || len(tasks) > 0 {
		return true, err
	}
	names, err := q.Store.Apps()
	if err != nil {
		return false, err
	}
	for _, a := range facts.Installed(q.Store, p.log, names) {
		if a.Policy != nil && a.Policy.Managed {
			return true, nil
		}
	}
	return false, nil
}

// deedWords say what a task did.
var deedWords = map[policy.Deed]string{policy.Start: "started again", policy.Replace: "installed", policy.RollOut: "rolled out again",
	policy.Disable: "disabled", policy.Enable: "enabled",
}

func (p *program) showReconciled(r *reconcile.Report) error {
	if p.json {
		return p.printResult(r, "")
	}
	for _, d := range r.Done {
		line := fmt.Sprintf("%s: %s: %s", d.Application, strings.TrimSpace(deedWords[d.Do]+" "+d.Artifact), d.Why)
		if d.GivenUp {
			line = fmt.Sprintf("%s: given up: %s of %s: %s", d.Application, d.Do, d.Artifact, d.Error)
		}
		if err := p.printResult(nil, "%s", line); err != nil {
			return err
		}
	}
	if len(r.Done)+len(r.Left) == 0 {
		return p.printResult(nil, "nothing to do")
	}
	return nil
}

// reconcileVerdict is the error for what was not done.
func reconcileVerdict(r *reconcile.Report) error {
	for _, d := range r.Done {
		if d.GivenUp {
			return fmt.Errorf("%s of %s for %s is given up: %s", d.Do, d.Artifact, d.Application, d.Error)
		}
	}
	if len(r.Left) == 0 {
		return nil
	}
	t := r.Left[0]
	err := fmt.Errorf("%s left (mender-app queue): %s: %s", metered.Count(len(r.Left), "task"), cmp.Or(t.Application, "all"), t.Error)
	if t.Waits {
		err = fmt.Errorf("%w: %w", hold.ErrHeld, err)
	}
	return err
}

func (p *program) queueCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "queue",
		Short: "Show the tasks of reconcile",
		Long: `Shows the queues of "mender-app reconcile": one for each application and one for all,
the first task of each first, with the error of the last attempt.`,
		Example: "  mender-app queue\n  mender-app queue --json",
		RunE: func(*cobra.Command, []string) error {
			q := &reconcile.Queue{Store: p.config.OpenStore()}
			tasks, err := q.List()
			if err != nil {
				return err
			}
			if p.json {
				return p.printResult(append([]reconcile.Task{}, tasks...), "")
			}
			if len(tasks) == 0 {
				return p.printResult(nil, "nothing waits")
			}
			var rows [][]string
			for _, t := range tasks {
				next := ""
				if t.Attempts > 0 {
					next = t.Next.UTC().Format(time.DateTime)
				}
				rows = append(rows, []string{cmp.Or(t.Application, "-"), string(t.Do), t.Artifact, t.Event.Name,
					t.Added.UTC().Format(time.DateTime), strconv.Itoa(t.Attempts), next, device.OneLine(t.Error)})
			}
			return p.table("APPLICATION\tTASK\tARTIFACT\tEVENT\tADDED (UTC)\tFAILED\tNEXT (UTC)\tERROR", rows)
		},
	}
}
