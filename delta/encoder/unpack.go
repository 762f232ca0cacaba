package encoder

import (
	"path"
	"strings"

	"github.com/mender-app/mender-app/delta/internal/tarheader"
)

// unpacking finds the members of a tar that a store has at their paths once it has
// unpacked the tar, member after member: a later member of a path takes the place of an
// earlier one with all that is below, and links to directories are followed, inside the
// layer.
type unpacking struct {
	made map[string]place // by the path where it is, links followed
	cut  map[string]int   // the last member that is not a directory, by its place
}

type place struct {
	member int
	link   string // of a symbolic link
}

const maxLinks = 40 // the kernel's

// readable returns the members whose content can be read at their paths, by path.
func readable(members []tarheader.Member) map[string]int {
	last := map[string]int{}
	through := map[string]bool{} // directories of members
	odd := false
	for i := range members {
		m := &members[i]
		if m.Path == "" {
			continue
		}
		last[m.Path] = i
		for dir := path.Dir(m.Path); dir != "." && !through[dir]; dir = path.Dir(dir) {
			through[dir] = true
		}
	}
	for i := range members {
		odd = odd || !isDir(&members[i]) && through[members[i].Path]
	}
	if odd { // a member is below something that is not a directory
		u := &unpacking{made: map[string]place{}, cut: map[string]int{}}
		at := make([]string, len(members))
		for i := range members {
			at[i] = u.add(i, &members[i])
		}
		for p, i := range last {
			now, found := u.find(p)
			if what, there := u.live(now); !found || now != at[i] || !there || what.member != i {
				delete(last, p)
			}
		}
	}
	for p, i := range last {
		if m := &members[i]; !m.File() || m.Size == 0 {
			delete(last, p)
		}
	}
	return last
}

// isDir reports whether a member is a directory, which a tar of before POSIX tells by a
// slash alone: such a member has no content.
func isDir(m *tarheader.Member) bool { return m.Type == '5' || m.Type == 0 && m.Size == 0 }

// add unpacks a member, and returns where.
func (u *unpacking) add(i int, m *tarheader.Member) string {
	if m.Path == "" || strings.HasPrefix(path.Base(m.Path), ".wh.") {
		return ""
	}
	at, ok := u.find(m.Path)
	if !ok {
		return ""
	}
	now := place{member: i}
	if m.Type == '2' {
		now.link = m.Link
	}
	u.made[at] = now
	if !isDir(m) {
		u.cut[at] = i
	}
	return at
}

// live returns what is at a path that has no links on the way.
func (u *unpacking) live(p string) (place, bool) {
	what, ok := u.made[p]
	for dir := path.Dir(p); ok && dir != "."; dir = path.Dir(dir) {
		if cut, gone := u.cut[dir]; gone && cut > what.member {
			return place{}, false
		}
	}
	return what, ok
}

// find returns where a path leads now. A link at its end is not followed.
func (u *unpacking) find(p string) (string, bool) {
	rest, base := path.Split(p)
	at, links := "", 0
	for rest != "" {
		var next string
		next, rest, _ = strings.Cut(rest, "/")
		switch next {
		case "", ".":
			continue
		case "..":
			if at = path.Dir(at); at == "." {
				at = ""
			}
			continue
		}
		step := path.Join(at, next)
		what, ok := u.live(step)
		if !ok || what.link == "" {
			at = step
			continue
		}
		if links++; links > maxLinks {
			return "", false
		}
		if path.IsAbs(what.link) {
			at = ""
		}
		if rest = what.link + "/" + rest; len(rest) > 1<<16 {
			return "", false
		}
	}
	return path.Join(at, base), true
}
