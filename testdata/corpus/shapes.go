package corpus

import (
	"archive/tar"
	"path"
	"strings"
	"time"
)

// release is the input of a shape: a base system, an application and its
// configuration.
type release struct {
	base, app, conf tree
}

// shapes are the ways in which image builders change layers, whatever the layers
// contain. Each makes a pair from two releases.
var shapes = []struct {
	name, about string
	make        func(r1, r2 release) (old, new []tree)
}{
	{"rebuilt", "the same files, built anew: nothing but times differs", func(r, _ release) (old, new []tree) {
		later := time.Unix(1760000000, 0)
		return []tree{r.base, r.app, r.conf}, []tree{r.base.clone().at(later), r.app.clone().at(later.Add(time.Minute)), r.conf.clone().at(later.Add(2 * time.Minute))}
	}},
	{"inserted", "a new layer between those there are, and a small change above it", func(r1, r2 release) (old, new []tree) {
		extra := tree{}
		for i, name := range []string{"root.pem", "local.pem", "README"} {
			extra.file("usr/local/share/extra/"+name, 0o644, time.Unix(1750000000, 0), text(uint64(900+i), 20000))
		}
		return []tree{r1.base, r1.app, r1.conf}, []tree{r1.base, extra, r1.app, r2.conf}
	}},
	{"moved", "the application in another directory, as one with its version in the name", func(r1, r2 release) (old, new []tree) {
		return []tree{r1.base, under("opt/app-1.0", r1.app), r1.conf}, []tree{r1.base, under("srv/app/2.0", r2.app), r1.conf}
	}},
	{"squashed", "three layers become one", func(r1, r2 release) (old, new []tree) {
		whole := r2.base.clone().add(r2.app).add(r2.conf)
		for n := range whole { // what a whiteout hides is not in it
			if dir, name := path.Split(n); strings.HasPrefix(name, ".wh.") {
				delete(whole, dir+strings.TrimPrefix(name, ".wh."))
				delete(whole, n)
			}
		}
		return []tree{r1.base, r1.app, r1.conf}, []tree{whole}
	}},
	{"split", "one layer becomes three", func(r1, r2 release) (old, new []tree) {
		return []tree{r1.base.clone().add(r1.app).add(r1.conf)}, []tree{r2.base, r2.app, r2.conf}
	}},
	{"swapped", "the layers in another order, and one of them twice", func(r1, r2 release) (old, new []tree) {
		return []tree{r1.base, r1.app, r1.conf}, []tree{r1.base, r1.conf, r2.app, r1.conf}
	}},
}

// under moves a tree into a directory.
func under(dir string, t tree) tree {
	c := tree{}
	for n, m := range t {
		d := *m
		if d.Typeflag == tar.TypeLink {
			d.Linkname = path.Join(dir, d.Linkname)
		}
		c[path.Join(dir, n)] = &d
	}
	c.above(dir+"/x", time.Unix(1740000000, 0))
	return c
}
