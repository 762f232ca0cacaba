package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact/clip"
)

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// depends checks the dependencies of the application.
func (d *decider) depends() *Finding {
	for _, need := range d.App.Policy.dependencies() {
		if need.action() != ActionApply {
			continue
		}
		if f := d.apply(&d.App, need, nil); f != nil {
			return f
		}
	}
	for _, need := range d.App.Policy.dependencies() { // an artifact installed first may break or meet a dependency
		f := d.unmet(&d.App, need)
		if f == nil {
			continue
		}
		if need.action() != ActionWarn {
			return f
		}
		d.warnings = append(d.warnings, *f)
	}
	return nil
}

// unmet says why a dependency of an application is not met; nil if it is met.
func (d *decider) unmet(app *App, need Dependency) *Finding {
	finding := func(reason, remedy string) *Finding {
		return &Finding{Rule: "depends", App: app.Name, Reason: reason, Remedy: remedy}
	}
	wanted := need.Name
	if need.Version != "" {
		wanted += " in a version that matches " + need.Version
	}
	have := d.installed[need.Name]
	switch {
	case have == nil:
		return finding(need.Name+" is not installed", "install "+wanted+" first")
	case !d.matches(need.Version, have.Version):
		return finding(fmt.Sprintf("%s is installed in %s", need.Name, named(have.Version)), "install "+wanted+" first")
	case have.Status == Open:
		return finding("an update of "+need.Name+" is not complete", "end it with mender-app resume, or commit it")
	}
	return nil
}

// dependents checks that the operation does not break other applications'
// dependencies on this one. A dependency that is already broken does not count.
func (d *decider) dependents() *Finding {
	here := d.here()
	for i := range d.Installed {
		parent := &d.Installed[i]
		if parent.Name == d.App.Name {
			continue
		}
		for _, need := range parent.Policy.dependencies() {
			d.work++
			if need.Name != d.App.Name || here == nil || !d.matches(need.Version, here.Version) {
				continue
			}
			if d.Operation == Install && d.matches(need.Version, d.App.Version) || d.excepted(parent) {
				continue
			}
			f := d.breaks(parent, need)
			if need.action() != ActionWarn {
				return f
			}
			d.warnings = append(d.warnings, *f)
		}
	}
	return nil
}

func (d *decider) breaks(parent *App, need Dependency) *Finding {
	if d.Operation == Remove {
		return &Finding{Rule: "depends", App: parent.Name, Reason: fmt.Sprintf("it needs %s", d.App.Name),
			Remedy: fmt.Sprintf("remove %s first", parent.Name)}
	}
	return &Finding{Rule: "depends", App: parent.Name,
		Reason: fmt.Sprintf("it needs %s in a version that matches %s, and the artifact has %s", d.App.Name, need.Version, named(d.App.Version)),
		Remedy: fmt.Sprintf("update %s first, or name it in dependent_parent_exceptions of %s", parent.Name, d.App.Name)}
}

// excepted reports whether the application's policy lets the dependency of a
// parent break.
func (d *decider) excepted(parent *App) bool {
	if d.App.Policy == nil {
		return false
	}
	for _, e := range d.App.Policy.Exceptions {
		if e.Name == parent.Name && d.matches(e.Version, parent.Version) {
			return true
		}
	}
	return false
}

// cycle refuses an application that would depend on itself.
func (d *decider) cycle() *Finding {
	if len(d.App.Policy.dependencies()) == 0 {
		return nil
	}
	path := d.wayBack()
	if path == nil {
		return nil
	}
	return d.finding("depends", "it depends on itself: "+clip.Text(strings.Join(path, " needs ")),
		"break the circle in one of their policies")
}

// wayBack returns the names of a cycle of dependencies from the application to
// itself; nil if there is none. It visits each application once.
func (d *decider) wayBack() []string {
	from := map[string]string{} // maps each reached application to the one that depends on it
	queue := []string{d.App.Name}
	for len(queue) > 0 {
		name := queue[0]
		queue = queue[1:]
		policy := d.App.Policy
		if name != d.App.Name {
			have := d.installed[name]
			if have == nil {
				continue
			}
			policy = have.Policy
		}
		for _, need := range policy.dependencies() {
			d.work++
			if need.Name == d.App.Name {
				path := []string{d.App.Name}
				for ; name != d.App.Name; name = from[name] {
					path = append(path, name)
				}
				path = append(path, d.App.Name)
				slices.Reverse(path)
				return path
			}
			if _, seen := from[need.Name]; !seen {
				from[need.Name] = name
				queue = append(queue, need.Name)
			}
		}
	}
	return nil
}
