package deploy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules"
)

// world is an engine and an orchestrator in memory, with what makes real ones
// difficult: loading is not durable before SYNC, a component that a power cut
// made hollow still looks present, bringing an application up has a moment in
// which it is neither the old nor the new one.
type world struct {
	features []string
	// refs are the applications' own references: app -> digest -> present.
	refs map[string]map[digest.Digest]bool
	// tags are the engine's names for what applications run: URL -> digest.
	tags map[string]digest.Digest
	// content of a digest: "whole", "unsynced", "hollow".
	content map[digest.Digest]string
	// running: what of an application runs.
	running map[string]running
	// sick are the compose files that never get healthy.
	sick map[string]bool
	// unfit are the compose files that CHECK refuses.
	unfit map[string]bool
	// fail makes a verb fail, once for each count.
	fail  map[string]int
	calls []string
	away  int // calls for which the engine is not there
	// trusting: LOAD does not know the option distrust.
	trusting bool
	storage  []string
	engine   string   // its version
	reqs     []string // options and recipients of the last REQS
	// plain: the sub-module has no features; texts is the content of a digest.
	plain bool
	texts map[digest.Digest]string
	clock time.Time           // for downtimes
	down  submodules.Downtime // of the last ROLLOUT or ROLLBACK
	data  *dataWorld          // what applications store; nil: nothing
	// stuck makes LOAD or ROLLOUT call a function and then work until the call is stopped.
	stuck map[string]func() error
	read  int // LOADs that read content
}

type running struct {
	compose string // content of the compose file
	digests string // identities of its components, sorted
	mixed   bool   // stopped in the middle of a change
	stopped bool
	// overrides are what was changed in the manifests when it was started.
	overrides string
}

func newWorld() *world {
	return &world{
		features: []string{
			submodules.FeatureStream, submodules.FeatureStage, submodules.FeatureComponents,
			submodules.FeatureDelta, submodules.FeatureVerify, submodules.FeatureSync, submodules.FeatureRepair, submodules.FeatureStorage,
		},
		refs: map[string]map[digest.Digest]bool{}, tags: map[string]digest.Digest{}, content: map[digest.Digest]string{},
		running: map[string]running{}, sick: map[string]bool{}, unfit: map[string]bool{}, fail: map[string]int{},
	}
}

func (w *world) enter(verb string, r submodules.Request, url ...string) error {
	w.calls = append(w.calls, strings.Join(append(strings.Fields(verb+" "+r.App), url...), " "))
	if w.away > 0 {
		w.away--
		return &submodules.CallError{Module: "fake", Verb: verb, Code: submodules.CodeRequirement, LastLine: "no engine"}
	}
	if w.fail[verb] > 0 {
		w.fail[verb]--
		return fmt.Errorf("%s was told to fail", verb)
	}
	return nil
}

// powerCut loses what was not synced.
func (w *world) powerCut() {
	for d, c := range w.content {
		if c == "unsynced" {
			w.content[d] = "hollow"
		}
	}
	if err := w.data.ends(); err != nil {
		panic(err)
	}
	for _, run := range w.running { // the engine starts them at boot, whoever stopped them
		if err := w.data.started(run.compose); err != nil {
			panic(err)
		}
	}
}

// lose is what some power cuts do to an engine: it lost its networks, for example, and
// starts nothing.
func (w *world) lose() {
	for app, run := range w.running {
		run.stopped = true
		w.running[app] = run
	}
}

func (w *world) Describe(context.Context) (submodules.Info, error) {
	return submodules.Info{Protocol: submodules.Protocol, Name: "fake", Features: w.features}, nil
}

func (w *world) Load(ctx context.Context, r submodules.LoadRequest) error {
	if err := w.sticks(ctx, "LOAD"); err != nil {
		return err
	}
	if err := w.enter("LOAD", r.Request, r.URL); err != nil {
		return err
	}
	if w.plain {
		return w.plainLoad(r)
	}
	if len(r.Components) != 1 {
		return errors.New("LOAD of what?")
	}
	c := r.Components[0]
	if !r.Stage {
		// Of what is present, to name it again.
		if r.Path != os.DevNull || c.URL != r.URL || w.content[c.Digest] == "" || !w.refs[r.App][c.Digest] {
			return errors.New("LOAD of what, and how?")
		}
		w.tags[c.URL] = c.Digest
		return nil
	}
	if w.refs[r.App] == nil {
		w.refs[r.App] = map[digest.Digest]bool{}
	}
	if w.content[c.Digest] == "hollow" && !w.trusting && r.Distrust {
		if w.image(c.Digest) {
			return submodules.Mark(errors.New("hollow, and in use"), submodules.ErrContent)
		}
		delete(w.content, c.Digest)
	}
	if w.content[c.Digest] == "" { // a hollow one looks present, too
		if r.Stdin == nil {
			f, err := os.Open(r.Path)
			if err != nil {
				return err
			}
			defer f.Close()
			r.Stdin = f
		}
		data, err := io.ReadAll(r.Stdin)
		if err != nil {
			return err
		}
		w.read++
		if !strings.HasPrefix(string(data), "image ") {
			return submodules.Mark(errors.New("not an image"), submodules.ErrContent)
		}
		w.content[c.Digest] = "unsynced"
		if err := durable.Point("inside.LOAD"); err != nil {
			return err
		}
	}
	w.refs[r.App][c.Digest] = true
	return nil
}

func (w *world) Engine(_ context.Context, r submodules.Request) (submodules.Engine, error) {
	return submodules.Engine{Name: "fake-engine", Version: w.engine}, w.enter("ENGINE", r)
}

func (w *world) List(_ context.Context, r submodules.Request) (list []submodules.Component, err error) {
	if err := w.enter("LIST", r); err != nil {
		return nil, err
	}
	for d := range w.refs[r.App] {
		list = append(list, submodules.Component{Type: "image", Digest: d})
	}
	return list, nil
}

// image reports whether anything makes content an image; without, it is a layer
// that an interrupted LOAD left, which nothing lists and nobody can delete.
func (w *world) image(d digest.Digest) bool {
	for _, refs := range w.refs {
		if refs[d] {
			return true
		}
	}
	for _, r := range w.running {
		if strings.Contains(r.digests, d.String()) {
			return true
		}
	}
	for _, tagged := range w.tags {
		if tagged == d {
			return true
		}
	}
	return false
}

func (w *world) Delete(_ context.Context, r submodules.DeleteRequest) error {
	if err := w.enter("DELETE", r.Request, r.URL); err != nil {
		return err
	}
	if w.plain {
		return w.plainDelete(r)
	}
	c := r.Components[0]
	if c.URL != r.URL {
		return errors.New("DELETE of what?")
	}
	if !w.image(c.Digest) {
		return nil
	}
	others := false // another application needs it
	for app, refs := range w.refs {
		others = others || app != r.App && refs[c.Digest]
	}
	if !others && w.tags[c.URL] == c.Digest {
		delete(w.tags, c.URL)
	}
	if err := durable.Point("inside.DELETE"); err != nil {
		return err
	}
	if len(r.Components) == 1 { // not needed by another name
		delete(w.refs[r.App], c.Digest)
	}
	w.collect(c.Digest)
	return nil
}

// collect removes content that nothing refers to or runs from.
func (w *world) collect(d digest.Digest) {
	if !w.image(d) {
		delete(w.content, d)
	}
}

func (w *world) up(verb string, r submodules.Request) error {
	if err := w.enter(verb, r); err != nil {
		return err
	}
	if w.plain {
		return w.plainUp(verb, r)
	}
	compose, err := os.ReadFile(filepath.Join(r.Dir, "compose.yaml"))
	if err != nil {
		return err
	}
	var digests []string
	for _, c := range r.Components {
		switch {
		case w.content[c.Digest] == "" || !w.refs[r.App][c.Digest]:
			return fmt.Errorf("%s: component %s is not there", verb, c.Digest)
		case w.content[c.Digest] == "hollow":
			return fmt.Errorf("%s: component %s is hollow", verb, c.Digest)
		}
		digests = append(digests, c.Digest.String())
	}
	for _, c := range r.Components {
		w.tags[c.URL] = c.Digest
	}
	if err := w.data.started(string(compose)); err != nil {
		return err
	}
	slices.Sort(digests)
	next := running{compose: string(compose), digests: strings.Join(digests, " "), overrides: fmt.Sprint(r.Overrides)}
	if w.running[r.App] != next {
		next.mixed = true
		w.running[r.App] = next
		if err := durable.Point("inside." + verb); err != nil {
			return err
		}
	}
	if w.sick[string(compose)] {
		return submodules.Mark(errors.New("it does not get healthy"), submodules.ErrUnhealthy)
	}
	next.mixed = false
	w.running[r.App] = next
	return nil
}

func (w *world) Rollout(ctx context.Context, r submodules.Request) error {
	if err := w.sticks(ctx, "ROLLOUT"); err != nil {
		return err
	}
	return w.timed("ROLLOUT", r)
}

func (w *world) sticks(ctx context.Context, verb string) error {
	f := w.stuck[verb]
	if f == nil {
		return nil
	}
	if err := f(); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

func (w *world) Rollback(_ context.Context, r submodules.RollbackRequest) error {
	return w.timed("ROLLBACK", r.Request)
}

// timed says that web went down in the call, and was ready a second later.
func (w *world) timed(verb string, r submodules.Request) error {
	err := w.up(verb, r)
	w.down = submodules.Downtime{Service: "web", Down: w.clock}
	w.clock = w.clock.Add(time.Second)
	if err == nil {
		w.down.Up = w.clock
	}
	return err
}

// Downtimes implements submodules.Timekeeper.
func (w *world) Downtimes(context.Context, bool) []submodules.Downtime {
	return []submodules.Downtime{w.down}
}

func (w *world) Purge(_ context.Context, r submodules.PurgeRequest) error {
	if err := w.enter("PURGE", r.Request); err != nil {
		return err
	}
	delete(w.running, r.App)
	if err := durable.Point("inside.PURGE"); err != nil {
		return err
	}
	for _, c := range r.Components {
		if w.tags[c.URL] == c.Digest {
			delete(w.tags, c.URL)
		}
	}
	for d := range w.refs[r.App] {
		delete(w.refs[r.App], d)
		w.collect(d)
	}
	return nil
}

func (w *world) Status(_ context.Context, r submodules.Request) (s submodules.Status, err error) {
	if _, up := w.running[r.App]; up {
		s.Services = []submodules.Service{{Name: "web"}}
	}
	return s, nil
}

func (w *world) Stop(_ context.Context, r submodules.StopRequest) error {
	if err := w.enter("STOP", r.Request); err != nil {
		return err
	}
	if err := w.data.ends(); err != nil {
		return err
	}
	if run, ok := w.running[r.App]; ok {
		run.stopped = true
		w.running[r.App] = run
		if err := durable.Point("inside.STOP"); err != nil {
			return err
		}
		if r.Remove {
			delete(w.running, r.App)
		}
	}
	_, err := os.Stat(filepath.Join(r.Dir, "compose.yaml"))
	return err
}

func (w *world) Start(_ context.Context, r submodules.Request) error { return w.up("START", r) }

func (w *world) Alive(_ context.Context, r submodules.Request) (bool, error) {
	if err := w.enter("ALIVE", r); err != nil {
		return false, err
	}
	run, ok := w.running[r.App]
	return ok && !run.stopped, nil
}

func (w *world) Healthy(_ context.Context, r submodules.Request) (bool, error) {
	if err := w.enter("HEALTHY", r); err != nil {
		return false, err
	}
	run, ok := w.running[r.App]
	return ok && !run.mixed && !run.stopped && !w.sick[run.compose], nil
}

func (w *world) Restore(_ context.Context, r submodules.Request) error { return w.enter("RESTORE", r) }

func (w *world) Reqs(_ context.Context, r submodules.ReqsRequest) ([]submodules.Requirement, error) {
	w.reqs = r.Recipients
	if r.Secrets {
		w.reqs = append([]string{submodules.OptionSecrets}, r.Recipients...)
	}
	return []submodules.Requirement{{Command: "sh"}, {Command: "no-such-command-at-all", Warning: true}}, nil
}

func (w *world) Verify(_ context.Context, r submodules.Request) (problems []string, err error) {
	if err := w.enter("VERIFY", r); err != nil {
		return nil, err
	}
	for _, c := range r.Components {
		if s := w.content[c.Digest]; s == "" || s == "hollow" {
			problems = append(problems, c.URL+" is not whole")
		}
	}
	return problems, nil
}

func (w *world) Sync(_ context.Context, r submodules.Request) error {
	if err := w.enter("SYNC", r); err != nil {
		return err
	}
	for d, c := range w.content {
		if c == "unsynced" {
			w.content[d] = "whole"
		}
	}
	return nil
}

// Repair keeps its plan in r.Work, as PROTOCOL.md wants it.
func (w *world) Repair(_ context.Context, r submodules.RepairRequest) (apps []string, err error) {
	if err := w.enter("REPAIR", r.Request); err != nil {
		return nil, err
	}
	plan := filepath.Join(r.Work, "plan")
	var bad []string
	if data, err := os.ReadFile(plan); err == nil {
		bad = strings.Fields(string(data))
	} else if r.Finish {
		return nil, nil
	} else {
		have := map[digest.Digest]bool{}
		var files []string
		if r.Source != "" {
			files, _ = filepath.Glob(filepath.Join(r.Source, "*"))
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			have[digestOf("", strings.TrimPrefix(string(data), "image "))] = r.Source != ""
		}
		for _, c := range r.Components {
			if s := w.content[c.Digest]; s != "" && s != "hollow" {
				continue
			}
			if !have[c.Digest] {
				return nil, submodules.Mark(fmt.Errorf("%s cannot be repaired", c.URL), submodules.ErrContent)
			}
			bad = append(bad, c.Digest.String())
		}
		if len(bad) == 0 {
			return nil, nil
		}
		for app, run := range w.running {
			if slices.ContainsFunc(bad, func(d string) bool { return strings.Contains(run.digests, d) }) {
				bad = append(bad, "app "+app)
			}
		}
		if err := os.WriteFile(plan, []byte(strings.Join(bad, "\n")), 0o644); err != nil {
			return nil, err
		}
		bad = strings.Fields(strings.Join(bad, "\n"))
	}
	if err := durable.Point("planned.REPAIR"); err != nil {
		return nil, err
	}
	for i, word := range bad {
		if word == "app" {
			apps = append(apps, bad[i+1])
			delete(w.running, bad[i+1])
		}
	}
	if err := durable.Point("removed.REPAIR"); err != nil {
		return nil, err
	}
	for _, word := range bad {
		if d, err := digest.Parse(word); err == nil {
			w.content[d] = "whole"
			w.refs[r.App][d] = true
		}
	}
	return apps, durable.Point("loaded.REPAIR")
}

func (w *world) Check(_ context.Context, r submodules.Request) (submodules.Changes, error) {
	compose, err := os.ReadFile(filepath.Join(r.Dir, "compose.yaml"))
	if err == nil && w.unfit[string(compose)] {
		err = submodules.Mark(errors.New("the device has no such network"), submodules.ErrContent)
	}
	return submodules.Changes{}, errors.Join(err, w.enter("CHECK", r))
}

func (w *world) Storage(context.Context, submodules.Request) ([]string, error) {
	return w.storage, nil
}

// loaded are all digests an application refers to, sorted.
func (w *world) loaded(app string) []digest.Digest { return slices.Sorted(maps.Keys(w.refs[app])) }
