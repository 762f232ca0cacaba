package serve

import (
	_ "embed" // for openapi.json
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mender-app/mender-app/modules/hold"
	"github.com/mender-app/mender-app/modules/reconcile"
	"github.com/mender-app/mender-app/modules/view"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// htmlType is the type of a page for a browser, which asks a person for the token.
const htmlType = "text/html; charset=utf-8"

// route is a path and its answer.
type route struct {
	path, summary string
	params        []param
	content       string // "" for JSON
	open          bool   // no token is needed: it reveals nothing about the device
	answer        any    // a value of the type that serve returns, for the API description
	serve         func(s *Server, q *query) (any, error)
	stream        func(s *Server, w http.ResponseWriter, q *query) // instead of serve
}

func (r route) contentType() string {
	if r.content == "" {
		return "application/json"
	}
	return r.content
}

// pattern is the path for the standard library's ServeMux.
func (r route) pattern() string {
	if r.path == "/" {
		return "/{$}"
	}
	return r.path
}

// param is a parameter in the query of a URL.
type param struct {
	name, about string
	list        []string // it is a list of these words
	most        int      // if not 0, it is a number from least to most
	least       int
	usual       int
	time        bool // it is a time
}

// Bounds of numbers in queries.
const (
	usualPage = 20
	maxPage   = 200
	usualTail = 100
	maxTail   = 1000
	maxNumber = 1<<31 - 1
	maxLog    = 1 << 20 // bytes of the lines of services in one answer
)

//go:embed openapi.json
var openAPI []byte

// routes are all routes.
func routes() []route {
	return []route{
		{path: "/", summary: "A page for a browser with all of this", content: htmlType, serve: homePage},
		{path: "/apps/{app}/deployments/{number}", summary: "A page for a browser with one deployment and its log", content: htmlType, serve: deploymentPage},
		{path: "/apps/{app}/log", summary: "A page for a browser with the newest lines that the services of an application wrote", content: htmlType, serve: logPage},
		{path: "/v1/apps", summary: "The applications, as mender-app status --json prints them", answer: []*view.Overview{},
			serve: func(s *Server, q *query) (any, error) { return s.overviews(q.Context()) }},
		{path: "/v1/apps/{app}", summary: "One application, as mender-app status --json prints it", answer: &view.Overview{}, serve: (*Server).app},
		{path: "/v1/apps/{app}/releases", summary: "Its releases on the device, as mender-app releases --json prints them", answer: []view.StoredRelease{},
			serve: func(s *Server, q *query) (any, error) { return view.Releases(s.Store, q.PathValue("app")) }},
		{path: "/v1/apps/{app}/deployments", summary: "Its deployments that have ended, the newest first, as mender-app history --json prints them. The header Link names the next page", answer: []store.Record{},
			params: []param{
				{name: "limit", about: "maximum number of deployments", least: 1, most: maxPage, usual: usualPage},
				{name: "status", about: "only those with one of these, separated by commas", list: store.Statuses()},
				{name: "since", about: "only those that ended at this time or later: a date, a time, or how long ago it was (36h, 7d)", time: true},
				{name: "until", about: "only those that ended before this time", time: true},
				{name: "cursor", about: "only those with a smaller number: the page after one that ended with it", most: maxNumber},
			}, serve: (*Server).deployments},
		{path: "/v1/apps/{app}/deployments/{number}", summary: "One deployment, as mender-app history APP NUMBER --json prints it", answer: store.Record{},
			serve: func(s *Server, q *query) (any, error) {
				n, err := q.number()
				if err != nil {
					return nil, err
				}
				return s.Store.Deployment(q.PathValue("app"), n)
			}},
		{path: "/v1/apps/{app}/deployments/{number}/logs", summary: "The log of a deployment, including the open one; for the newest 20", answer: []store.LogEntry{}, serve: (*Server).deploymentLog},
		{path: "/v1/apps/{app}/logs", summary: "The newest lines that the services of an application wrote, from the engine", answer: []submodules.LogLine{},
			params: []param{
				{name: "service", about: "only this service"},
				{name: "tail", about: "number of lines of each container", most: maxTail, usual: usualTail},
			}, serve: (*Server).logs},
		{path: "/v1/events", summary: "New events, as server-sent events; the header Last-Event-ID asks for the events since then", content: "text/event-stream", answer: view.Event{},
			params: []param{{name: "app", about: "only this application"}}, stream: (*Server).events},
		{path: "/v1/doctor", summary: "What mender-app doctor --json prints, but for the checks that need rights which a server does not have: free space, durable writes, the sandbox", answer: []view.Finding{}, serve: (*Server).doctor},
		{path: "/v1/queue", summary: "Work under way, and what blocks updates", answer: Queue{}, serve: (*Server).queue},
		{path: "/v1/actions", summary: "The last requested actions since the server started, the newest first", answer: []Action{},
			serve: func(s *Server, _ *query) (any, error) { return s.Actions.copies(), nil }},
		{path: "/v1/actions/{number}", summary: "One action", answer: Action{}, serve: (*Server).action},
		{path: "/healthz", summary: "Whether the store can be read", answer: Health{}, open: true, serve: (*Server).healthz},
		{path: "/metrics", summary: "Metrics for Prometheus", content: "text/plain; version=0.0.4; charset=utf-8", serve: func(s *Server, q *query) (any, error) { return s.Metrics(q.Context()) }},
		{path: "/openapi.json", summary: "This description", open: true, answer: map[string]any{}, serve: func(*Server, *query) (any, error) { return openAPI, nil }},
	}
}

// query is a request with checked parameters.
type query struct {
	*http.Request
	values url.Values
	params []param
	head   map[string]string // for the answer
}

// parse checks the parameters of a request.
func (r route) parse(req *http.Request) (*query, error) {
	wrong := func(format string, args ...any) error {
		return &httpError{http.StatusBadRequest, fmt.Sprintf(format, args...)}
	}
	values, err := url.ParseQuery(req.URL.RawQuery)
	if err != nil {
		return nil, wrong("the query cannot be read: %v", err)
	}
	for name, list := range values {
		i := slices.IndexFunc(r.params, func(p param) bool { return p.name == name })
		if i < 0 {
			return nil, wrong("there is no parameter %q: see /openapi.json", name)
		}
		if len(list) > 1 {
			return nil, wrong("%s is there more than once", name)
		}
		if err := r.params[i].check(list[0]); err != nil {
			return nil, wrong("%s: %v", name, err)
		}
	}
	return &query{Request: req, values: values, params: r.params, head: map[string]string{}}, nil
}

// check returns an error if a text cannot be the value of a parameter.
func (p param) check(text string) error {
	switch {
	case p.time:
		_, err := view.ParseTime(text)
		return err
	case p.most > 0:
		if n, err := strconv.Atoi(text); err != nil || n < p.least || n > p.most {
			return fmt.Errorf("%q is not a number from %d to %d", text, p.least, p.most)
		}
	case p.list != nil:
		for word := range strings.SplitSeq(text, ",") {
			if !slices.Contains(p.list, word) {
				return fmt.Errorf("%q is not one of %v", word, p.list)
			}
		}
	}
	return nil
}

// int is the value of a parameter that is a number.
func (q *query) int(name string) int {
	if n, err := strconv.Atoi(q.values.Get(name)); err == nil {
		return n
	}
	return q.params[slices.IndexFunc(q.params, func(p param) bool { return p.name == name })].usual
}

// time is the value of a parameter that is a time; zero without it.
func (q *query) time(name string) (t time.Time) {
	if text := q.values.Get(name); text != "" {
		t, _ = view.ParseTime(text) // checked before
	}
	return t
}

// number is the number of a deployment in the path.
func (q *query) number() (int64, error) {
	n, err := strconv.ParseInt(q.PathValue("number"), 10, 64)
	if err != nil || n < 1 {
		return 0, &httpError{http.StatusBadRequest, fmt.Sprintf("%q is not the number of a deployment", q.PathValue("number"))}
	}
	return n, nil
}

func (s *Server) app(q *query) (any, error) {
	name := q.PathValue("app")
	if _, err := view.Read(s.Store, name); err != nil {
		return nil, err
	}
	return s.overview(q.Context(), name)
}

func (s *Server) deployments(q *query) (any, error) {
	app := q.PathValue("app")
	choice := store.Query{Since: q.time("since"), Until: q.time("until"), Before: int64(q.int("cursor")), Limit: q.int("limit")}
	if status := q.values.Get("status"); status != "" {
		choice.Statuses = strings.Split(status, ",")
	}
	page, more, err := s.Store.Deployments(app, choice)
	if err != nil {
		return nil, err
	}
	if len(page) == 0 {
		if _, found, err := s.Store.Last(app); err != nil || !found {
			if _, err := view.Read(s.Store, app); err != nil {
				return nil, err
			}
		}
	}
	if more > 0 {
		next := url.Values{}
		for name := range q.values {
			next.Set(name, q.values.Get(name))
		}
		next.Set("cursor", strconv.FormatInt(more, 10))
		q.head["Link"] = "<" + q.URL.EscapedPath() + "?" + next.Encode() + `>; rel="next"`
	}
	return page, nil
}

func (s *Server) deploymentLog(q *query) (any, error) {
	n, err := q.number()
	if err != nil {
		return nil, err
	}
	list := []store.LogEntry{}
	err = s.Store.DeploymentLog(q.PathValue("app"), n, func(l store.LogEntry) error {
		list = append(list, l)
		return nil
	})
	return list, err
}

func (s *Server) logs(q *query) (any, error) {
	return s.newestLines(q, q.values.Get("service"), q.int("tail"))
}

// newestLines are the newest lines of an application's services, or of one.
func (s *Server) newestLines(q *query, service string, tail int) ([]submodules.LogLine, error) {
	app, err := view.Read(s.Store, q.PathValue("app"))
	if err != nil {
		return nil, err
	}
	list, size := []submodules.LogLine{}, 0
	err = s.Viewer.Logs(q.Context(), app, service, tail, false, func(l submodules.LogLine) error {
		list, size = append(list, l), size+len(l.Text)
		for size > maxLog { // keep the newest lines
			size -= len(list[0].Text)
			list = list[1:]
		}
		return nil
	})
	return list, err
}

// Queue is the work under way on the device, and what blocks updates.
type Queue struct {
	Hold hold.Report `json:"hold"` // as mender-app hold --show --json prints it
	// Deployments are the open ones.
	Deployments []Open `json:"deployments"`
	// Tasks are those that wait for mender-app reconcile, as mender-app queue --json
	// prints them.
	Tasks []reconcile.Task `json:"tasks"`
	// Locks are the applications that refuse updates for now.
	Locks []Lock `json:"locks"`
	// Staged are the staged artifacts, as mender-app stage list --json prints them without
	// the results of a check.
	Staged []view.Staged `json:"staged"`
}

// Open is an open deployment.
type Open struct {
	Application string            `json:"application"`
	State       string            `json:"state"` // of the application
	Deployment  *store.Deployment `json:"deployment"`
}

// Lock is an application that refuses updates for now.
type Lock struct {
	Application string `json:"application"`
	Reason      string `json:"reason"`
}

func (s *Server) queue(*query) (any, error) { return s.readQueue() }

func (s *Server) readQueue() (*Queue, error) {
	held, err := hold.Current(s.Store, s.Clock())
	if err != nil {
		return nil, err
	}
	out := &Queue{Hold: hold.ReportOf(held), Deployments: []Open{}, Locks: []Lock{}, Staged: []view.Staged{}}
	tasks, err := (&reconcile.Queue{Store: s.Store}).List()
	if err != nil {
		return nil, err
	}
	out.Tasks = append([]reconcile.Task{}, tasks...)
	if s.Viewer.Staging != nil {
		if out.Staged, err = view.ListStaged(s.Store, s.Viewer.Staging, ""); err != nil {
			return nil, err
		}
	}
	names, err := s.Store.Apps()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		a, err := view.Read(s.Store, name)
		if err != nil {
			return nil, err
		}
		if a.Deployment != nil {
			out.Deployments = append(out.Deployments, Open{name, a.State, a.Deployment})
		}
		if err := hold.CheckApp(s.AppLocks, name); err != nil {
			out.Locks = append(out.Locks, Lock{name, err.Error()})
		}
	}
	return out, nil
}

// Health is the answer of a working server.
type Health struct {
	OK      bool   `json:"ok"`
	Version string `json:"version"`
}

func (s *Server) healthz(*query) (any, error) {
	if _, err := s.Store.Apps(); err != nil {
		return nil, &httpError{http.StatusServiceUnavailable, err.Error()}
	}
	return Health{true, s.Version}, nil
}
