package encoder

import "sync"

// memory is a bound on bytes in use.
type memory struct {
	mu         sync.Mutex
	free       sync.Cond
	used, most int64
}

// take waits until n bytes are free, or nothing else is in use. It returns a
// function that gives them back.
func (m *memory) take(n int64) func() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.used > 0 && m.used+n > m.most {
		m.free.Wait()
	}
	m.used += n
	return func() {
		m.mu.Lock()
		m.used -= n
		m.mu.Unlock()
		m.free.Broadcast()
	}
}
