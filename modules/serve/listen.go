package serve

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Bounds of connections. A client that is slower than these is cut off.
const (
	maxConnections = 128 // of each listener; the others wait until one ends
	maxOfUser      = 32  // of a user other than root on a unix socket; the others are refused
	maxHeader      = 16 << 10
	headerLimit    = 5 * time.Second
	readLimit      = 15 * time.Second
	answerLimit    = 30 * time.Second
	keepAlive      = 30 * time.Second // how long a connection may wait for its next request
	leaveLimit     = 5 * time.Second  // for requests when the server ends
)

// Listener is where requests arrive.
type Listener struct {
	net.Listener
	TLS *tls.Config // nil for plain HTTP
}

// Serve answers requests until ctx ends, or until there was no request for the time
// idle; 0 means forever. It closes the listeners.
func (s *Server) Serve(ctx context.Context, idle time.Duration, listeners ...Listener) error {
	work, cancel := context.WithCancel(context.Background())
	defer cancel()
	quiet := newQuiet(idle)
	if s.Actions != nil {
		s.Actions.quiet = quiet
	}
	server := &http.Server{
		Handler: s.Handler(work), ReadHeaderTimeout: headerLimit, ReadTimeout: readLimit, WriteTimeout: answerLimit, IdleTimeout: keepAlive,
		MaxHeaderBytes: maxHeader, ConnState: quiet.state, ConnContext: withPeer,
		ErrorLog: log.New(errorLog{s.Log}, "", 0),
	}
	failed := make(chan error, len(listeners))
	for _, l := range listeners {
		limited := &limited{Listener: l.Listener, free: make(chan struct{}, maxConnections), users: map[uint32]int{}}
		go func() {
			if l.TLS != nil {
				failed <- server.Serve(tls.NewListener(limited, l.TLS))
				return
			}
			failed <- server.Serve(limited)
		}()
	}
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
	case <-quiet.over:
	}
	cancel() // ends streams and commands
	if s.Actions != nil {
		s.Actions.end()
	}
	leave, done := context.WithTimeout(context.Background(), leaveLimit)
	defer done()
	if server.Shutdown(leave) != nil {
		_ = server.Close()
	}
	s.Close()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// errorLog gets the standard library's complaints about bad clients, which nobody needs.
type errorLog struct{ log *slog.Logger }

func (l errorLog) Write(p []byte) (int, error) {
	l.log.Debug(string(p))
	return len(p), nil
}

// quiet notices when there was no request for a while.
type quiet struct {
	over  chan struct{}
	idle  time.Duration
	mu    sync.Mutex
	busy  map[any]bool // connections with a request, and actions
	timer *time.Timer
}

func newQuiet(idle time.Duration) *quiet {
	q := &quiet{over: make(chan struct{}), idle: idle, busy: map[any]bool{}}
	if idle > 0 {
		q.timer = time.AfterFunc(idle, q.elapsed)
	}
	return q
}

func (q *quiet) elapsed() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.busy) == 0 {
		q.timer = nil
		close(q.over)
	}
}

// state is called on each change of a connection's state.
func (q *quiet) state(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew, http.StateActive:
		q.begin(c)
	default:
		q.end(c)
	}
}

// begin records that something is at work.
func (q *quiet) begin(what any) { q.change(func() { q.busy[what] = true }) }

// end records that it no longer is.
func (q *quiet) end(what any) { q.change(func() { delete(q.busy, what) }) }

func (q *quiet) change(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f()
	if q.timer == nil {
		return
	}
	q.timer.Stop()
	if len(q.busy) == 0 {
		q.timer.Reset(q.idle)
	}
}

// limited is a listener with a bound on its connections, and on those of each user.
type limited struct {
	net.Listener
	free chan struct{}

	mu    sync.Mutex
	users map[uint32]int // connections of each
}

func (l *limited) Accept() (net.Conn, error) {
	l.free <- struct{}{}
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			<-l.free
			return nil, err
		}
		peer := peerOn(c)
		if peer == nil || peer.UID == 0 {
			return &connection{Conn: c, release: sync.OnceFunc(func() { <-l.free })}, nil
		}
		if !l.count(peer.UID, 1) {
			turnAway(c)
			continue
		}
		return &connection{Conn: c, release: sync.OnceFunc(func() { l.count(peer.UID, -1); <-l.free })}, nil
	}
}

// count counts a connection of a user that begins or ends. It is false if the user has too
// many.
func (l *limited) count(uid uint32, change int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.users[uid] + change
	if n > maxOfUser {
		return false
	}
	if l.users[uid] = n; n == 0 {
		delete(l.users, uid)
	}
	return true
}

// turnAway ends a connection with an answer, if that fits into the socket.
func turnAway(c net.Conn) {
	body, _ := json.Marshal(Problem{Error: fmt.Sprintf("you have %d connections open, and may have no more: close some", maxOfUser), Status: http.StatusServiceUnavailable})
	_ = c.SetWriteDeadline(time.Now().Add(time.Millisecond))
	_, _ = fmt.Fprintf(c, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s\n", len(body)+1, body)
	_ = c.Close()
}

// connection is a connection that counts towards the bound.
type connection struct {
	net.Conn
	release func()
}

func (c *connection) Close() error {
	defer c.release()
	return c.Conn.Close()
}
