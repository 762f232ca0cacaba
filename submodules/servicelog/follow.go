package servicelog

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// Source is an instance whose log is read.
type Source struct {
	ID, Name, Service string
	Running           bool
}

// Reader reads the logs of several instances. Memory is bounded: a few lines for
// each.
type Reader struct {
	Open Open
	Tail int // how many of the newest lines of each instance; 0 for none
	// List returns the instances. It is called again while they are followed.
	List func(ctx context.Context) ([]Source, error)
	// Each takes the lines, one at a time. Its error ends the reading.
	Each func(s Source, l Line) error
	// Failed is called for a log that cannot be read. The others are still read.
	Failed func(s Source, err error)

	mu      sync.Mutex
	last    map[string]time.Time // of each instance, the last line's time
	changed map[string]bool      // instances that may have unread lines
}

// followPause is the time between two calls of List for new instances.
const followPause = time.Second

// Print passes on the newest lines of all instances, ordered by time.
func (r *Reader) Print(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	list, err := r.List(ctx)
	if err != nil {
		return err
	}
	r.last, r.changed = map[string]time.Time{}, map[string]bool{}
	var heads []*head
	for _, s := range list {
		r.changed[s.ID] = s.Running
		if r.Tail == 0 {
			r.last[s.ID] = time.Now()
			continue
		}
		h := &head{source: s, lines: make(chan Line)}
		heads = append(heads, h)
		go func() {
			defer close(h.lines)
			h.err = Read(ctx, r.Open, s.ID, Options{Tail: r.Tail}, func(l Line) {
				select {
				case h.lines <- l:
				case <-ctx.Done():
				}
			})
		}()
	}
	for _, h := range heads {
		r.next(h)
	}
	for {
		heads = slices.DeleteFunc(heads, func(h *head) bool { return h.ended })
		if len(heads) == 0 {
			return ctx.Err()
		}
		first := slices.MinFunc(heads, func(a, b *head) int { return a.line.At.Compare(b.line.At) })
		if err := r.pass(first.source, first.line); err != nil {
			return err
		}
		r.next(first)
	}
}

// head is the next line of an instance.
type head struct {
	source Source
	lines  chan Line
	line   Line
	ended  bool
	err    error // why it has ended; nil for the end of the log
}

// next reads the next line of an instance.
func (r *Reader) next(h *head) {
	line, more := <-h.lines
	h.line, h.ended = line, !more
	if h.ended && h.err != nil {
		r.Failed(h.source, h.err)
	}
}

// Follow does what Print does, then passes on lines as they are written, including
// those of later instances, until ctx ends.
func (r *Reader) Follow(ctx context.Context) error {
	if err := r.Print(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var readers sync.WaitGroup
	defer readers.Wait()
	defer cancel(nil)
	busy := map[string]bool{} // instances that a goroutine reads
	ended := make(chan string)
	for {
		list, err := r.List(ctx)
		if err != nil {
			return cmp.Or(context.Cause(ctx), err)
		}
		for _, s := range list {
			_, known := r.changed[s.ID]
			if busy[s.ID] || known && !s.Running && !r.changed[s.ID] {
				continue
			}
			r.changed[s.ID], busy[s.ID] = s.Running, true
			readers.Go(func() {
				if err := r.follow(ctx, s); err != nil {
					cancel(err)
				}
				select {
				case ended <- s.ID:
				case <-ctx.Done():
				}
			})
		}
		pause := time.After(followPause)
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case id := <-ended:
				delete(busy, id)
			case <-pause:
				waiting = false
			}
		}
	}
}

// follow passes on the lines an instance writes after its last known line, until it
// ends. Neither a vanished instance nor an unreadable log is an error.
func (r *Reader) follow(ctx context.Context, s Source) error {
	o := Options{Follow: true}
	r.mu.Lock()
	if last, known := r.last[s.ID]; known {
		o.Since = last.Add(1) // nanosecond
	}
	r.mu.Unlock()
	var failed error
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_ = Read(ctx, r.Open, s.ID, o, func(l Line) {
		if failed != nil || ctx.Err() != nil {
			return
		}
		if failed = r.pass(s, l); failed != nil {
			cancel()
		}
	})
	return failed
}

// pass passes a line on, and remembers its time.
func (r *Reader) pass(s Source, l Line) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last[s.ID] = l.At
	if l.At.IsZero() {
		r.last[s.ID] = time.Now()
	}
	return r.Each(s, l)
}
