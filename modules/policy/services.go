package policy

import (
	"maps"
	"slices"
)

// Choice is what an operator decided about a service of an application.
type Choice struct {
	Enabled bool
	Release string // that was installed then
}

// KeepsServices reports whether a release keeps what an operator chose on releases before
// it. said is what a person said at the installation, nil for nothing.
func (p *Policy) KeepsServices(said *bool) bool {
	if said != nil {
		return *said
	}
	return p == nil || isTrue(p.Keep.Services)
}

// KeepsOverrides is KeepsServices for overrides.
func (p *Policy) KeepsOverrides(said *bool) bool {
	if said != nil {
		return *said
	}
	return p == nil || isTrue(p.Keep.Overrides)
}

// SwitchedOff lists the services of a release that do not run, sorted: those that its
// policy ships switched off, and those that an operator switched off, but for those that
// the operator switched on. If the release does not keep them, only the choices count that
// were made on it.
func (p *Policy) SwitchedOff(release string, keeps bool, choices map[string]Choice) (off []string) {
	if p != nil {
		off = slices.Clone(p.Services.Disabled)
	}
	for _, name := range slices.Sorted(maps.Keys(choices)) {
		c := choices[name]
		switch {
		case !keeps && c.Release != release:
		case c.Enabled:
			off = slices.DeleteFunc(off, func(s string) bool { return s == name })
		default:
			off = append(off, name)
		}
	}
	slices.Sort(off)
	return slices.Compact(off)
}

// Reserved lists the services that run on the processors that the device reserves.
func (p *Policy) Reserved() []string {
	if p == nil {
		return nil
	}
	return p.Resources.CPUSet
}
