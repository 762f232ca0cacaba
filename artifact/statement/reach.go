package statement

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

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
	does, asks := r.lists()
	haveDoes, haveAsks := have.lists()
	for _, pair := range [][2]map[string]string{{does, haveDoes}, {haveDoes, does}} {
		for _, what := range slices.Sorted(maps.Keys(pair[0])) {
			if v, ok := pair[1][what]; !ok || v != pair[0][what] {
				return differs(what)
			}
		}
	}
	for _, what := range slices.Sorted(maps.Keys(asks)) {
		if !narrower(haveAsks[what], asks[what]) {
			return differs(what)
		}
	}
	return nil
}

func differs(what string) error {
	return fmt.Errorf("%w: the artifact's %s is not what it says", ErrStatement, clip.Text(what))
}

// lists are what an artifact does, which must be the same, and what a device must have.
func (r *Reach) lists() (does map[string]string, asks map[string][]string) {
	does = map[string]string{"group " + strconv.Quote(r.Group): ""}
	asks = map[string][]string{"device types": r.DeviceTypes, "name to depend on": r.DependsNames, "group to depend on": r.DependsGroups}
	for k, v := range r.Provides {
		does["provides "+strconv.Quote(k)] = v
	}
	for _, pattern := range r.Clears {
		does["clears "+strconv.Quote(pattern)] = ""
	}
	for name, sum := range r.Scripts {
		does["state script "+strconv.Quote(name)] = string(sum)
	}
	for k, v := range r.Depends {
		asks["depends "+strconv.Quote(k)] = v
	}
	return does, asks
}

// narrower reports whether a device that has one of the values have also has one of said.
// No values at all are each value.
func narrower(have, said []string) bool {
	if len(said) == 0 {
		return true
	}
	for _, v := range have {
		if !slices.Contains(said, v) {
			return false
		}
	}
	return len(have) > 0
}
