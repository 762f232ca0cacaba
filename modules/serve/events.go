package serve

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mender-app/mender-app/artifact/clip"
	"github.com/mender-app/mender-app/modules/view"
	"github.com/mender-app/mender-app/store"
)

// Bounds of streams of events.
const (
	maxStreams       = 64               // at a time
	maxStreamsOfUser = 16               // of those, of one user other than root on a unix socket
	backlog          = 256              // events waiting for a slow reader; beyond this its stream ends
	writeLimit       = 10 * time.Second // for one write to a reader
	heartbeat        = 15 * time.Second // a comment is sent this often, to notice a reader that is gone
	maxCatchUp       = 1000             // missed events that a returning reader gets
)

// streams passes events on to readers. One goroutine watches the store, only while
// there are readers.
type streams struct {
	ctx     context.Context
	store   *store.Store
	mu      sync.Mutex
	readers map[chan view.Event]int64 // with their users
	stop    context.CancelFunc
}

func (st *streams) init(ctx context.Context, s *store.Store) {
	st.ctx, st.store, st.readers = ctx, s, map[chan view.Event]int64{}
}

// join adds a reader. Its channel is closed if it is too slow, or the store cannot be
// read.
func (st *streams) join(user int64) (chan view.Event, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	same := 0
	for _, other := range st.readers {
		if other == user {
			same++
		}
	}
	if len(st.readers) >= maxStreams || user > 0 && same >= maxStreamsOfUser {
		return nil, errBusy
	}
	if len(st.readers) == 0 {
		f := &view.Follower{Store: st.store}
		if err := f.Skip(); err != nil {
			return nil, err
		}
		ctx, cancel := context.WithCancel(st.ctx)
		st.stop = cancel
		go st.follow(ctx, f)
	}
	events := make(chan view.Event, backlog)
	st.readers[events] = user
	return events, nil
}

func (st *streams) leave(events chan view.Event) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.drop(events)
}

// drop removes a reader; the watch stops with the last one.
func (st *streams) drop(events chan view.Event) {
	if _, ok := st.readers[events]; !ok {
		return
	}
	delete(st.readers, events)
	close(events)
	if len(st.readers) == 0 {
		st.stop()
	}
}

func (st *streams) follow(ctx context.Context, f *view.Follower) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(view.Pause):
		}
		list, err := f.Next()
		st.mu.Lock()
		if ctx.Err() != nil { // a new watch has begun
			st.mu.Unlock()
			return
		}
		for events := range st.readers {
			if err != nil {
				st.drop(events)
				continue
			}
			for _, e := range list {
				select {
				case events <- e:
					continue
				default:
					st.drop(events)
				}
				break
			}
		}
		st.mu.Unlock()
	}
}

// eventID names an event in a stream: its time, and a hash of all of it.
func eventID(e view.Event) string {
	text, _ := json.Marshal(e)
	sum := sha256.Sum256(text)
	return fmt.Sprintf("%d-%x", e.At.UnixNano(), sum[:4])
}

// missed returns what happened after the event with an ID.
func (s *Server) missed(id string) ([]view.Event, error) {
	text, _, ok := strings.Cut(id, "-")
	at, err := strconv.ParseInt(text, 10, 64)
	if !ok || err != nil {
		return nil, nil // not one of our IDs
	}
	list, err := view.EventsSince(s.Store, time.Unix(0, at-1))
	for i, e := range list {
		if eventID(e) == id {
			list = list[i+1:]
			break
		}
	}
	return list[max(0, len(list)-maxCatchUp):], err
}

// events answers with a stream that ends with the reader or the server.
func (s *Server) events(w http.ResponseWriter, q *query) {
	out := http.NewResponseController(w)
	live, err := s.streams.join(userOf(q.Request))
	if err != nil {
		fail(w, err)
		return
	}
	defer s.streams.leave(live)
	list, err := s.missed(q.Header.Get("Last-Event-ID"))
	if err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	_ = out.SetReadDeadline(time.Time{}) // the request's deadline would end it
	send := func(text string) bool {
		_ = out.SetWriteDeadline(time.Now().Add(writeLimit))
		_, err := w.Write([]byte(text))
		return err == nil && out.Flush() == nil
	}
	app := q.values.Get("app")
	sent := map[string]bool{} // missed events: they may come again
	event := func(e view.Event) string {
		id := eventID(e)
		if sent[id] || app != "" && e.Application != app {
			return ""
		}
		text, err := json.Marshal(e)
		if err != nil {
			return ""
		}
		return "id: " + id + "\ndata: " + string(clip.JSON(text)) + "\n\n"
	}
	text := "retry: 2000\n\n"
	for _, e := range list {
		text += event(e)
		sent[eventID(e)] = true
	}
	if !send(text) || q.Method == http.MethodHead {
		return
	}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		text := ":\n\n"
		select {
		case <-q.Context().Done():
			return
		case <-s.streams.ctx.Done():
			return
		case e, ok := <-live:
			if !ok {
				return
			}
			if text = event(e); text == "" {
				continue
			}
		case <-beat.C:
		}
		if !send(text) {
			return
		}
	}
}
