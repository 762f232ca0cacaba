package enginelog

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/docker/docker/api/types/container"
)

// Source is a container whose log is read.
type Source struct {
	ID, Name, Service string
	Running           bool
}

// Reader reads the logs of several containers. Memory is bounded: a few lines for
// each container.
type Reader struct {
	Client Client
	Tail   int // how many lines of each container, the newest; 0 for none
	// List returns the containers. It is asked again while they are followed.
	List func(ctx context.Context) ([]Source, error)
	// Each takes the lines, one at a time. Its error ends the reading.
	Each func(s Source, l Line) error
	// Failed is told of a log that cannot be read. The others are read.
	Failed func(s Source, err error)

	mu      sync.Mutex
	last    map[string]time.Time // of each container, the last line's time
	changed map[string]bool      // containers that may have lines that were not read
}

// followPause is the time between two questions for new containers.
const followPause = time.Second

// Print passes on the newest lines of all containers, in the order of time.
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
			h.err = Read(ctx, r.Client, s.ID, container.LogsOptions{Tail: strconv.Itoa(r.Tail)}, func(l Line) {
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

// head is the next line of a container.
type head struct {
	source Source
	lines  chan Line
	line   Line
	ended  bool
	err    error // why it has ended; nil for the end of the log
}

// next reads the next line of a container.
func (r *Reader) next(h *head) {
	line, more := <-h.lines
	h.line, h.ended = line, !more
	if h.ended && h.err != nil {
		r.Failed(h.source, h.err)
	}
}

// Follow does what Print does, and then passes on lines as they are written, of
// containers that appear later too, until ctx ends.
func (r *Reader) Follow(ctx context.Context) error {
	if err := r.Print(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var readers sync.WaitGroup
	defer readers.Wait()
	defer cancel(nil)
	busy := map[string]bool{} // containers that a goroutine reads
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

// follow passes on what a container writes after the last line of it, until it ends.
// A container that is gone is no error, and neither is one whose log cannot be read.
func (r *Reader) follow(ctx context.Context, s Source) error {
	o := container.LogsOptions{Follow: true}
	r.mu.Lock()
	last, known := r.last[s.ID]
	r.mu.Unlock()
	if known {
		last = last.Add(1) // nanosecond
		o.Since = fmt.Sprintf("%d.%09d", last.Unix(), last.Nanosecond())
	}
	var failed error
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_ = Read(ctx, r.Client, s.ID, o, func(l Line) {
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
