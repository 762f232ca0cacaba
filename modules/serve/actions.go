package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mender-app/mender-app/artifact/clip"
	"github.com/mender-app/mender-app/artifact/input"
	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/artifact/strictjson"
)

// Bounds of actions.
const (
	maxActions    = 4       // at work at a time, and one abort beside them
	maxOfOne      = 3       // of those, of one user who is not root: another one finds room
	maxRemembered = 50      // ended actions
	maxBody       = 8 << 10 // bytes of a request
	maxText       = 1 << 10 // bytes of one text in a request
	actionWait    = 5 * time.Second
	actionLimit   = 4 * time.Hour // a call of the update module may take so long
	lookLimit     = 15 * time.Minute
)

// Action is a change that a program requested, with its result.
type Action struct {
	Number int64  `json:"number"` // counts from 1 since the server started
	Action string `json:"action"`
	// Application is the application to change; "" for all.
	Application string     `json:"application,omitempty"`
	User        string     `json:"user,omitempty"` // who requested it
	Begun       time.Time  `json:"begun"`
	Ended       *time.Time `json:"ended,omitempty"` // absent while it is at work
	// ExitCode is the command's; absent while it is at work.
	ExitCode *int            `json:"exit_code,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"` // the command's output with --json
	Error    string          `json:"error,omitempty"`

	uid  uint32 // who requested it
	done chan struct{}
}

// Order is the body of a request for an action. A field that the action does not use is
// refused.
type Order struct {
	Release string       `json:"release,omitempty"` // of rollback: RELEASE of mender-app rollback APP RELEASE
	Source  input.Source `json:"source,omitempty"`  // of stage and check: an artifact's URL, or its absolute path on the device
	Load    bool         `json:"load,omitempty"`    // of stage: also load its images
	Staged  string       `json:"staged,omitempty"`  // of check: an application, instead of a source
	Version string       `json:"version,omitempty"` // of check: of the staged artifact
	Reason  string       `json:"reason,omitempty"`  // of hold and unhold
	For     string       `json:"for,omitempty"`     // of hold: how long, such as 2h30m
}

// texts are the fields with texts, by their names.
func (o Order) texts() map[string]string {
	texts := map[string]string{}
	for v, i := reflect.ValueOf(o), 0; i < v.NumField(); i++ {
		if v.Field(i).Kind() == reflect.String {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			texts[name] = v.Field(i).String()
		}
	}
	return texts
}

// Command is a command of mender-app that an action runs.
type Command struct {
	Verb    string
	Options []string
	Words   []string // what comes from the request; none of them is an option
	User    string   // on whose behalf; "" if unknown
	// Source is what the command reads from standard input, with --source-stdin: everybody
	// on the device sees the arguments of a program. "": nothing.
	Source input.Source
}

// Args are the arguments of the command, with JSON as its output.
func (c Command) Args() []string {
	options := c.Options
	if c.Source != "" {
		options = append(slices.Clone(options), "--source-stdin")
	}
	return slices.Concat([]string{c.Verb, "--json"}, options, []string{"--"}, c.Words)
}

// Ran is the result of a command.
type Ran struct {
	Out   []byte // the JSON that it printed
	Code  int
	Error string // why it failed, if Code is not 0
}

// Actions are the changes that may be made through the server.
type Actions struct {
	// Group is the group whose members may request actions, besides root.
	Group uint32
	// Run runs a command with --json until it ends, and stops it if ctx ends.
	Run func(ctx context.Context, c Command) (Ran, error)
	// UserName is the name of a user.
	UserName func(uid uint32) string

	mu    sync.Mutex
	over  bool // no new actions begin
	last  int64
	list  []*Action // the newest last
	work  sync.WaitGroup
	ctx   context.Context // stops running commands
	quiet *quiet
}

// deed is an action that can be requested.
type deed struct {
	path, summary string
	fields        []string // of Order
	limit         time.Duration
	command       func(app string, o Order) (Command, error)
}

func (d deed) name() string { return d.path[strings.LastIndexByte(d.path, '/')+1:] }

const abort = "abort"

// deeds are all actions.
func deeds() []deed {
	// onApp is a command with an application as its first word.
	onApp := func(verb string) func(string, Order) (Command, error) {
		return func(app string, o Order) (Command, error) {
			return Command{Verb: verb, Words: append([]string{app}, given("", o.Release)...)}, nil
		}
	}
	return []deed{
		{"/v1/apps/{app}/stop", "Stop an application, as mender-app stop does", nil, actionLimit, onApp("stop")},
		{"/v1/apps/{app}/start", "Start a stopped application, as mender-app start does", nil, actionLimit, onApp("start")},
		{"/v1/apps/{app}/rollback", "Go back to a kept release, as mender-app rollback APP [RELEASE] does", []string{"release"}, actionLimit, onApp("rollback")},
		{"/v1/apps/{app}/" + abort, "End an open update and go back to the previous release, as mender-app abort APP does", nil, actionLimit, onApp(abort)},
		{"/v1/stage", "Put an artifact onto the device, as mender-app stage does", []string{"source", "load"}, actionLimit,
			func(_ string, o Order) (Command, error) {
				c := Command{Verb: "stage", Source: o.Source}
				if o.Load {
					c.Options = []string{"--load"}
				}
				return c, checkSource(o.Source)
			}},
		{"/v1/check", "Say whether an artifact would be installed, as mender-app check does", []string{"source", "staged", "version"}, lookLimit, checkCommand},
		{"/v1/hold", "Keep updates away, as mender-app hold does", []string{"reason", "for"}, lookLimit,
			func(_ string, o Order) (Command, error) {
				return Command{Verb: "hold", Options: append(given("--reason=", o.Reason), given("--for=", o.For)...)}, nil
			}},
		{"/v1/unhold", "Let updates happen again, as mender-app hold release does", []string{"reason"}, lookLimit,
			func(_ string, o Order) (Command, error) {
				return Command{Verb: "unhold", Options: given("--reason=", o.Reason)}, nil
			}},
	}
}

// given returns a list of the text after its prefix, if there is one.
func given(prefix, text string) []string {
	if text == "" {
		return nil
	}
	return []string{prefix + text}
}

// checkSource refuses what is neither a URL nor the absolute path of a file. The command
// looks again when it has opened the file: the path may lead to something else by then.
func checkSource(source input.Source) error {
	path := source.Reveal()
	if strings.HasPrefix(path, "https://") || strings.HasPrefix(path, "http://") {
		return nil
	}
	if st, err := os.Stat(path); !filepath.IsAbs(path) || err != nil || !st.Mode().IsRegular() {
		return errors.New("source is neither a URL nor the absolute path of a file")
	}
	return nil
}

func checkCommand(_ string, o Order) (Command, error) {
	c := Command{Verb: "check"}
	switch {
	case (o.Source == "") == (o.Staged == ""):
		return c, errors.New("give either source or staged")
	case o.Source != "" && o.Version != "":
		return c, errors.New("version goes with staged")
	case o.Source != "":
		c.Source = o.Source
		return c, checkSource(o.Source)
	}
	c.Options, c.Words = []string{"--staged=" + o.Staged}, given("", o.Version)
	return c, names.Check(o.Staged)
}

// read reads the body of a request.
func (d deed) read(req *http.Request) (o Order, err error) {
	kind, _, _ := mime.ParseMediaType(req.Header.Get("Content-Type"))
	if kind != "application/json" { // a page from another site cannot send this
		return o, &httpError{http.StatusUnsupportedMediaType, "send JSON, with Content-Type: application/json"}
	}
	wrong := func(format string, args ...any) error {
		return &httpError{http.StatusBadRequest, fmt.Sprintf(format, args...)}
	}
	if req.URL.RawQuery != "" {
		return o, wrong("an action takes no parameters in its URL: send JSON")
	}
	body, err := io.ReadAll(io.LimitReader(req.Body, maxBody+1))
	if err != nil {
		return o, wrong("the request cannot be read: %v", err)
	}
	if len(body) > maxBody {
		return o, &httpError{http.StatusRequestEntityTooLarge, fmt.Sprintf("the request is longer than %d bytes", maxBody)}
	}
	var fields map[string]json.RawMessage
	if err := strictjson.Unmarshal(body, &fields); err != nil || fields == nil {
		return o, wrong("the request is not a JSON object with each field once: %v", err)
	}
	for name, value := range fields {
		if !slices.Contains(d.fields, name) {
			return o, wrong("%s has no field %q: see /openapi.json", d.name(), name)
		}
		if string(value) == "null" {
			return o, wrong("%s is null: leave it out", name)
		}
	}
	if err := strictjson.Unmarshal(body, &o); err != nil {
		return o, wrong("a field of the request is of the wrong type: %v", err)
	}
	// What is looked at is what is used, not the document that it came from.
	for name, text := range o.texts() {
		if len(text) > maxText || !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) || strings.HasPrefix(text, "-") {
			return o, wrong("%s is longer than %d bytes, begins with -, or has characters that cannot be printed", name, maxText)
		}
	}
	return o, nil
}

// permitted returns why any action would be refused; nil if actions are permitted.
func (s *Server) permitted(req *http.Request) error {
	deny := func(text string) error { return &httpError{http.StatusForbidden, text} }
	p := peer(req)
	switch {
	case s.Actions == nil:
		return deny("this server is read-only: allow changes with mender-app serve --allow-actions")
	case p == nil:
		return deny("actions are accepted only over the unix socket")
	case !p.In(s.Actions.Group):
		return deny("only root and the socket's group may request actions")
	}
	return http.NewCrossOriginProtection().Check(req)
}

// act handles a request for an action.
func (s *Server) act(w http.ResponseWriter, req *http.Request, d deed) {
	if s.refused(w, req, route{}) {
		return
	}
	if req.Method != http.MethodPost {
		w.Header().Set("Allow", "POST")
		fail(w, &httpError{http.StatusMethodNotAllowed, "request an action with POST"})
		return
	}
	if err := s.permitted(req); err != nil {
		var known *httpError
		if !errors.As(err, &known) {
			err = &httpError{http.StatusForbidden, err.Error()}
		}
		fail(w, err)
		return
	}
	order, err := d.read(req)
	if err != nil {
		fail(w, err)
		return
	}
	app := req.PathValue("app")
	if app != "" {
		err = names.Check(app)
	}
	command, wrong := d.command(app, order)
	if err = cmp.Or(err, wrong); err != nil {
		fail(w, &httpError{http.StatusBadRequest, err.Error()})
		return
	}
	command.User = s.Actions.UserName(peer(req).UID)
	a, err := s.Actions.begin(Action{Action: d.name(), Application: cmp.Or(app, order.Staged), uid: peer(req).UID}, command, d.limit)
	if err != nil {
		fail(w, err)
		return
	}
	select {
	case <-a.done:
	case <-time.After(actionWait):
	case <-req.Context().Done(): // the action continues
	}
	s.Actions.reply(w, a)
}

// begin starts an action, which may take so long. An abort always has room, because it ends
// what others wait for.
func (x *Actions) begin(a Action, c Command, limit time.Duration) (*Action, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	working, alike, same := 0, 0, 0
	for _, other := range x.list {
		if other.Ended == nil {
			working++
			if (other.Action == abort) == (a.Action == abort) {
				alike++
				if other.uid == a.uid {
					same++
				}
			}
		}
	}
	room := maxActions
	if a.Action == abort {
		room = 1
	}
	if x.over || alike >= room {
		return nil, &httpError{http.StatusServiceUnavailable, "too many actions are at work: see /v1/actions, and try again later"}
	}
	if a.uid != 0 && same >= maxOfOne {
		return nil, &httpError{http.StatusServiceUnavailable, fmt.Sprintf("%d of your actions are at work, and you may have no more: see /v1/actions, and try again later", same)}
	}
	x.last++
	a.Number, a.Begun, a.User, a.done = x.last, time.Now().UTC(), c.User, make(chan struct{})
	x.list = append(x.list, &a)
	if ended := len(x.list) - working - 1; ended > maxRemembered {
		i := slices.IndexFunc(x.list, func(o *Action) bool { return o.Ended != nil })
		x.list = slices.Delete(x.list, i, i+1)
	}
	x.quiet.begin(&a)
	x.work.Go(func() {
		defer x.quiet.end(&a)
		ctx, cancel := context.WithTimeout(x.ctx, limit)
		defer cancel()
		ran, err := x.Run(ctx, c)
		if ctx.Err() != nil && x.ctx.Err() == nil {
			ran.Error = fmt.Sprintf("it was stopped after %v; %s", limit, ran.Error)
		}
		x.finish(&a, ran, err)
	})
	return &a, nil
}

// finish records the result of an action.
func (x *Actions) finish(a *Action, ran Ran, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := time.Now().UTC()
	a.Ended, a.ExitCode = &now, &ran.Code
	if json.Valid(ran.Out) {
		a.Result = ran.Out
	}
	switch {
	case err != nil:
		a.Error = err.Error()
	case ran.Code != 0:
		a.Error = cmp.Or(ran.Error, "the command failed")
	}
	close(a.done)
}

// end refuses new actions, and waits until none is at work.
func (x *Actions) end() {
	x.mu.Lock()
	x.over = true
	x.mu.Unlock()
	x.work.Wait()
}

// copies returns copies of the actions, the newest first.
func (x *Actions) copies() []Action {
	list := []Action{}
	if x == nil {
		return list
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, a := range slices.Backward(x.list) {
		list = append(list, *a)
	}
	return list
}

// action returns a copy of one action.
func (s *Server) action(q *query) (any, error) {
	n, err := q.number()
	if err != nil {
		return nil, err
	}
	for _, a := range s.Actions.copies() {
		if a.Number == n {
			return a, nil
		}
	}
	return nil, &httpError{http.StatusNotFound, "there is no such action: the server remembers only the latest ones, until it exits"}
}

// reply answers with the current state of an action.
func (x *Actions) reply(w http.ResponseWriter, a *Action) {
	x.mu.Lock()
	now := *a
	x.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Location", "/v1/actions/"+strconv.FormatInt(now.Number, 10))
	status := http.StatusOK
	switch {
	case now.Ended == nil:
		status = http.StatusAccepted
	case now.Error != "":
		status = failedStatus(*now.ExitCode)
	}
	var doc any = now
	if status >= http.StatusBadRequest {
		doc = Problem{Error: now.Error, Status: status, Action: &now}
	}
	body, err := json.Marshal(doc)
	body = clip.JSON(body)
	if err != nil {
		fail(w, err)
		return
	}
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}

// failedStatus returns the HTTP status for a failed command's exit code.
func failedStatus(code int) int {
	switch code {
	case 2:
		return http.StatusBadRequest
	case 3, 124:
		return http.StatusServiceUnavailable
	case 4:
		return http.StatusNotFound
	case 5, 6, 8, 9, 75:
		return http.StatusConflict
	case 7:
		return http.StatusInsufficientStorage
	}
	return http.StatusInternalServerError
}
