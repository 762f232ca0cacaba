package serve

import (
	"context"
	"net/http"
	"sync"
)

// Bounds of requests at work. The others wait.
const (
	maxBusy       = 8
	maxBusyOfUser = 3 // of a user other than root, and of all TCP clients together
)

// slots bound the requests at work, so that nobody takes all of them.
type slots struct {
	mu    sync.Mutex
	all   chan struct{}
	users map[int64]*share
}

// share is what one user has of the slots.
type share struct {
	busy chan struct{}
	wait int // requests that have a slot or wait for one
}

func (s *slots) init() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all, s.users = make(chan struct{}, maxBusy), map[int64]*share{}
}

// overTCP stands for the clients whom the kernel does not identify.
const overTCP = -1

// userOf is whom a request counts for.
func userOf(req *http.Request) int64 {
	if p := peer(req); p != nil {
		return int64(p.UID)
	}
	return overTCP
}

// take waits for a slot. Call release when the request has been answered.
func (s *slots) take(ctx context.Context, user int64) (release func(), err error) {
	leave := func() {}
	if user != 0 {
		mine := s.enter(user)
		leave = func() { s.leave(user) }
		if !put(ctx, mine.busy) {
			leave()
			return nil, errBusy
		}
		leave = func() { <-mine.busy; s.leave(user) }
	}
	if !put(ctx, s.all) {
		leave()
		return nil, errBusy
	}
	return func() { <-s.all; leave() }, nil
}

// put takes one of the places of a channel. It is false if ctx ends before there is one.
func put(ctx context.Context, places chan struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *slots) enter(user int64) *share {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users[user] == nil {
		s.users[user] = &share{busy: make(chan struct{}, maxBusyOfUser)}
	}
	s.users[user].wait++
	return s.users[user]
}

func (s *slots) leave(user int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users[user].wait--; s.users[user].wait == 0 {
		delete(s.users, user)
	}
}
