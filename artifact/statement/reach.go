package statement

import (
	"fmt"
	"maps"
	"slices"

	"github.com/mender-app/mender-app/artifact/clip"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/mender"
)

// Reach is what an artifact does beside its payload: what a Mender client records of the
// device, which devices the artifact is for, and the state scripts that the client runs.
type Reach struct {
	Provides      map[string]string        `json:"provides,omitempty"`
	Clears        []string                 `json:"clears_provides,omitempty"` // sorted
	Group         string                   `json:"group,omitempty"`
	DeviceTypes   []string                 `json:"device_types,omitempty"` // sorted
	Depends       map[string][]string      `json:"depends,omitempty"`      // with sorted values
	DependsNames  []string                 `json:"depends_names,omitempty"`
	DependsGroups []string                 `json:"depends_groups,omitempty"`
	Scripts       map[string]digest.Digest `json:"scripts,omitempty"` // by their names
}

// ReachOf is the reach of an artifact that was read.
func ReachOf(h *mender.Header) *Reach {
	r := &Reach{
		Provides: h.Provides, Clears: sorted(h.ClearsProvides), Group: h.Group, DeviceTypes: sorted(h.DeviceTypes),
		DependsNames: sorted(h.DependsNames), DependsGroups: sorted(h.DependsGroups),
	}
	r.setDepends(h.Depends)
	for _, name := range h.Scripts {
		r.setScript(name, h.ScriptSums[name])
	}
	return r
}

// ReachToWrite is the reach of an artifact that is to be written.
func ReachToWrite(s *mender.Spec) *Reach {
	r := &Reach{
		Provides: maps.Clone(s.Provides), Clears: sorted(s.ClearsProvides), Group: s.Group, DeviceTypes: sorted(s.DeviceTypes),
		DependsNames: sorted(s.DependsNames), DependsGroups: sorted(s.DependsGroups),
	}
	r.setDepends(s.Depends)
	for _, script := range s.Scripts {
		r.setScript(script.Name, digest.Of(script.Data))
	}
	return r
}

func (r *Reach) setDepends(depends map[string][]string) {
	for key, values := range depends {
		if r.Depends == nil {
			r.Depends = map[string][]string{}
		}
		r.Depends[key] = sorted(values)
	}
}

func (r *Reach) setScript(name string, sum digest.Digest) {
	if r.Scripts == nil {
		r.Scripts = map[string]digest.Digest{}
	}
	r.Scripts[name] = sum
}

// sorted is nil for nothing.
func sorted(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	return slices.Sorted(slices.Values(list))
}

// Covers returns an ErrStatement unless an artifact does what its statement says, and
// nothing else. The artifact may be for fewer devices than the statement says: it may ask
// for more, and never for less.
func (r *Reach) Covers(have *Reach) error {
	differs := func(what, key string) error {
		return fmt.Errorf("%w: %s %q is not what it says", ErrStatement, what, clip.Text(key))
	}
	if key, ok := difference(r.Provides, have.Provides); !ok {
		return differs("the artifact's provides", key)
	}
	if key, ok := difference(r.Scripts, have.Scripts); !ok {
		return differs("the artifact's state script", key)
	}
	switch {
	case !slices.Equal(sorted(r.Clears), sorted(have.Clears)):
		return differs("what the artifact clears,", fmt.Sprint(have.Clears))
	case r.Group != have.Group:
		return differs("the artifact group", have.Group)
	case !narrower(have.DeviceTypes, r.DeviceTypes):
		return differs("the artifact's device types", fmt.Sprint(have.DeviceTypes))
	case !narrower(have.DependsNames, r.DependsNames):
		return differs("the name that the artifact depends on,", fmt.Sprint(have.DependsNames))
	case !narrower(have.DependsGroups, r.DependsGroups):
		return differs("the group that the artifact depends on,", fmt.Sprint(have.DependsGroups))
	}
	for _, key := range slices.Sorted(maps.Keys(r.Depends)) {
		if !narrower(have.Depends[key], r.Depends[key]) {
			return differs("the artifact's depends", key)
		}
	}
	return nil
}

// narrower reports whether a device that has one of the values have also has one of said.
// No values at all are each value.
func narrower(have, said []string) bool {
	if len(said) == 0 {
		return true
	}
	return len(have) > 0 && !slices.ContainsFunc(have, func(v string) bool { return !slices.Contains(said, v) })
}

// difference returns the first key whose values differ.
func difference[V comparable](a, b map[string]V) (key string, same bool) {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]V{}
	}
	maps.Copy(all, b)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		va, ina := a[key]
		vb, inb := b[key]
		if ina != inb || va != vb {
			return key, false
		}
	}
	return "", true
}
