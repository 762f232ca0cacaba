package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/store/durable"
)

var (
	errWaits   = errors.New("held")
	errRefused = errors.New("refused")
	errFails   = errors.New("fails")
)

// applications is a device with applications that are down, and staged artifacts.
type applications struct {
	down  map[string]bool
	stage map[string]string // by application
	fails map[string]error
	order []string
	facts []policy.Fact
	did   []string
}

func (d *applications) Situation(context.Context) (s policy.Situation, err error) {
	if err := d.fails[""]; err != nil {
		return s, err
	}
	s.Facts = d.facts
	for _, name := range d.order {
		s.Installed = append(s.Installed, policy.Present{App: policy.App{Name: name, Version: "1", Policy: managed}, Down: d.down[name]})
		if a := d.stage[name]; a != "" {
			s.Staged = append(s.Staged, policy.Staged{App: policy.App{Name: name, Version: "2", Release: a, Policy: managed}, At: time.Unix(1000, 0)})
		}
	}
	return s, nil
}

var managed = &policy.Policy{Managed: true, Reapply: []policy.Reapply{{On: policy.EventOSUpdated}}, Upgrades: policy.Upgrades{Automatic: true}}

func (d *applications) Begin(_ context.Context, event string) error {
	d.did = append(d.did, "begin "+event)
	return d.fails["begin"]
}

func (d *applications) End(_ context.Context, event string) error {
	d.did = append(d.did, "end "+event)
	return d.fails["end"]
}

func (d *applications) Do(_ context.Context, app string, w policy.Work, event string) (bool, error) {
	d.did = append(d.did, strings.TrimSuffix(fmt.Sprint(app, " ", w.Do, " ", event), " boot"))
	if err := d.fails[app]; err != nil {
		return false, err
	}
	switch w.Do {
	case policy.Start:
		d.down[app] = false
	case policy.Replace:
		d.stage[app] = ""
	}
	return w.Do != policy.RollOut, nil
}

// works is what it did for applications.
func (d *applications) works() (list []string) {
	for _, s := range d.did {
		if !strings.HasPrefix(s, "begin") && !strings.HasPrefix(s, "end") {
			list = append(list, s)
		}
	}
	return list
}

func (*applications) Waits(err error) bool   { return errors.Is(err, errWaits) }
func (*applications) Refused(err error) bool { return errors.Is(err, errRefused) }

func newRun(t *testing.T) (*applications, *Reconciler) {
	t.Helper()
	d := &applications{down: map[string]bool{}, stage: map[string]string{}, fails: map[string]error{}, order: []string{"db", "web"}}
	now := time.Unix(2000, 0)
	q := &Queue{Store: store.At(t.TempDir()), Now: func() time.Time { return now }}
	return d, &Reconciler{Queue: q, Device: d, Log: slog.New(slog.DiscardHandler)}
}

func run(t *testing.T, r *Reconciler, event string) *Report {
	t.Helper()
	report, err := r.Run(t.Context(), policy.Event{Name: event})
	require.NoError(t, err)
	return report
}

// Each application has its own queue: one whose task fails does not keep the other waiting,
// and its own later tasks wait behind it.
func TestQueues(t *testing.T) {
	d, r := newRun(t)
	d.down["db"], d.down["web"], d.stage["db"] = true, true, "db-2"
	d.fails["db"] = errFails
	report := run(t, r, "boot")
	require.Equal(t, []string{"begin boot", "db start", "web start", "end boot"}, d.did)
	require.Len(t, report.Done, 1)
	require.Len(t, report.Left, 2)
	require.Equal(t, policy.Start, report.Left[0].Do)
	require.Equal(t, "fails", report.Left[0].Error)
	require.Equal(t, 1, report.Left[0].Attempts)
	require.Equal(t, policy.Replace, report.Left[1].Do)

	report = run(t, r, "boot") // too early for another attempt
	require.Equal(t, 1, report.Left[0].Attempts)
	require.Len(t, report.Left, 2, "what waits is not added again")

	later := r.Queue.Now().Add(time.Minute)
	r.Queue.Now = func() time.Time { return later }
	d.did, d.fails["db"] = nil, nil
	report = run(t, r, "boot")
	require.Empty(t, report.Left)
	require.Equal(t, []string{"begin boot", "db start", "db install", "end boot"}, d.did)
}

// The delay grows from 5 s to 30 s, and a clock that is set back does not prolong it.
func TestDelay(t *testing.T) {
	for attempts, want := range map[int]time.Duration{1: 5 * time.Second, 2: 10 * time.Second, 3: 20 * time.Second, 4: 30 * time.Second, 1000: 30 * time.Second} {
		require.Equal(t, want, delay(attempts), attempts)
	}
	now := time.Unix(1e9, 0)
	require.Equal(t, 20*time.Second, Task{Next: now.Add(20 * time.Second)}.wait(now))
	require.Zero(t, Task{Next: now.Add(-time.Second)}.wait(now))
	require.Zero(t, Task{Next: now.Add(time.Hour)}.wait(now))
}

// An artifact that is refused, or that fails three times, is given up: until the next boot,
// or until it is staged again. What has to wait is not counted.
func TestGivesUp(t *testing.T) {
	for _, c := range []struct {
		err      error
		attempts int
	}{{errRefused, 1}, {errFails, maxInstalls}, {errWaits, 0}} {
		d, r := newRun(t)
		d.stage["web"], d.fails["web"] = "web-2", c.err
		now := r.Queue.Now()
		r.Queue.Now = func() time.Time { return now }
		gaveUp := 0
		for range 5 {
			for _, done := range run(t, r, "bundles").Done {
				require.True(t, done.GivenUp)
				gaveUp++
			}
			now = now.Add(time.Minute)
		}
		if c.attempts == 0 {
			require.Zero(t, gaveUp)
			require.Len(t, d.works(), 5)
			continue
		}
		require.Equal(t, 1, gaveUp)
		require.Len(t, d.works(), c.attempts)
		run(t, r, policy.EventBoot)
		require.Len(t, d.works(), c.attempts+1)
	}
}

// What begins a run may fail: then nothing is done, and it is tried again later. What ends
// one may not.
func TestBeginAndEnd(t *testing.T) {
	d, r := newRun(t)
	d.down["web"], d.fails["begin"], d.fails["end"] = true, errFails, errFails
	left := run(t, r, "boot").Left
	require.Len(t, left, 1)
	require.Contains(t, left[0].Error, "fails")
	require.Equal(t, []string{"begin boot"}, d.did)

	later := r.Queue.Now().Add(time.Minute)
	r.Queue.Now = func() time.Time { return later }
	d.fails["begin"], d.did = nil, nil
	require.Empty(t, run(t, r, "bundles").Left)
	require.Equal(t, []string{"begin boot", "web start", "end boot"}, d.did, "two events, and one run")
}

// What was seen is compared at the next run, and kept with the tasks that come of it.
func TestSeen(t *testing.T) {
	d, r := newRun(t)
	d.facts = []policy.Fact{policy.OSVersion("1")}
	run(t, r, "boot")
	d.facts, d.did = []policy.Fact{policy.OSVersion("2")}, nil
	d.fails["web"] = errFails
	report := run(t, r, "boot")
	require.Equal(t, []string{"begin boot", "db reapply os-updated", "web reapply os-updated", "end boot"}, d.did)
	require.Empty(t, report.Done, "nothing had changed")
	require.Equal(t, "os-updated", report.Left[0].Event.Name)
	require.Equal(t, "2", report.Left[0].Event.Fields["version"])

	d.did = nil
	require.Len(t, run(t, r, "boot").Left, 1)
	require.Equal(t, []string{"begin boot", "end boot"}, d.did)
}

// An evaluation that fails stays first.
func TestFailedEvaluation(t *testing.T) {
	d, r := newRun(t)
	d.fails[""] = errFails
	left := run(t, r, "boot").Left
	require.Len(t, left, 1)
	require.Equal(t, policy.Evaluate, left[0].Do)
	require.Contains(t, left[0].Error, "fails")
}

// The queues are bounded, a damaged file is an empty queue, and two processes do not work
// at the same time.
func TestBounds(t *testing.T) {
	_, r := newRun(t)
	for i := range MaxTasks {
		require.NoError(t, r.Queue.Add(t.Context(), Task{Work: policy.Work{Do: policy.Evaluate}, Event: policy.Event{Name: fmt.Sprint("e", i)}}))
	}
	require.ErrorIs(t, r.Queue.Add(t.Context(), Task{Work: policy.Work{Do: policy.Evaluate}, Event: policy.Event{Name: "more"}}), ErrFull)
	require.NoError(t, r.Queue.Add(t.Context(), Task{Application: "web", Work: policy.Work{Do: policy.Start}}))

	release, err := durable.Lock(r.Queue.path(workLock), "a test")
	require.NoError(t, err)
	_, err = r.Run(t.Context(), policy.Event{Name: "e1"})
	require.ErrorIs(t, err, ErrBusy)
	release()

	require.NoError(t, os.WriteFile(r.Queue.path(file), []byte("{"), 0o600))
	tasks, err := r.Queue.List()
	require.NoError(t, err)
	require.Empty(t, tasks)
	require.Empty(t, run(t, r, "boot").Left)
}

// TestKilled stops the work at each of its durable steps. The next run does all of it.
func TestKilled(t *testing.T) {
	errKilled := errors.New("killed")
	kills := 0
	for n := 1; ; n++ {
		d, r := newRun(t)
		d.down["db"], d.stage["web"] = true, "web-2"
		points := 0
		restore := durable.Inject(func(string) error {
			if points++; points >= n {
				return errKilled
			}
			return nil
		})
		_, err := r.Run(t.Context(), policy.Event{Name: "boot"})
		restore()
		if err == nil && points < n {
			break
		}
		kills++
		_, err = r.Run(t.Context(), policy.Event{Name: "boot"})
		require.NoError(t, err, "stopped at point %d", n)
		left, err := r.Queue.List()
		require.NoError(t, err)
		require.Empty(t, left, "stopped at point %d", n)
		require.False(t, d.down["db"])
		require.Empty(t, d.stage["web"])
	}
	t.Logf("figures: the queue of reconcile: %d kills", kills)
	require.Greater(t, kills, 10)
}
