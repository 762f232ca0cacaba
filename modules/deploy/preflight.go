package deploy

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/modules/diskspace"
	"github.com/mender-app/mender-app/modules/facts"
	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/submodules"
)

// ErrUnfit: the artifact does not fit this device, or a hook refuses what was to begin.
// Nothing was changed. The text says what to do.
var ErrUnfit = errors.New("refused")

// unfit makes an ErrUnfit.
func unfit(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrUnfit, fmt.Errorf(format, args...))
}

// preflight runs the checks of an artifact that need only its metadata, before anything
// is loaded.
type preflight struct {
	e        *Engine
	h        *header
	unlocked bool    // the caller does not hold the store's lock
	t        *target // from the check of the sub-module on
	resolved *header // from the choice of the variants on
	joint            // what it is installed together with
}

// run runs all checks except those named and stops at the first failure.
func (p *preflight) run(ctx context.Context, without ...string) error {
	for _, step := range p.steps() {
		if slices.Contains(without, step.name) {
			continue
		}
		if err := step.run(ctx); err != nil {
			return err
		}
	}
	return nil
}

// preflightStep is one check. The steps after a needed one build on it.
type preflightStep struct {
	name   string
	needed bool
	run    func(ctx context.Context) error
}

// steps are the checks in their order.
func (p *preflight) steps() []preflightStep {
	e, meta := p.e, p.h.Meta
	return []preflightStep{
		{"hold", false, func(context.Context) error { return e.checkHolds(meta.ApplicationName) }},
		{"statement", false, func(context.Context) error { return p.checkStatement() }},
		{"platform", false, p.checkPlatform},
		{"sub-module", true, p.find},
		{"windows", false, func(context.Context) error { return p.checkWindows() }},
		{"application", false, func(context.Context) error { return checkInstalled(e.Store, e.Log, meta, e.RefuseOlder) }},
		{"requirements", false, func(ctx context.Context) error {
			p.warnOfEnv()
			return p.t.checkRequirements(ctx, meta)
		}},
		{"policy", false, p.checkPolicy},
		{"variant", true, func(ctx context.Context) (err error) {
			p.resolved, err = p.t.oldContent().choose(ctx, p.h)
			return err
		}},
		{"content", false, func(context.Context) error {
			if len(p.resolved.Content) > 0 && e.Content == nil {
				return unfit("its images are not in the artifact, and nothing on this device fetches them: install mender-app")
			}
			return nil
		}},
		{"bases of deltas", false, func(ctx context.Context) error { return p.t.oldContent().check(ctx, p.resolved.Meta) }},
		{"space", false, func(ctx context.Context) (err error) {
			p.needs, err = p.t.checkSpace(ctx, p.resolved.Meta, p.needs)
			return err
		}},
	}
}

// find finds the sub-module.
func (p *preflight) find(ctx context.Context) error {
	sub, info, err := p.e.orchestrator(ctx, p.h.Meta.Orchestrator)
	if err != nil {
		return unfit("%w", err)
	}
	p.t = &target{e: p.e, app: p.h.Meta.ApplicationName, r: p.h.Release(), sub: sub, info: info, unlocked: p.unlocked}
	return nil
}

// checkStatement refuses an artifact that differs from its statement, or whose
// signer may not replace the application. No payload has been read then.
func (p *preflight) checkStatement() error {
	learn := p.e.Learn
	if p.unlocked {
		learn = nil
	}
	if learn != nil { // first: a list counts by its own signatures, also against this artifact
		if err := learn.Revocations(p.h.Meta); err != nil {
			return err
		}
	}
	if err := p.h.CheckStatement(); err != nil {
		return unfit("%w", err)
	}
	trust := p.e.Trust
	if p.leader != nil {
		trust = p.trust
	}
	if trust != nil {
		if err := trust(p.h.Meta.ApplicationName, p.h.Statement); err != nil {
			return err
		}
	}
	if learn == nil {
		return nil
	}
	return learn.Time(p.h.Meta.ApplicationName, p.h.Statement)
}

// checkWindows refuses an artifact that has to wait for a maintenance window. A Mender client
// may load it beside what runs: it can wait, by a state script, before it has it installed.
func (p *preflight) checkWindows() error {
	if p.e.Mode() == policy.ByClient && p.t.info.Has(submodules.FeatureStage) {
		return nil
	}
	rules, err := facts.PolicyOfArtifact(p.h.Meta)
	if err != nil {
		return nil // the check of the policy says so
	}
	return p.e.checkWindows(rules, p.e.verified(p.h.Meta.ApplicationName, p.h.Statement))
}

// checkPlatform refuses an artifact for another machine.
func (p *preflight) checkPlatform(context.Context) error {
	if err := checkMachine(p.e.Platforms, p.h.Meta.Platform); err != nil {
		return unfit("%w", err)
	}
	return nil
}

// warnOfEnv names what the sub-module does not get.
func (p *preflight) warnOfEnv() {
	_, dropped := environment(p.t.r.Env, p.t.info, p.e.AllowEnv)
	for _, name := range dropped {
		p.e.Log.Warn("a name in the metadata's environment is dropped: the sub-module does not declare it, and allow_env in mender-app.conf does not list it",
			"name", name, "orchestrator", p.t.r.Orchestrator)
	}
}

// checkRequirements makes sure that the device has the commands that the
// sub-module needs, and a key for encrypted secrets.
func (t *target) checkRequirements(ctx context.Context, m *artifact.Metadata) error {
	req := submodules.ReqsRequest{Request: t.request()}
	if slices.Contains(m.Requires, artifact.FeatureSecrets) {
		if !t.info.Has(submodules.FeatureSecrets) {
			return unfit("the manifests have encrypted secrets, and sub-module %s cannot decrypt them: update it", t.r.Orchestrator)
		}
		req.Secrets, req.Recipients = true, m.Recipients
	}
	reqs, err := t.client().Reqs(ctx, req)
	if err != nil {
		return unfit("%w", err)
	}
	needed, useful := lackingCommands(reqs)
	for _, command := range useful {
		t.e.Log.Warn("a command is missing", "command", command, "orchestrator", t.r.Orchestrator)
	}
	if needed != nil {
		return unfit("%s needs the command %q, which is missing: install it", t.r.Orchestrator, needed[0])
	}
	return nil
}

// checkSpace compares the sizes in the metadata with the free space, of which needs is
// spoken for. It returns all that is needed then.
func (t *target) checkSpace(ctx context.Context, m *artifact.Metadata, needs []diskspace.Need) ([]diskspace.Need, error) {
	if m.Sizes == nil {
		return needs, nil // the shell reference's metadata has no sizes
	}
	temp := m.Sizes.Temp + largestSpooled(t.info, m.Components)
	needs = append(needs, diskspace.Need{Dir: diskspace.Existing(t.e.Store.Dir()), Bytes: temp + m.Sizes.Manifests + m.Sizes.ManifestsPayload})
	if dir := t.dataRoot(ctx); dir != "" {
		needs = append(needs, diskspace.Need{Dir: diskspace.Existing(dir), Bytes: m.Sizes.Engine})
	}
	if a := t.stored(); a != nil {
		p, err := facts.PolicyOfArtifact(m)
		if err != nil {
			return nil, unfit("%w", err)
		}
		more, err := t.e.data(a, t.unlocked).Needs(ctx, p, a.Current)
		if err != nil {
			return nil, unfit("%w", err)
		}
		needs = append(needs, more...)
	}
	if err := diskspace.Check(needs, diskspace.Free); err != nil {
		return nil, unfit("%w", err)
	}
	return needs, nil
}

// dataRoot returns the directory where the engine keeps its images; "" if it is
// unknown or not on this machine. It asks the sub-module, because the engine's
// configuration file may not name the directory.
func (t *target) dataRoot(ctx context.Context) string {
	if !t.info.Has(submodules.FeatureStorage) {
		return t.e.DataRoot
	}
	dirs, err := t.client().Storage(ctx, t.request())
	if err != nil {
		t.e.Log.Warn("the sub-module does not say where images are kept", "error", err)
		return t.e.DataRoot
	}
	if len(dirs) == 0 || !filepath.IsAbs(dirs[0]) {
		return ""
	}
	return dirs[0]
}
