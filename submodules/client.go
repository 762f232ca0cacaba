package submodules

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// Caller makes the calls of one sub-module. *Module runs a process for each. A Caller
// that wraps another one can add what every call needs, such as a deadline.
type Caller interface {
	// Call calls a verb and returns its output, also if the call fails. If the
	// request has a Stdout, the output goes there instead. An exit code other than 0
	// is a *CallError.
	Call(ctx context.Context, verb string, r AnyRequest) (reply []byte, err error)
}

// Client calls the verbs of a sub-module and reads their replies. Each method is a
// call of the verb with its name, and takes that verb's request.
type Client struct {
	Caller
	Name string // of the sub-module, for errors
	// Downtimes, if set, gets the downtimes of each ROLLOUT and ROLLBACK, even if it
	// failed (FeatureDowntime).
	Downtimes func([]Downtime)
}

// Client returns a client of the sub-module.
func (m *Module) Client() Client { return Client{Caller: m, Name: m.Name} }

// Describe asks for the sub-module's protocol and features. A sub-module that does
// not know the verb PROTOCOL has protocol 1.0 and no features.
func (c Client) Describe(ctx context.Context) (Info, error) {
	old := Info{Protocol: "1.0", Name: c.Name, Features: []string{}}
	// An old sub-module complains about the unknown verb: drop the complaint.
	reply, err := c.Call(ctx, VerbProtocol, &Request{Log: func(string) {}})
	var ce *CallError
	if errors.As(err, &ce) {
		if ce.Code == CodeDeadline || ce.Signal != "" {
			return Info{}, err
		}
		return old, nil
	}
	if err != nil {
		return Info{}, err
	}
	var info Info
	// A 1.0 sub-module may exit 0 on what it does not know, and print anything.
	if json.Unmarshal(reply, &info) != nil {
		return old, nil
	}
	if !strings.HasPrefix(info.Protocol, "1.") {
		return old, nil
	}
	if info.Name == "" {
		info.Name = c.Name
	}
	return info, nil
}

// do calls a verb that has no reply.
func (c Client) do(ctx context.Context, verb string, r AnyRequest) error {
	_, err := c.Call(ctx, verb, r)
	return err
}

// object calls a verb whose reply is JSON.
func object[T any](ctx context.Context, c Client, verb string, r AnyRequest) (T, error) {
	var v, none T
	reply, err := c.Call(ctx, verb, r)
	if err != nil {
		return none, err
	}
	if err := json.Unmarshal(reply, &v); err != nil {
		return none, fmt.Errorf("%s %s: reply: %w", c.Name, verb, err)
	}
	return v, nil
}

// lines are the lines of a reply that are not empty.
func lines(reply []byte) (list []string) {
	for line := range strings.Lines(string(reply)) {
		if line = strings.TrimSpace(line); line != "" {
			list = append(list, line)
		}
	}
	return list
}

// list calls a verb whose reply is a list of lines.
func (c Client) list(ctx context.Context, verb string, r AnyRequest) ([]string, error) {
	reply, err := c.Call(ctx, verb, r)
	if err != nil {
		return nil, err
	}
	return lines(reply), nil
}

// ask calls a verb that prints true or false and exits 0 or 1.
func (c Client) ask(ctx context.Context, verb string, r AnyRequest) (bool, error) {
	out, err := c.Call(ctx, verb, r)
	reply := strings.TrimSpace(string(out))
	if err == nil {
		switch reply {
		case "true", "": // 1.0 sub-modules may print nothing; the exit code is the answer then
			return true, nil
		case "false":
			return false, nil
		}
		return false, fmt.Errorf("%s %s: the reply is neither true nor false: %.40q", c.Name, verb, reply)
	}
	var ce *CallError
	if errors.As(err, &ce) && ce.Code == CodeFailed && reply == "false" {
		return false, nil
	}
	return false, err
}

// timed calls a verb that prints downtimes, and passes them on.
func (c Client) timed(ctx context.Context, verb string, r AnyRequest) error {
	reply, err := c.Call(ctx, verb, r)
	if c.Downtimes == nil {
		return err
	}
	var list []Downtime
	for line := range bytes.Lines(reply) {
		var d Downtime
		if json.Unmarshal(line, &d) == nil && d.Service != "" {
			list = append(list, d)
		}
	}
	c.Downtimes(list)
	return err
}

// ExportManifest writes the manifests of the installed application to r.Dir.
func (c Client) ExportManifest(ctx context.Context, r Request) error {
	return c.do(ctx, VerbExportManifest, &r)
}

// Save writes the component to r.Path, or to r.Stdout for "-".
func (c Client) Save(ctx context.Context, r SaveRequest) error {
	if r.Path != "-" {
		r.Stdout = nil
	}
	return c.do(ctx, VerbSave, &r)
}

// Load brings the component in from r.Path, or from r.Stdin for "-". It reads r.Stdin
// until the sub-module has ended and at most once more; bytes the sub-module did not
// read stay unread. An error of r.Stdin ends the call and is returned unchanged.
func (c Client) Load(ctx context.Context, r LoadRequest) error { return c.do(ctx, VerbLoad, &r) }

// List returns the application's components on this device.
func (c Client) List(ctx context.Context, r Request) ([]Component, error) {
	return object[[]Component](ctx, c, VerbList, &r)
}

// Delete removes the application's reference to the component, and the component
// itself if nothing else uses it. A missing one is not an error.
func (c Client) Delete(ctx context.Context, r DeleteRequest) error { return c.do(ctx, VerbDelete, &r) }

// Rollout brings up the release in r.Dir, and returns when it is healthy.
func (c Client) Rollout(ctx context.Context, r Request) error { return c.timed(ctx, VerbRollout, &r) }

// Rollback brings the release in r.Dir back, and removes what only the release
// in r.FailedDir had.
func (c Client) Rollback(ctx context.Context, r RollbackRequest) error {
	return c.timed(ctx, VerbRollback, &r)
}

// Purge removes everything the application owns; its data only with r.Data.
func (c Client) Purge(ctx context.Context, r PurgeRequest) error { return c.do(ctx, VerbPurge, &r) }

// Stop stops the application without removing anything.
func (c Client) Stop(ctx context.Context, r StopRequest) error { return c.do(ctx, VerbStop, &r) }

// Start starts the application after Stop.
func (c Client) Start(ctx context.Context, r Request) error { return c.do(ctx, VerbStart, &r) }

// Alive reports whether everything the application should run is running.
func (c Client) Alive(ctx context.Context, r Request) (bool, error) { return c.ask(ctx, VerbAlive, &r) }

// Healthy reports whether the application is alive, passes its health checks
// and is not restarting.
func (c Client) Healthy(ctx context.Context, r Request) (bool, error) {
	return c.ask(ctx, VerbHealthy, &r)
}

// Reqs returns the commands the sub-module needs.
func (c Client) Reqs(ctx context.Context, r ReqsRequest) (list []Requirement, err error) {
	all, err := c.list(ctx, VerbReqs, &r)
	for _, line := range all {
		cmd, kind, _ := strings.Cut(line, ":")
		list = append(list, Requirement{Command: cmd, Warning: strings.TrimSpace(kind) == "warning"})
	}
	return list, err
}

// Verify checks that r.Components are present and whole (feature verify). It returns
// a line for each that is not; no lines mean all are.
func (c Client) Verify(ctx context.Context, r Request) ([]string, error) {
	reply, err := c.Call(ctx, VerbVerify, &r)
	problems := lines(reply)
	var ce *CallError
	if errors.As(err, &ce) && ce.Code == CodeFailed && len(problems) > 0 {
		return problems, nil
	}
	return problems, err
}

// Sync returns when everything earlier LOADs wrote is durable (feature sync).
func (c Client) Sync(ctx context.Context, r Request) error { return c.do(ctx, VerbSync, &r) }

// Repair repairs the damaged components among r.Components (feature repair), from the
// store and, if set, the contents in r.Source. r.Work belongs to the caller, outlives
// the call, and stays the same until a call succeeds; see PROTOCOL.md. Repair returns
// the applications that must be rolled out again.
func (c Client) Repair(ctx context.Context, r RepairRequest) ([]string, error) {
	return c.list(ctx, VerbRepair, &r)
}

// Storage returns the directories of this machine that components are kept in
// (feature storage); none if they are elsewhere.
func (c Client) Storage(ctx context.Context, r Request) ([]string, error) {
	return c.list(ctx, VerbStorage, &r)
}

// Engine describes the program that runs the containers (feature engine).
func (c Client) Engine(ctx context.Context, r Request) (Engine, error) {
	reply, err := c.Call(ctx, VerbEngine, &r)
	if err != nil {
		return Engine{}, err
	}
	var e Engine
	if json.Unmarshal(reply, &e) != nil {
		return Engine{}, fmt.Errorf("%s %s: the reply is not the JSON of an engine", c.Name, VerbEngine)
	}
	return e, nil
}

// Restore decrypts the application's secrets again after a restart of the machine
// (feature secrets).
func (c Client) Restore(ctx context.Context, r Request) error { return c.do(ctx, VerbRestore, &r) }

// Check makes the checks of ROLLOUT on the manifests in r.Dir (feature check/1). Any
// directory will do. r.Components need not be loaded.
func (c Client) Check(ctx context.Context, r Request) (Changes, error) {
	return object[Changes](ctx, c, VerbCheck, &r)
}

// Render returns the manifests in r.Dir, with r.Overrides (feature overrides/1).
func (c Client) Render(ctx context.Context, r Request) ([]byte, error) {
	return c.Call(ctx, VerbRender, &r)
}

// Run runs r.Words once in a container of r.Service, which the manifests in r.Dir
// define (feature run/1).
func (c Client) Run(ctx context.Context, r RunRequest) error { return c.do(ctx, VerbRun, &r) }

// Volumes lists the volumes of the manifests in r.Dir, with their directories on this
// machine (feature data/1). Any directory of manifests will do.
func (c Client) Volumes(ctx context.Context, r VolumesRequest) ([]Volume, error) {
	list, err := object[[]Volume](ctx, c, VerbVolumes, &r)
	if err != nil {
		return nil, err
	}
	for _, v := range list {
		if v.Name == "" || v.Dir != "" && (!filepath.IsAbs(v.Dir) || filepath.Clean(v.Dir) != v.Dir) {
			return nil, fmt.Errorf("%s %s: reply: %q is not the absolute path of a directory", c.Name, VerbVolumes, v.Dir)
		}
	}
	return list, nil
}

// Status returns the condition of the application and of each service (feature status).
func (c Client) Status(ctx context.Context, r Request) (Status, error) {
	return object[Status](ctx, c, VerbStatus, &statusRequest{Request: r})
}

// Statuses asks about several applications in one call (feature statuses/1), and calls
// each with a status as soon as the sub-module reports it. r applies to all of them; its
// App is ignored, and each of its Components names its application. An application without a status is left out: asking
// about it alone returns its error.
func (c Client) Statuses(ctx context.Context, r Request, apps []string, each func(app string, s Status)) error {
	if len(apps) > MaxApps {
		return fmt.Errorf("%s: %d applications in one call, the most is %d", VerbStatus, len(apps), MaxApps)
	}
	if len(apps) == 0 {
		return nil
	}
	wanted := map[string]bool{}
	for _, app := range apps {
		wanted[app] = true
	}
	r.App = apps[0]
	return c.stream(ctx, VerbStatus, &statusRequest{r, apps[1:]}, maxStatusLine, func(text []byte) error {
		var s appStatus
		if json.Unmarshal(text, &s) != nil {
			s.App = ""
		}
		if !wanted[s.App] {
			return fmt.Errorf("%s: a line of the reply is not the JSON of an application's status: %.80q", VerbStatus, text)
		}
		delete(wanted, s.App)
		each(s.App, s.Status)
		return nil
	})
}

// Logs calls each for every line of the services' logs (feature logs/1). An error of
// each ends the call and is returned.
func (c Client) Logs(ctx context.Context, r LogsRequest, each func(LogLine) error) error {
	return c.stream(ctx, VerbLogs, &r, maxLogLine, func(text []byte) error {
		var line LogLine
		if json.Unmarshal(text, &line) != nil || line.Service == "" {
			return fmt.Errorf("%s: a line of the reply is not the JSON of a log line: %.80q", VerbLogs, text)
		}
		return each(line)
	})
}

// stream calls a verb, and each for every line of its reply as soon as it is written. most
// is the maximum size of a line in bytes. An error of each ends the call and is
// returned.
func (c Client) stream(ctx context.Context, verb string, r AnyRequest, most int, each func(line []byte) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	reply := &replyLines{verb: verb, most: most, fail: cancel, each: each}
	r.Common().Stdout = reply
	err := c.do(ctx, verb, r)
	if reply.err != nil {
		return reply.err
	}
	return err
}

// replyLines reads a reply line by line as it is written.
type replyLines struct {
	verb string
	most int // maximum bytes of a line
	each func(line []byte) error
	fail func() // ends the call
	rest []byte
	err  error
}

func (l *replyLines) Write(p []byte) (int, error) {
	for part := range bytes.Lines(p) {
		if l.err != nil {
			break
		}
		l.rest = append(l.rest, part...)
		if l.rest[len(l.rest)-1] != '\n' {
			if len(l.rest) > l.most {
				l.err = fmt.Errorf("%s: a line of the reply is longer than %d bytes", l.verb, l.most)
			}
			continue
		}
		l.err = l.each(l.rest)
		l.rest = l.rest[:0]
	}
	if l.err != nil {
		l.fail()
	}
	return len(p), l.err
}
