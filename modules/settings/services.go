package settings

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/modules/facts"
	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// This file keeps what an operator decided about the services of an application:
// which are switched on and off. It must not know how services are started and stopped.

// ServicesOff lists the services of a release that do not run, because its policy or an operator
// says so. An application that is not installed yet is nil.
func ServicesOff(log *slog.Logger, a *store.App, app string, r *store.Release) []string {
	choices := map[string]policy.Choice{}
	if a != nil {
		for name, c := range a.Services {
			choices[name] = policy.Choice(c)
		}
	}
	if len(choices) == 0 && r.Policy == nil {
		return nil
	}
	p := facts.PolicyOf(log, app, r)
	return p.SwitchedOff(r.ID, p.KeepsServices(r.KeepServices), choices)
}

// LacksServices refuses a policy that switches services off where the sub-module cannot.
func LacksServices(p *policy.Policy, app string, info submodules.Info, orchestrator string) error {
	if p == nil || len(p.Services.Disabled) == 0 || info.Has(submodules.FeatureServices) {
		return nil
	}
	return fmt.Errorf("services.disabled of %s: the sub-module %s cannot switch services off: update it, or remove the key", app, orchestrator)
}

// ChooseService records what an operator decided, and makes it durable. back takes it back.
func ChooseService(a *store.App, service string, on bool) (back func() error, err error) {
	before := maps.Clone(a.Services)
	if a.Services == nil {
		a.Services = map[string]store.ServiceChoice{}
	}
	a.Services[service] = store.ServiceChoice{Enabled: on, Release: a.Current}
	return func() error { a.Services = before; return a.Save() }, a.Save()
}

// CheckService returns a submodules.ErrNotFound if a service is not one of an application, which
// CHECK said to have the services all.
func CheckService(app, service string, all submodules.Changes) error {
	services := slices.Concat(all.Starts, all.Restarts, all.Keeps)
	if slices.Contains(services, service) {
		return nil
	}
	slices.Sort(services)
	return submodules.Mark(fmt.Errorf("%s has no service %s: it has %s", app, service, strings.Join(services, ", ")), submodules.ErrNotFound)
}
