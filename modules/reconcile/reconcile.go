// Package reconcile automatically does what the policies of managed applications ask for.
// It works on queues on disk: a common one, whose tasks find out what there is to do, and
// one for each application. Each queue is worked from its head; a task that fails stays at
// the head and is tried again later. A task is removed after its work, so a kill at any
// point repeats it: all work must be repeatable.
//
// The package must not know how an application is started or installed.
package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/mender-app/mender-app/artifact/clip"
	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/store/durable"
)

// Device is what a Reconciler inspects and changes.
type Device interface {
	// Situation describes the applications. It takes no lock.
	Situation(ctx context.Context) (policy.Situation, error)
	// Begin is called before the evaluation of an event, and again until it succeeds. End
	// is called when a run ends for which Begin has succeeded.
	Begin(ctx context.Context, event string) error
	End(ctx context.Context, event string) error
	// Do does the work of a task for an application, and reports whether there was anything
	// to do.
	Do(ctx context.Context, application string, w policy.Work, event string) (did bool, err error)
	// Waits reports whether an error says that something else must end first, such as an
	// update. Refused reports whether another attempt would get the same answer.
	Waits(err error) bool
	Refused(err error) bool
}

// Reconciler works on the queues.
type Reconciler struct {
	Queue  *Queue
	Device Device
	Log    *slog.Logger
	// Patience is how long a run retries failed tasks.
	Patience time.Duration
}

// Done is a task that ended in this run.
type Done struct {
	Task
	GivenUp bool `json:"given_up,omitempty"`
}

// Report is the result of a run.
type Report struct {
	Done []Done `json:"done"`
	// Left are the tasks that wait: they failed, or something else must end first.
	Left []Task `json:"left"`
}

// maxInstalls is how many times an installation is tried.
const maxInstalls = 3

// Run adds an evaluation for an event, and works until nothing more can be done now.
// The error is ErrBusy if another process works on the queue.
func (r *Reconciler) Run(ctx context.Context, event policy.Event) (*Report, error) {
	if err := r.Queue.Add(ctx, Task{Work: policy.Work{Do: policy.Evaluate}, Event: event}); err != nil {
		return nil, err
	}
	report := &Report{Done: []Done{}, Left: []Task{}}
	end := time.Now().Add(r.Patience)
	for {
		if err := r.work(ctx, end, report); err != nil {
			return report, err
		}
		left, err := r.Queue.List()
		if err != nil {
			return report, err
		}
		// A task may have come between the last look and the release of the lock.
		if !slices.ContainsFunc(heads(left), func(t Task) bool { return t.Attempts == 0 }) || time.Now().After(end) {
			report.Left = append(report.Left, left...)
			return report, nil
		}
	}
}

// work works on the queue under its lock.
func (r *Reconciler) work(ctx context.Context, end time.Time, report *Report) error {
	release, err := durable.Lock(r.Queue.path(workLock), "reconcile")
	var held *durable.HeldError
	if errors.As(err, &held) {
		return ErrBusy
	}
	if err != nil {
		return err
	}
	defer release()
	pass := &pass{report: report, waiting: map[int64]bool{}}
	defer func() {
		if pass.event == "" || ctx.Err() != nil {
			return
		}
		if err := r.Device.End(ctx, pass.event); err != nil {
			r.Log.Error("the end of automatic work", "error", err)
		}
	}()
	for {
		tasks, err := r.Queue.List()
		if err != nil {
			return err
		}
		t, pause, found := first(tasks, pass.waiting, r.Queue.now())
		if !found {
			return nil
		}
		if pause > 0 {
			if time.Now().Add(pause).After(end) {
				return nil
			}
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(pause):
			}
			continue
		}
		if err := r.do(ctx, t, pass); err != nil {
			return err
		}
	}
}

// pass is one run under the lock.
type pass struct {
	report  *Report
	waiting map[int64]bool // tasks left to the next run
	event   string         // that the device has begun work for; "" for none yet
}

// heads lists the first task of each queue: first the common queue, then the
// applications in the order of their tasks.
func heads(tasks []Task) (list []Task) {
	seen := map[string]bool{}
	for _, t := range tasks {
		if seen[t.Application] {
			continue
		}
		seen[t.Application] = true
		if t.Application == "" {
			list = slices.Insert(list, 0, t)
		} else {
			list = append(list, t)
		}
	}
	return list
}

// first finds the head to do next. pause is how long it must still wait.
func first(tasks []Task, skip map[int64]bool, now time.Time) (next Task, pause time.Duration, found bool) {
	for _, t := range heads(tasks) {
		if w := t.wait(now); !skip[t.ID] && (!found || w < pause) {
			next, pause, found = t, w, true
		}
	}
	return next, pause, found
}

// do does one task.
func (r *Reconciler) do(ctx context.Context, t Task, p *pass) error {
	if err := durable.Point("reconcile.begin"); err != nil {
		return err
	}
	var next []Task
	var seen map[string]string // nil: as before
	var err error
	did := false
	if t.Do == policy.Evaluate {
		next, seen, err = r.evaluate(ctx, t.Event, p)
	} else {
		did, err = r.Device.Do(ctx, t.Application, t.Work, t.Event.Name)
	}
	if perr := durable.Point("reconcile.end"); perr != nil {
		return perr
	}
	switch {
	case err == nil:
		if did {
			p.report.Done = append(p.report.Done, Done{Task: t})
		}
		return r.Queue.done(ctx, t.ID, next, seen)
	case ctx.Err() != nil:
		return context.Cause(ctx) // it stays at the head
	}
	r.Log.Error("automatic work failed", "app", t.Application, "task", string(t.Do), "error", err)
	text := clip.Line(err.Error(), maxError-len("…"))
	waits := r.Device.Waits(err)
	// Each attempt may stop the running release.
	if t.Do == policy.Replace && !waits && (r.Device.Refused(err) || t.Attempts+1 >= maxInstalls) {
		t.Attempts, t.Error = t.Attempts+1, text
		p.report.Done = append(p.report.Done, Done{Task: t, GivenUp: true})
		return r.Queue.giveUp(ctx, t)
	}
	p.waiting[t.ID] = waits
	return r.Queue.fail(ctx, t.ID, text, waits)
}

// evaluate finds out what there is to do, and the state of the device.
func (r *Reconciler) evaluate(ctx context.Context, event policy.Event, p *pass) ([]Task, map[string]string, error) {
	if p.event == "" || event.Name == policy.EventBoot {
		if err := r.Device.Begin(ctx, event.Name); err != nil {
			return nil, nil, err
		}
		p.event = event.Name
	}
	s, err := r.Device.Situation(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("inspect the applications: %w", err)
	}
	c, err := r.Queue.read()
	if err != nil {
		return nil, nil, err
	}
	s.Event = event
	var seen map[string]string
	s.Also, seen = policy.Changed(c.Seen, s, r.Queue.now().Local())
	for i := range s.Staged {
		x := &s.Staged[i]
		x.Failed = event.Name != policy.EventBoot && slices.ContainsFunc(c.GivenUp, func(g givenUp) bool {
			return g.Application == x.Name && g.Artifact == x.Release && !x.At.After(g.At)
		})
	}
	var tasks []Task
	for _, t := range policy.Next(s) {
		tasks = append(tasks, Task{Application: t.Application, Work: t.Work, Event: t.Event})
	}
	return tasks, seen, nil
}
