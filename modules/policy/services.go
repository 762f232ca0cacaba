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

// SwitchedOff lists the services of a release that do not run, sorted: those that its
// policy ships switched off, and those that an operator switched off, but for those that
// the operator switched on. With keep.services = false only the choices count that were
// made on this release.
func (p *Policy) SwitchedOff(release string, choices map[string]Choice) (off []string) {
	if p != nil {
		off = slices.Clone(p.Services.Disabled)
	}
	keeps := p == nil || p.Keep.Services == nil || *p.Keep.Services
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
