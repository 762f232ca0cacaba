package source

import (
	"path"
	"strings"

	"github.com/mender-app/mender-app/artifact/layer"
)

// places are what a layer has made so far. Docker's classic store (overlay2) unpacks a layer
// into a directory of its own, where only this exists.
type places struct {
	names map[string]bool   // as the tar has them
	made  map[string]bool   // where they are, and each directory above
	links map[string]string // the target of each symbolic link, by its place
}

func newPlaces() *places {
	return &places{names: map[string]bool{}, made: map[string]bool{"": true}, links: map[string]string{}}
}

// maxHops is how many symbolic links the kernel follows on one path.
const maxHops = 40

// MaxClassicLayers is how many layers of an image Docker's classic store takes (moby,
// layer/layer_store.go: maxLayerDepth).
const MaxClassicLayers = 125

// add says why Docker's classic store refuses a layer with this member after the others; ""
// if it takes it. Its record of a layer (vbatts/tar-split) refuses a path that is there
// twice, no directory can be made through a link that leads to nothing, and a hard link needs
// its target. The store that Docker shares with containerd takes these.
func (p *places) add(m layer.Member) string {
	switch m.Kind {
	case layer.None, layer.Whiteout, layer.Opaque, layer.Unknown:
		return ""
	}
	if p.names[m.Path] {
		return "it has " + m.Path + " twice"
	}
	p.names[m.Path] = true
	dir, linked := p.resolve(path.Dir(m.Path))
	if linked && !p.made[dir] {
		return "it has " + m.Path + " below a link to something that it does not have"
	}
	at := layer.Clean(dir + "/" + path.Base(m.Path))
	for above := at; !p.made[above]; above = layer.Clean(path.Dir(above)) {
		p.made[above] = true
	}
	if m.Kind == layer.Link {
		if target := p.place(m.Header.Linkname); !p.made[target] {
			return "it has " + m.Path + " as a hard link to " + target + ", which it does not have"
		}
	}
	if m.Kind == layer.Symlink {
		p.links[at] = m.Header.Linkname
	}
	return ""
}

// place is where a name of a layer leads. A link at its end is not followed.
func (p *places) place(name string) string {
	name = layer.Clean(name)
	dir, _ := p.resolve(path.Dir(name))
	return layer.Clean(dir + "/" + path.Base(name))
}

// resolve follows the links on the way to a directory, and reports whether there are any. Of
// links that lead in a circle it says nothing.
func (p *places) resolve(dir string) (at string, linked bool) {
	rest := strings.Split(layer.Clean(dir), "/")
	for hops := 0; len(rest) > 0; {
		next := layer.Clean(at + "/" + rest[0])
		rest = rest[1:]
		target, link := p.links[next]
		if !link {
			at = next
			continue
		}
		if hops++; hops > maxHops {
			return "", false
		}
		linked = true
		if !path.IsAbs(target) {
			target = at + "/" + target
		}
		rest, at = append(strings.Split(layer.Clean(target), "/"), rest...), ""
	}
	return at, linked
}
