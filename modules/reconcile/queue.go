package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/store/durable"
)

// Names in the store, and bounds. See store/FORMAT.md.
const (
	dir       = "queue"
	file      = "queue.json"
	workLock  = "work.lock" // held by the process that works on the queue
	writeLock = "write.lock"
	format    = 1
	maxBytes  = 1 << 20
	// MaxTasks is how many tasks may wait in one queue.
	MaxTasks = 64
	maxError = 512 // bytes kept of an error

	writeTime = 10 * time.Second // how long a process waits for another that writes
)

// Errors a caller may branch on.
var (
	// ErrFull: a queue has MaxTasks tasks.
	ErrFull = errors.New("the queue is full")
	// ErrBusy: another process works on the queue.
	ErrBusy = errors.New("another mender-app reconcile works on the queue and will take new tasks too")
)

// Task is one piece of work.
type Task struct {
	ID int64 `json:"id"`
	// Application names the queue that has the task; "" is the common queue.
	Application string `json:"application,omitempty"`
	policy.Work
	Event policy.Event `json:"event"`
	Added time.Time    `json:"added"`
	// Attempts is how many have failed, the last one with Error. The next attempt is not before Next.
	Attempts int       `json:"attempts,omitempty"`
	Next     time.Time `json:"next,omitzero"`
	Error    string    `json:"error,omitempty"`
	// Waits: the last attempt found that something else must end first.
	Waits bool `json:"waits,omitempty"`
}

// same reports whether two tasks ask for the same work.
func (t Task) same(o Task) bool {
	return t.Application == o.Application && t.Do == o.Do && t.Artifact == o.Artifact &&
		(t.Do != policy.Evaluate || t.Event.Name == o.Event.Name && maps.Equal(t.Event.Fields, o.Event.Fields))
}

// Queue holds the queues on disk: one for each application and a common one. They are
// in one file, which is replaced as a whole.
type Queue struct {
	Store *store.Store
	Now   func() time.Time // nil is time.Now
}

// content is the file.
type content struct {
	Format int    `json:"format"`
	Last   int64  `json:"last"` // the last ID
	Tasks  []Task `json:"tasks"`
	// GivenUp are artifacts whose installation was given up after too many failures.
	GivenUp []givenUp `json:"given_up,omitempty"`
	// Seen is the state of the device in the last evaluation, see policy.Changed.
	Seen map[string]string `json:"seen,omitempty"`
}

// givenUp is an artifact that is no longer installed automatically. Another artifact
// of the application, or the same one staged again, is.
type givenUp struct {
	Application string    `json:"application"`
	Artifact    string    `json:"artifact_name"`
	At          time.Time `json:"at"`
}

func (q *Queue) path(name string) string { return filepath.Join(q.Store.Meta(dir), name) }

func (q *Queue) now() time.Time {
	if q.Now != nil {
		return q.Now().UTC()
	}
	return time.Now().UTC()
}

// List lists the tasks, the first of each queue first. It needs no lock. A damaged file
// counts as an empty queue: the work will be found again.
func (q *Queue) List() ([]Task, error) {
	c, err := q.read()
	return c.Tasks, err
}

func (q *Queue) read() (c content, err error) {
	f, err := os.Open(q.path(file))
	if errors.Is(err, fs.ErrNotExist) {
		return content{}, nil
	}
	if err != nil {
		return c, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxBytes))
	if err != nil {
		return c, err
	}
	if json.Unmarshal(data, &c) != nil || c.Format != format {
		return content{}, nil
	}
	return c, nil
}

// change changes the file under a lock of its own, which is held only briefly.
func (q *Queue) change(ctx context.Context, work func(*content) error) error {
	if err := q.Store.Protect(); err != nil {
		return err
	}
	if err := durable.PrivateDir(q.Store.Meta(dir)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	release, err := durable.WaitLock(ctx, q.path(writeLock), "the queue")
	if ctx.Err() != nil && err != nil {
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	if err != nil {
		return err
	}
	defer release()
	c, err := q.read()
	if err != nil {
		return err
	}
	if err := work(&c); err != nil {
		return err
	}
	c.Format = format
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	if len(data) >= maxBytes {
		return ErrFull
	}
	if err := durable.Sweep(q.Store.Meta(dir)); err != nil {
		return err
	}
	return durable.WriteFile(q.path(file), append(data, '\n'), 0o600)
}

// Add adds tasks at the ends of their queues. A task that waits already is not added
// again.
func (q *Queue) Add(ctx context.Context, tasks ...Task) error {
	if len(tasks) == 0 {
		return nil
	}
	return q.change(ctx, func(c *content) error { return c.add(q.now(), tasks) })
}

func (c *content) add(now time.Time, tasks []Task) error {
	for _, t := range tasks {
		waiting := 0
		for _, o := range c.Tasks {
			if o.Application == t.Application {
				waiting++
			}
		}
		if slices.ContainsFunc(c.Tasks, t.same) {
			continue
		}
		if waiting >= MaxTasks {
			return ErrFull
		}
		c.Last++
		t.ID, t.Added = c.Last, now
		c.Tasks = append(c.Tasks, t)
	}
	return nil
}

// done removes a task and adds the tasks that result from it in the same write.
func (q *Queue) done(ctx context.Context, id int64, next []Task, seen map[string]string) error {
	return q.change(ctx, func(c *content) error {
		c.drop(id)
		if seen != nil {
			c.Seen = seen
		}
		return c.add(q.now(), next)
	})
}

func (c *content) drop(id int64) {
	c.Tasks = slices.DeleteFunc(c.Tasks, func(t Task) bool { return t.ID == id })
}

// fail keeps a failed task in its place until it may be tried again.
func (q *Queue) fail(ctx context.Context, id int64, cause string, waits bool) error {
	return q.change(ctx, func(c *content) error {
		for i := range c.Tasks {
			if t := &c.Tasks[i]; t.ID == id {
				t.Attempts++
				t.Waits = waits
				t.Next, t.Error = q.now().Add(delay(t.Attempts)), cause
			}
		}
		return nil
	})
}

// giveUp removes a task that installs an artifact, and remembers that it failed.
func (q *Queue) giveUp(ctx context.Context, t Task) error {
	return q.change(ctx, func(c *content) error {
		c.drop(t.ID)
		c.GivenUp = slices.DeleteFunc(c.GivenUp, func(g givenUp) bool { return g.Application == t.Application })
		c.GivenUp = append(c.GivenUp, givenUp{t.Application, t.Artifact, q.now()})
		if n := len(c.GivenUp); n > maxGivenUp {
			c.GivenUp = c.GivenUp[n-maxGivenUp:]
		}
		return nil
	})
}

const maxGivenUp = 256

// delay returns how long a task waits after the given number of failed attempts: from 5 s to 30 s.
func delay(attempts int) time.Duration {
	return min(30*time.Second, 5*time.Second<<min(attempts-1, 3))
}

// wait returns how much longer a task must wait. A clock that was set back does not
// make it wait longer than the longest delay.
func (t Task) wait(now time.Time) time.Duration {
	if d := t.Next.Sub(now); d > 0 && d <= 30*time.Second {
		return d
	}
	return 0
}
