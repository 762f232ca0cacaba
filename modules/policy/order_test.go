package policy

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

func managed(name string, class Class, needs ...string) App {
	p := &Policy{Managed: true, Class: class}
	for _, n := range needs {
		p.Depends = append(p.Depends, Dependency{Name: n})
	}
	return App{Name: name, Policy: p}
}

func TestOrder(t *testing.T) {
	for _, c := range []struct {
		name   string
		apps   []App
		groups [][]string
		circle []string
	}{
		{name: "nothing"},
		{name: "not managed: by name", apps: []App{{Name: "b"}, {Name: "a"}, {Name: "c", Policy: &Policy{}}}, groups: [][]string{{"a", "b", "c"}}},
		{
			name: "the classes",
			apps: []App{
				managed("r", ClassReporting), managed("o", ClassOptional), managed("none", ""), managed("d", ClassDiscovery),
				managed("s", ClassStorage), managed("c", ClassCritical), managed("b", ClassCritical), {Name: "a"},
			},
			groups: [][]string{{"b", "c"}, {"s"}, {"d"}, {"none", "o"}, {"r"}, {"a"}},
		},
		{
			name:   "a dependency wins over the class",
			apps:   []App{managed("db", ClassReporting), managed("shop", ClassStorage, "db"), managed("s", ClassStorage)},
			groups: [][]string{{"s"}, {"db"}, {"shop"}},
		},
		{
			name:   "those with dependencies come after all critical ones",
			apps:   []App{managed("a", ClassCritical, "z"), managed("m", ClassCritical), managed("z", ClassCritical)},
			groups: [][]string{{"m", "z"}, {"a"}},
		},
		{
			name:   "what is not there is not waited for",
			apps:   []App{managed("a", ClassStorage, "gone")},
			groups: [][]string{{"a"}},
		},
		{
			name: "what is ignored makes no order",
			apps: []App{
				{Name: "a", Policy: &Policy{Managed: true, Class: ClassStorage, Depends: []Dependency{{Name: "b", Action: ActionIgnore}}}},
				managed("b", ClassOptional),
			},
			groups: [][]string{{"a"}, {"b"}},
		},
		{
			name:   "a circle",
			apps:   []App{managed("a", ClassStorage, "b"), managed("b", ClassOptional, "a"), managed("c", ClassOptional, "b"), {Name: "z"}},
			groups: [][]string{{"z"}, {"a"}, {"b"}, {"c"}},
			circle: []string{"a", "b"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			groups, circle := Order(c.apps)
			assert.Equal(t, c.groups, groups)
			assert.Equal(t, c.circle, circle)
		})
	}
}

// TestOrderOfAny: each application is there once, and after what it needs
// unless there is a circle.
func TestOrderOfAny(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e", "f"}
	rapid.Check(t, func(t *rapid.T) {
		var apps []App
		for _, name := range names {
			a := managed(name, rapid.SampledFrom(classes).Draw(t, "class of "+name), rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, 2, rapid.ID).Draw(t, "needs of "+name)...)
			a.Policy.Managed = rapid.Bool().Draw(t, "managed")
			apps = append(apps, a)
		}
		groups, circle := Order(apps)
		at := map[string]int{}
		for i, g := range groups {
			for _, name := range g {
				if _, twice := at[name]; twice {
					t.Fatalf("%s occurs twice: %v", name, groups)
				}
				at[name] = i
			}
		}
		if len(at) != len(names) {
			t.Fatalf("%v", groups)
		}
		for _, a := range apps {
			for _, need := range a.Policy.dependencies() {
				if need.Name != a.Name && at[need.Name] >= at[a.Name] && !slices.Contains(circle, a.Name) {
					t.Fatalf("%s comes before %s, which it needs: %v, circle %v", a.Name, need.Name, groups, circle)
				}
			}
		}
	})
}
