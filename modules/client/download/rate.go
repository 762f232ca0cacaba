package download

import (
	"context"
	"time"
)

// pace spreads the bytes of a download over time.
type pace struct {
	rate int64     // bytes a second; 0 means no bound
	due  time.Time // when the bytes so far may have arrived
}

// wait returns when n more bytes may have arrived. A pause in which nothing came is not
// caught up.
func (p *pace) wait(ctx context.Context, n int) error {
	if p.rate <= 0 {
		return nil
	}
	if now := time.Now(); p.due.Before(now) {
		p.due = now
	}
	p.due = p.due.Add(time.Duration(float64(n) / float64(p.rate) * float64(time.Second)))
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(time.Until(p.due)):
		return nil
	}
}
