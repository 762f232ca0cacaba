package policy

import (
	"cmp"
	"slices"
)

// Order returns the applications in the order in which automatic work goes
// through them, as groups: those of a group can be worked on side by side. Each
// name is there once; inside a group names are sorted.
//
//   - An application comes after those it depends on, whatever their classes.
//   - Managed applications come by class: critical, storage, discovery,
//     optional, reporting. One without a class is optional.
//   - Those with dependencies come after all critical ones without.
//   - Those that are not managed come last: they have no class.
//
// Dependencies on what is not among apps do not count. circle names
// applications that depend on each other in a circle, sorted; they are in the
// groups as if one of those dependencies were not there.
func Order(apps []App) (groups [][]string, circle []string) {
	o := newOrdering(apps)
	for len(o.left) > 0 {
		group := o.ready()
		if group == nil {
			found := o.circle()
			circle = append(circle, found...)
			group = found[:1] // as if it waited for nothing
		}
		for _, name := range group {
			o.done(name)
		}
		groups = append(groups, group)
	}
	slices.Sort(circle)
	return groups, slices.Compact(circle)
}

// ordering is Order at work.
type ordering struct {
	rank    map[string]int
	needs   map[string][]string // what each depends on
	parents map[string][]string // who depends on it
	waits   map[string]int      // for how many of its needs it still waits
	left    map[string]bool
	free    map[int][]string // by rank: those that wait for nothing
	work    int              // steps made
}

func newOrdering(apps []App) *ordering {
	o := &ordering{
		rank: map[string]int{}, needs: map[string][]string{}, parents: map[string][]string{},
		waits: map[string]int{}, left: map[string]bool{}, free: map[int][]string{},
	}
	for _, a := range apps {
		o.left[a.Name] = true
		o.rank[a.Name] = rankOf(a)
	}
	for _, a := range apps {
		for _, need := range a.Policy.dependencies() {
			o.work++
			if need.Name != a.Name && o.left[need.Name] {
				o.needs[a.Name] = append(o.needs[a.Name], need.Name)
				o.parents[need.Name] = append(o.parents[need.Name], a.Name)
				o.waits[a.Name]++
			}
		}
	}
	for name := range o.left {
		if o.waits[name] == 0 {
			o.free[o.rank[name]] = append(o.free[o.rank[name]], name)
		}
	}
	return o
}

// rankOf is the place of an application among those that wait for nothing: 0 is
// critical without dependencies, 1 critical with dependencies, then come the
// other classes, then what is not managed.
func rankOf(a App) int {
	if !a.Policy.managed() {
		return len(classes) + 1
	}
	class := a.Policy.Class
	if class == "" {
		class = ClassOptional
	}
	rank := slices.Index(classes, class)
	if rank == 0 && len(a.Policy.dependencies()) == 0 {
		return 0
	}
	return rank + 1
}

// ready takes those of the lowest rank that wait for nothing; nil: there are
// none.
func (o *ordering) ready() []string {
	for rank := range len(classes) + 2 {
		if group := o.free[rank]; len(group) > 0 {
			delete(o.free, rank)
			slices.Sort(group)
			return group
		}
	}
	return nil
}

// done lets those go on that waited for a name alone.
func (o *ordering) done(name string) {
	if !o.left[name] {
		return
	}
	delete(o.left, name)
	for _, parent := range o.parents[name] {
		o.work++
		if o.waits[parent]--; o.waits[parent] == 0 && o.left[parent] {
			o.free[o.rank[parent]] = append(o.free[o.rank[parent]], parent)
		}
	}
}

// circle returns the names of one circle among those that are left, all of
// which wait; first the one to begin with.
func (o *ordering) circle() []string {
	before := func(a, b string) int { return cmp.Or(cmp.Compare(o.rank[a], o.rank[b]), cmp.Compare(a, b)) }
	name := ""
	for n := range o.left {
		if o.work++; name == "" || before(n, name) < 0 {
			name = n
		}
	}
	at := map[string]int{}
	var path []string
	for {
		if i, seen := at[name]; seen {
			path = path[i:]
			slices.SortFunc(path, before)
			return path
		}
		at[name] = len(path)
		path = append(path, name)
		for _, need := range o.needs[name] {
			if o.work++; o.left[need] {
				name = need
				break
			}
		}
	}
}
