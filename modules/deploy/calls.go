package deploy

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/modules/settings"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules"
)

// target is the subject of sub-module calls: an application, one of its
// releases, the release's sub-module, and what that sub-module can do.
type target struct {
	e    *Engine
	app  string
	a    *store.App        // nil in the preflight: the store may not know the application yet
	r    *store.Release    // in the preflight only the orchestrator, the platform and the environment
	sub  submodules.Client // calls are made through client
	info submodules.Info
	// unlocked: the caller does not hold the store's lock. The call gets no
	// temporary directory, for the store's belongs to the holder of the lock.
	unlocked bool
}

// target reads a release of an application and finds its sub-module.
func (e *Engine) target(ctx context.Context, a *store.App, id string) (*target, error) {
	r, err := a.Release(id)
	if err != nil {
		return nil, err
	}
	return e.targetOf(ctx, a, r)
}

// targetOf finds the sub-module of a release.
func (e *Engine) targetOf(ctx context.Context, a *store.App, r *store.Release) (*target, error) {
	sub, info, err := e.orchestrator(ctx, r.Orchestrator)
	if err != nil {
		return nil, err
	}
	return &target{e: e, app: a.Name, a: a, r: r, sub: sub, info: info}, nil
}

// only returns the same target with some of the release's components.
func (t *target) only(list ...store.Component) *target {
	some, r := *t, *t.r
	r.Components = list
	some.r = &r
	return &some
}

// request returns the fields that every call for the target has.
func (t *target) request() submodules.Request {
	req := submodules.Request{App: t.app, Platform: t.r.Platform}
	req.Env, _ = environment(t.r.Env, t.info, t.e.AllowEnv)
	if t.a != nil {
		req.Dir, req.Components = t.a.ManifestsDir(), forSubmodule(t.r.Components)
	}
	a := t.stored()
	if t.info.Has(submodules.FeatureServices) {
		req.Disabled = settings.ServicesOff(t.e.Log, a, t.app, t.r)
	}
	if t.info.Has(submodules.FeatureCPUSet) {
		req.CPUSet = settings.CPUSet(t.e.Log, t.e.CPUs, t.app, t.r)
	}
	if t.info.Has(submodules.FeatureOverrides) {
		var err error
		if req.Overrides, err = settings.Layers(t.e.Log, t.e.OverridesDir, a, t.app, t.r); err != nil {
			t.e.Log.Error("overrides are left out", "app", t.app, "error", err)
		}
	}
	if t.info.Has(submodules.FeatureValues) && a != nil {
		req.Values = t.e.Values.Used(t.e.Log, t.app, a.ReleaseManifests(t.r.ID), req.Overrides)
	}
	return req
}

// stored returns the application, also before it is opened for work; nil if it is not
// installed yet.
func (t *target) stored() *store.App {
	if t.a != nil {
		return t.a
	}
	a, err := t.e.Store.App(t.app)
	if err != nil {
		return nil
	}
	return a
}

// client makes calls about the target. Each gets the verb's deadline and a temporary
// directory of its own. If the engine does not answer, a call that waits is made again
// until Engine.Patience has passed: a restarting engine comes back, and neither a commit
// nor a rollback should fail for that. The preflight does not wait, and neither does a
// call without the lock. If the files of a release that ran before are no longer good, they are
// put back as they came, and the call is made once more. Downtimes go into the journal.
func (t *target) client() submodules.Client {
	c := submodules.Client{Caller: t, Name: t.sub.Name}
	if t.a != nil && t.a.Deployment != nil && t.info.Has(submodules.FeatureDowntime) {
		c.Downtimes = journal.Downtimes(t.a.Deployment)
	}
	return c
}

// Call implements submodules.Caller, for client.
func (t *target) Call(ctx context.Context, verb string, req submodules.AnyRequest) (reply []byte, err error) {
	if t.a == nil || t.unlocked {
		return t.callOnce(ctx, verb, req)
	}
	reply, err = t.callPatiently(ctx, verb, req)
	bad := func() bool { return ranBefore[verb] && errors.Is(err, submodules.ErrContent) && ctx.Err() == nil }
	if bad() && t.e.putFilesBack(t.a, t.r.ID, true) {
		reply, err = t.callPatiently(ctx, verb, req)
	}
	if bad() {
		err = fmt.Errorf("%w: if a file of release %s is lost, install it or another release (mender-app install FILE)", err, t.r.ID)
	}
	return reply, err
}

func (t *target) callPatiently(ctx context.Context, verb string, req submodules.AnyRequest) (reply []byte, err error) {
	call := func() error {
		reply, err = t.callOnce(ctx, verb, req)
		return err
	}
	for try := 1; ; try++ {
		if waits[verb] {
			err = patiently(ctx, t.e.Timeouts, t.e.Log, call)
		} else {
			err = call()
		}
		if try == killTries || ctx.Err() != nil || !wasKilled(err) || verb == submodules.VerbRun || !waits[verb] && !ranBefore[verb] {
			return reply, err
		}
		t.e.Log.Warn("the sub-module was killed; is there too little memory? Calling it again", "app", t.app, "verb", verb)
	}
}

// killTries is how often a sub-module is called if it is killed each time, as by a kernel that
// is out of memory. What waits and what is about a release that ran before can be repeated,
// but for RUN.
const killTries = 3

// wasKilled reports whether somebody else killed a sub-module.
func wasKilled(err error) bool {
	var failed *submodules.CallError
	return errors.As(err, &failed) && failed.Code != submodules.CodeDeadline && failed.Signal == unix.SIGKILL.String()
}

// ranBefore are the verbs about a release that ran before.
var ranBefore = map[string]bool{
	submodules.VerbStart: true, submodules.VerbRollback: true, submodules.VerbHealthy: true, submodules.VerbAlive: true,
}

// callOnce is one attempt of a call. Under the lock it marks both sides of the call
// with a fault point.
func (t *target) callOnce(ctx context.Context, verb string, req submodules.AnyRequest) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, t.e.Deadline(verb, t.a == nil))
	defer cancel()
	if t.unlocked {
		return t.sub.Call(ctx, verb, req)
	}
	if err := durable.Point("call." + verb); err != nil {
		return nil, fmt.Errorf("%s: %w", verb, err)
	}
	tmp, err := t.e.Store.Temp()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	about := req.Common()
	about.TempDir = tmp
	reply, err := t.sub.Call(ctx, verb, req)
	if err != nil {
		return reply, err
	}
	if t.a != nil && (verb == submodules.VerbStart || verb == submodules.VerbRollout || verb == submodules.VerbRollback) {
		t.a.Applied, t.a.Values = settings.LayersFingerprint(about.Overrides), settings.ValuesFingerprint(about.Values)
		t.a.Deciding = false // the next write of the state keeps all three
	}
	return reply, durable.Point("called." + verb)
}

// orchestrator returns a sub-module and what it can do.
func (e *Engine) orchestrator(ctx context.Context, name string) (submodules.Client, submodules.Info, error) {
	sub, err := e.Find(name)
	if err != nil {
		return sub, submodules.Info{}, err
	}
	if info, ok := e.infos[name]; ok {
		return sub, info, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	info, err := sub.Describe(ctx)
	if err != nil {
		return sub, submodules.Info{}, err
	}
	if e.infos == nil {
		e.infos = map[string]submodules.Info{}
	}
	e.infos[name] = info
	return sub, info, nil
}
