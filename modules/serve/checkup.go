package serve

import (
	"context"
	"sync"
	"time"

	"github.com/mender-app/mender-app/modules/view"
)

// Bounds of a checkup, which asks every sub-module.
const (
	checkupFresh = 5 * time.Minute // how long its findings are shown
	checkupLimit = time.Minute
	checkupWait  = 3 * time.Second // of a page; then it shows the last findings, or none
)

// checkup is what was found at a time.
type checkup struct {
	view.Checkup
	at time.Time
}

// checkups has the last checkup. One at a time is made.
type checkups struct {
	mu   sync.Mutex
	last *checkup
	done chan struct{} // closed at the end of the one under way; nil: there is none
}

// begin begins a checkup, unless there is a fresh one or one is under way.
func (c *checkups) begin(s *Server) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.Checkup == nil {
		c.last = &checkup{at: time.Now()}
		return
	}
	if c.done != nil || c.last != nil && time.Since(c.last.at) < checkupFresh {
		return
	}
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	if s.cache.open.Err() != nil {
		return
	}
	s.cache.working.Add(1)
	done := make(chan struct{})
	c.done = done
	go func() {
		defer s.cache.working.Done()
		ctx, cancel := context.WithTimeout(s.cache.open, checkupLimit)
		defer cancel()
		found := s.Checkup(ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		if ctx.Err() == nil {
			c.last = &checkup{found, time.Now()}
		}
		c.done = nil
		close(done)
	}()
}

// wait returns the last checkup; nil if there is none yet.
func (c *checkups) wait(ctx context.Context) *checkup {
	c.mu.Lock()
	done := c.done
	c.mu.Unlock()
	if done != nil {
		late := time.NewTimer(checkupWait)
		defer late.Stop()
		select {
		case <-done:
		case <-late.C:
		case <-ctx.Done():
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// doctor answers with the findings.
func (s *Server) doctor(q *query) (any, error) {
	s.checkups.begin(s)
	found := s.checkups.wait(q.Context())
	if found == nil {
		return nil, errBusy
	}
	return append([]view.Finding{}, found.Findings...), nil
}
