package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact/clip"
)

// With returns the installed applications as they will be once others are installed too.
// The application in question stays unchanged.
func With(installed, others []App, about string) []App {
	list := slices.Clone(installed)
	for _, o := range others {
		i := slices.IndexFunc(list, func(a App) bool { return a.Name == o.Name })
		switch {
		case o.Name == about:
		case i < 0:
			list = append(list, o)
		default:
			list[i] = o
		}
	}
	return list
}

// apply finds the staged artifacts that meet a dependency of an application, and those
// they need in turn, and treats them as installed. It takes the newest one that matches
// and tries no other: its own policy is checked before anything is loaded.
//
// path has the applications that wait for it; each needs the next.
func (d *decider) apply(app *App, need Dependency, path []string) *Finding {
	path = append(path, app.Name)
	f := d.unmet(app, need)
	have := d.installed[need.Name]
	switch {
	case f == nil || have != nil && have.Status == Open:
		return f
	case slices.Contains(path, need.Name):
		f.Reason = "it depends on itself: " + clip.Text(strings.Join(append(path, need.Name), " needs "))
		f.Remedy = "break the circle in one of their policies"
		return f
	case slices.ContainsFunc(d.first, func(s Staged) bool { return s.Name == need.Name }):
		f.Reason = fmt.Sprintf("%s is installed in %s first, because another application needs that", need.Name, named(have.Version))
		f.Remedy = "stage versions that fit together, or install " + need.Name + " first"
		return f
	}
	i := slices.IndexFunc(d.Staged, func(s Staged) bool {
		d.work++
		return s.Name == need.Name && d.matches(need.Version, s.Version)
	})
	if i < 0 {
		f.Reason += ", and no matching artifact is staged"
		f.Remedy = "stage an artifact of it with mender-app stage, or " + f.Remedy
		return f
	}
	next := d.Staged[i]
	for _, n := range next.Policy.dependencies() {
		if n.action() != ActionApply {
			continue
		}
		if f := d.apply(&next.App, n, path); f != nil {
			return f
		}
	}
	d.first = append(d.first, next)
	d.installed[need.Name] = &next.App
	return nil
}
