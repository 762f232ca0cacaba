package policy

import (
	"maps"
	"slices"
)

// Choice is an operator's decision about a service of an application.
type Choice struct {
	Enabled bool
	Release string // the release installed at the time
}

// KeepsServices reports whether a release keeps an operator's choices from earlier
// releases. said is a person's decision at the installation, nil for none.
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

// SwitchedOff lists the services of a release that do not run, sorted: those its policy
// ships switched off and those an operator switched off, except those the operator
// switched on. If the release does not keep choices, only those made on it count.
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

// Reserved lists the services that run on the device's reserved processors.
func (p *Policy) Reserved() []string {
	if p == nil {
		return nil
	}
	return p.Resources.CPUSet
}
