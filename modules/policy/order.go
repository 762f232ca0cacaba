package policy

import (
	"cmp"
	"slices"
)

// Order returns the applications in the order of automatic work, as groups: the
// applications of a group can be processed in parallel. Each name occurs once. Inside
// a group the names are sorted.
//
//   - An application comes after those it depends on, regardless of their classes.
//   - Managed applications come by class: critical, storage, discovery,
//     optional, reporting. One without a class is optional.
//   - Applications with dependencies come after all critical ones without.
//   - Applications that are not managed come last: they have no class.
//
// Dependencies on applications that are not in apps do not count. circle has the
// sorted names of applications that depend on each other in a cycle. The groups order
// them as if one of these dependencies did not exist.
func Order(apps []App) (groups [][]string, circle []string) {
	o := newOrdering(apps)
	for len(o.left) > 0 {
		group := o.ready()
		if group == nil {
			found := o.circle()
			circle = append(circle, found...)
			group = found[:1] // ignore its dependencies
		}
		for _, name := range group {
			o.done(name)
		}
		groups = append(groups, group)
	}
	slices.Sort(circle)
	return groups, slices.Compact(circle)
}

// ordering is the state of Order.
type ordering struct {
	rank    map[string]int
	needs   map[string][]string // by name, the dependencies
	parents map[string][]string // by name, the applications that depend on it
	waits   map[string]int      // by name, how many dependencies are not in a group yet
	left    map[string]bool
	free    map[int][]string // by rank, those without such dependencies
	work    int              // number of steps
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

// rankOf returns the rank of an application among those that can be next: 0 is
// critical without dependencies, 1 is critical with dependencies, then the other
// classes, and last applications that are not managed.
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

// ready removes and returns the applications of the lowest rank that wait for
// nothing; nil if there are none.
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

// done records that a name is in a group: applications that waited only for it can be next.
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

// circle returns the names of one cycle among the remaining applications, which all
// wait. The first name is the one to begin with.
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
