// Package serve answers programs and browsers over HTTP: the applications, their releases
// and deployments, events, and metrics. Its answers come from the same code as those of
// mender-app's commands, and it takes no lock. It changes nothing itself; if actions are
// allowed, it runs commands of mender-app. It must not know how it is reached.
package serve

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mender-app/mender-app/artifact/clip"
	"github.com/mender-app/mender-app/modules/hold"
	"github.com/mender-app/mender-app/modules/view"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// Server answers requests. Set its exported fields before use.
type Server struct {
	Store    *store.Store
	Viewer   *view.Viewer
	Clock    func() hold.Clock
	AppLocks string            // where applications say "not now"; "" for nowhere
	Disks    map[string]string // directories whose free space is told, by a name
	Version  string
	Token    string // clients must know it; "" for everybody
	Log      *slog.Logger
	Actions  *Actions // nil: the server is read-only
	// Checkup makes the checks of mender-app doctor that change nothing; nil: none.
	Checkup func(ctx context.Context) view.Checkup

	cache    cache
	checkups checkups
	streams  streams
	slots    slots
}

// patience is how long a request waits for engines and for other requests.
const patience = 12 * time.Second

// Handler returns the handler of the requests. The end of ctx ends long-running ones.
func (s *Server) Handler(ctx context.Context) http.Handler {
	s.cache.init()
	s.streams.init(ctx, s.Store)
	s.slots.init()
	if s.Actions != nil {
		s.Actions.ctx = ctx
	}
	mux := http.NewServeMux()
	for _, r := range routes() {
		mux.HandleFunc("GET "+r.pattern(), func(w http.ResponseWriter, req *http.Request) {
			if s.refused(w, req, r) {
				return
			}
			q, err := r.parse(req)
			if err != nil {
				fail(w, err)
				return
			}
			if r.stream != nil {
				r.stream(s, w, q)
				return
			}
			ctx, cancel := context.WithTimeout(req.Context(), patience)
			defer cancel()
			release, err := s.slots.take(ctx, userOf(req))
			if err != nil {
				fail(w, err)
				return
			}
			defer release()
			q.Request = req.WithContext(ctx)
			answer(w, q, r, s)
		})
	}
	for _, d := range deeds() {
		mux.HandleFunc(d.path, func(w http.ResponseWriter, req *http.Request) { s.act(w, req, d) })
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodGet && req.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			fail(w, &httpError{http.StatusMethodNotAllowed, "only GET and HEAD are answered at this path"})
			return
		}
		fail(w, &httpError{http.StatusNotFound, "there is no such path: see /openapi.json"})
	})
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		mux.ServeHTTP(w, req)
	})
}

// refused refuses a client without permission, and reports whether it did.
func (s *Server) refused(w http.ResponseWriter, req *http.Request, r route) bool {
	switch {
	case !ownHost(req.Host) && s.Token == "":
		fail(w, &httpError{http.StatusForbidden, "the name " + clip.Text(req.Host) + " does not belong to this device: use localhost, or an address"})
	case s.Token != "" && !r.open && !s.knowsToken(req):
		challenge := `Bearer realm="mender-app"`
		if r.content == htmlType { // a browser asks the person
			challenge = `Basic realm="mender-app: any user, and the token as the password", charset="UTF-8"`
		}
		w.Header().Set("WWW-Authenticate", challenge)
		fail(w, &httpError{http.StatusUnauthorized, "a token is needed: Authorization: Bearer TOKEN"})
	default:
		return false
	}
	return true
}

// ownHost reports whether a browser may mean this device: an address, or the name that
// means nothing else anywhere. A web site can point any other name, also one without a dot,
// at this device's address (DNS rebinding).
func ownHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return host == "localhost" || net.ParseIP(strings.Trim(host, "[]")) != nil
}

// knowsToken reports whether a request has the token: as a program sends it, or as a browser
// sends a password.
func (s *Server) knowsToken(req *http.Request) bool {
	token, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
	if _, password, basic := req.BasicAuth(); basic {
		token, ok = password, true
	}
	have, want := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(s.Token))
	return ok && subtle.ConstantTimeCompare(have[:], want[:]) == 1
}

// answer writes the answer of a route, or that it has not changed.
func answer(w http.ResponseWriter, q *query, r route, s *Server) {
	doc, err := r.serve(s, q)
	if err != nil {
		fail(w, err)
		return
	}
	body, isText := doc.([]byte)
	if !isText {
		if body, err = json.Marshal(doc); err != nil {
			fail(w, err)
			return
		}
		body = append(clip.JSON(body), '\n')
	}
	sum := sha256.Sum256(body)
	tag := `"` + hex.EncodeToString(sum[:12]) + `"`
	h := w.Header()
	h.Set("ETag", tag)
	h.Set("Content-Type", r.contentType())
	for name, value := range q.head {
		h.Set(name, value)
	}
	for _, known := range strings.Split(q.Header.Get("If-None-Match"), ",") {
		if known = strings.TrimSpace(known); known == "*" || strings.TrimPrefix(known, "W/") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	_, _ = w.Write(body)
}

// Problem is the answer to a request that failed.
type Problem struct {
	Error  string `json:"error"`
	Status int    `json:"status"` // as in the response header
	// Action is the action that failed.
	Action *Action `json:"action,omitempty"`
}

// httpError is an error with its status.
type httpError struct {
	status int
	text   string
}

func (e *httpError) Error() string { return e.text }

var errBusy = &httpError{http.StatusServiceUnavailable, "too many requests: try again later"}

// fail answers with an error.
func fail(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	var known *httpError
	switch {
	case errors.As(err, &known):
		status = known.status
	case errors.Is(err, store.ErrNoApp), errors.Is(err, store.ErrName), errors.Is(err, store.ErrNoRelease), errors.Is(err, store.ErrNoRecord),
		errors.Is(err, submodules.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		status = http.StatusNotFound
	case errors.Is(err, submodules.ErrRequirement):
		status = http.StatusServiceUnavailable
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.Is(err, submodules.ErrDeadline):
		status = http.StatusGatewayTimeout
	}
	body, _ := json.Marshal(Problem{Error: err.Error(), Status: status})
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(clip.JSON(body), '\n'))
}

// cache has the last answers of the sub-modules, so many clients cost as much as one.
type cache struct {
	once    sync.Once
	mu      sync.Mutex
	answers map[string]*asked
	asking  chan struct{} // its capacity bounds how many sub-modules are asked at a time
	open    context.Context
	close   context.CancelFunc
	working sync.WaitGroup
}

// asked is a question, and its answer when done is closed.
type asked struct {
	name     string
	done     chan struct{}
	stamp    string // of the application before the question
	at       time.Time
	overview *view.Overview
	err      error
}

const (
	fresh       = 2 * time.Second  // how long an answer stays good
	askLimit    = 10 * time.Second // how long a sub-module may take
	maxAsking   = 2
	maxTogether = 16 // applications asked about in one call
)

func (c *cache) init() {
	c.once.Do(func() {
		c.answers, c.asking = map[string]*asked{}, make(chan struct{}, maxAsking)
		c.open, c.close = context.WithCancel(context.Background())
	})
}

// Close ends the questions that sub-modules still work on, and returns when their processes
// and temporary files are gone. Call it before the program ends; questions after it are not
// answered.
func (s *Server) Close() {
	s.cache.init()
	s.cache.mu.Lock()
	s.cache.close()
	s.cache.mu.Unlock()
	s.cache.working.Wait()
}

// overview describes an application.
func (s *Server) overview(ctx context.Context, name string) (*view.Overview, error) {
	return s.ask(name)[0].wait(ctx)
}

// wait waits for the answer.
func (a *asked) wait(ctx context.Context) (*view.Overview, error) {
	select {
	case <-a.done:
		return a.overview, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// ask asks for the status of applications. Clients that ask at the same time, or
// shortly after, get the same answer.
func (s *Server) ask(names ...string) []*asked {
	c := &s.cache
	list, fresh := make([]*asked, len(names)), []*asked{}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, name := range names {
		stamp := s.Store.Stamp(name)
		if list[i] = c.answers[name]; list[i].good(stamp) {
			continue
		}
		list[i] = &asked{name: name, done: make(chan struct{}), stamp: stamp}
		c.answers[name] = list[i]
		fresh = append(fresh, list[i])
	}
	for part := range slices.Chunk(fresh, maxTogether) {
		if c.open.Err() == nil { // otherwise nobody waits for it any more
			c.working.Add(1)
			go func() {
				defer c.working.Done()
				s.answer(part)
			}()
		}
	}
	return list
}

// good reports whether an answer is still good or still pending.
func (a *asked) good(stamp string) bool {
	return a != nil && a.stamp == stamp && (!a.answered() || time.Since(a.at) <= fresh)
}

func (a *asked) answered() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// answer answers questions for all clients that wait for them.
func (s *Server) answer(list []*asked) {
	s.cache.asking <- struct{}{}
	defer func() { <-s.cache.asking }()
	ctx, cancel := context.WithTimeout(s.cache.open, askLimit)
	defer cancel()
	names := make([]string, len(list))
	for i, a := range list {
		names[i] = a.name
	}
	s.Viewer.Overviews(ctx, s.Store, names, func(i int, o *view.Overview, err error) {
		a := list[i]
		a.overview, a.err, a.at = o, err, time.Now()
		close(a.done)
		if errors.Is(err, store.ErrNoApp) {
			s.cache.mu.Lock()
			delete(s.cache.answers, a.name)
			s.cache.mu.Unlock()
		}
	})
}

// overviews describes all applications. If one gives no answer in time, it has what the
// store knows.
func (s *Server) overviews(ctx context.Context) ([]*view.Overview, error) {
	names, err := s.Store.Apps()
	if err != nil {
		return nil, err
	}
	list := make([]*view.Overview, len(names))
	errs := make([]error, len(names))
	limit, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	for i, a := range s.ask(names...) {
		if list[i], errs[i] = a.wait(limit); errors.Is(errs[i], context.DeadlineExceeded) {
			list[i], errs[i] = s.unanswered(names[i])
		}
	}
	found := []*view.Overview{}
	for i, o := range list {
		switch {
		case errs[i] == nil:
			found = append(found, o)
		case !errors.Is(errs[i], store.ErrNoApp): // unless it has been removed meanwhile
			return nil, errs[i]
		}
	}
	return found, nil
}

// unanswered describes an application whose sub-module gives no answer.
func (s *Server) unanswered(name string) (*view.Overview, error) {
	doc, err := s.Viewer.Document(s.Store, name)
	if err != nil {
		return nil, err
	}
	o := &view.Overview{Document: *doc, Health: view.Unknown}
	o.Components = nil
	if o.Problem == "" {
		o.Problem = "the sub-module gave no answer in " + askLimit.String()
	}
	return o, nil
}
