package view

import (
	"context"
	"fmt"
	"strconv"

	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// question asks a sub-module for the status of an application.
type question struct {
	i        int // in the list of names
	overview *Overview
	module   described
	req      submodules.Request
}

// Overviews does what Overview does for several applications, and calls each with the
// result for names[i], one call at a time. A sub-module with the feature statuses/1 is
// asked about its applications together.
func (v *Viewer) Overviews(ctx context.Context, s *store.Store, names []string, each func(i int, o *Overview, err error)) {
	known := map[string]described{}
	describe := func(ctx context.Context, orchestrator string) (m described, err error) {
		m, ok := known[orchestrator]
		if !ok {
			if m, err = v.describe(ctx, orchestrator); err == nil {
				known[orchestrator] = m
			}
		}
		return m, err
	}
	staged := v.stagedFor(s, names)
	groups, order := map[string][]question{}, []string{}
	for i, name := range names {
		o, err := v.stored(s, name, staged[name])
		if err != nil {
			each(i, nil, err)
			continue
		}
		a := o.application
		o.application = nil // do not keep in memory what is no longer needed
		if !a.ShouldRun() {
			each(i, o, nil)
			continue
		}
		short, cancel := context.WithTimeout(ctx, patience)
		m, req, err := v.open(short, a, describe)
		cancel()
		if err != nil {
			o.add(Status{}, err)
			each(i, o, nil)
			continue
		}
		key := name // it is asked about alone
		if m.info.Has(submodules.FeatureStatus) && m.info.Has(submodules.FeatureStatuses) {
			key = "/" + o.Orchestrator + " " + strconv.Quote(req.Platform) // mostly
			if len(req.Env)+len(req.Disabled)+len(req.Overrides)+len(req.Values) > 0 {
				key = fmt.Sprintf("/%s %q %q %q %q %q", o.Orchestrator, req.Platform, req.Env, req.Disabled, req.Overrides, req.Values)
			}
		}
		if len(groups[key]) == 0 {
			order = append(order, key)
		}
		groups[key] = append(groups[key], question{i, o, m, req})
	}
	for _, key := range order {
		for group := groups[key]; len(group) > 0; {
			n := min(len(group), submodules.MaxApps)
			together(ctx, group[:n], each)
			group = group[n:]
		}
	}
}

// together asks one sub-module about applications whose requests differ only in the name.
func together(ctx context.Context, group []question, each func(i int, o *Overview, err error)) {
	answered := map[string]bool{}
	answer := func(q question, st Status, err error) {
		q.overview.add(st, err)
		answered[q.overview.Name] = true
		each(q.i, q.overview, nil)
	}
	var failed error
	if len(group) > 1 {
		byName, apps := map[string]question{}, []string{}
		req := group[0].req
		req.Components = []submodules.Component{}
		for _, q := range group {
			byName[q.overview.Name], apps = q, append(apps, q.overview.Name)
			for _, c := range q.req.Components {
				c.App = q.overview.Name
				req.Components = append(req.Components, c)
			}
		}
		short, cancel := context.WithTimeout(ctx, patience)
		failed = group[0].module.Statuses(short, req, apps, func(app string, s submodules.Status) {
			answer(byName[app], Status{Status: s, Known: true}, nil)
		})
		cancel()
	}
	for _, q := range group {
		switch {
		case answered[q.overview.Name]:
		case failed != nil:
			answer(q, Status{}, failed)
		default:
			short, cancel := context.WithTimeout(ctx, patience)
			st, err := q.module.status(short, q.req)
			cancel()
			answer(q, st, err)
		}
	}
}
