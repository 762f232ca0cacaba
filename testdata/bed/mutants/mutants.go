// Package mutants changes artifacts in one way each, at any level from the container
// down to the files in the layers. It must not know the product's packages.
package mutants

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
)

// part is a piece of an artifact: the artifact itself, a member of a tar in it,
// a member of a tar in that one, and so on down to the files in the layers.
type part struct {
	header  tar.Header
	data    []byte // the bytes as they stand in the tar above
	packed  bool   // data is a gzip stream
	members []*part
	above   *part
	changed bool // data must be made again from members
}

// takeApart reads data as a tar, compressed or not, with everything inside it. Data
// that is not a tar stays a piece without members.
func takeApart(data []byte) *part {
	p := &part{data: data}
	plain := data
	if bytes.HasPrefix(data, []byte("\x1f\x8b")) {
		if z, err := gzip.NewReader(bytes.NewReader(data)); err == nil {
			// Who reads a tar need not see what follows its end: the client 3.4.0 does not.
			if b, err := io.ReadAll(io.LimitReader(z, 64<<20)); err == nil || ends(b) {
				plain, p.packed = b, true
			}
		}
	}
	if len(plain) < 512 || string(plain[257:262]) != "ustar" {
		return p
	}
	for r := tar.NewReader(bytes.NewReader(plain)); ; {
		h, err := r.Next()
		if err != nil {
			return p // the end, or what follows is not a tar
		}
		b, err := io.ReadAll(io.LimitReader(r, 64<<20))
		if err != nil {
			return p
		}
		m := takeApart(b)
		m.header, m.above = *h, p
		p.members = append(p.members, m)
	}
}

// ends reports whether a tar is there to its end.
func ends(plain []byte) bool { return bytes.HasSuffix(plain, make([]byte, 1024)) }

// bytes puts the piece together again.
func (p *part) bytes() []byte {
	if !p.changed {
		return p.data
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, m := range p.members {
		h, b := m.header, m.bytes()
		h.Size, h.Format = int64(len(b)), tar.FormatUnknown
		if h.Typeflag != tar.TypeReg {
			h.Size, b = 0, nil
		}
		if w.WriteHeader(&h) == nil { // a name that no tar can hold drops its member
			_, _ = w.Write(b) // into memory
		}
	}
	_ = w.Close()
	p.data, p.changed = out.Bytes(), false
	if p.packed {
		p.data = compressed(p.data)
	}
	return p.data
}

func compressed(b []byte) []byte {
	var out bytes.Buffer
	z, _ := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	_, _ = z.Write(b) // into memory
	_ = z.Close()
	return out.Bytes()
}

// touch marks everything above the piece as changed, so that it is made again.
func (p *part) touch() {
	for a := p.above; a != nil; a = a.above {
		a.changed = true
	}
}

// path names the piece by all the members that lead to it.
func (p *part) path() string {
	if p.above == nil {
		return ""
	}
	return p.above.path() + "/" + strings.TrimSuffix(p.header.Name, "/")
}

func (p *part) depth() int {
	if p.above == nil {
		return 0
	}
	return p.above.depth() + 1
}

// all lists the piece and everything in it.
func (p *part) all() []*part {
	list := []*part{p}
	for _, m := range p.members {
		list = append(list, m.all()...)
	}
	return list
}

// find returns the member whose name begins with a text, or nil.
func (p *part) find(prefix string) *part {
	for _, m := range p.members {
		if strings.HasPrefix(m.header.Name, prefix) {
			return m
		}
	}
	return nil
}

// sums are the checksums that the manifest of an artifact must list.
func sums(artifact *part) (lines []string) {
	line := func(name string, data []byte) {
		lines = append(lines, fmt.Sprintf("%x  %s\n", sha256.Sum256(data), name))
	}
	for _, m := range artifact.members {
		switch name := m.header.Name; {
		case strings.HasPrefix(name, "data/"):
			for _, file := range m.members {
				line("data/0000/"+file.header.Name, file.bytes())
			}
		case !strings.HasPrefix(name, "manifest"):
			line(name, m.bytes())
		}
	}
	slices.Sort(lines)
	return lines
}

// Consistent reports whether an artifact's manifest lists what is in it.
func Consistent(file []byte) bool {
	artifact := takeApart(file)
	manifest := artifact.find("manifest")
	if manifest == nil {
		return false
	}
	listed := slices.Sorted(strings.Lines(string(manifest.data)))
	return slices.Equal(listed, sums(artifact))
}

// Make changes one thing in an artifact, at a level that is drawn first. In three
// of four cases it also corrects the manifest's checksums. It returns what it did.
func Make(r *rand.Rand, file []byte) ([]byte, string) {
	artifact := takeApart(file)
	all := artifact.all()
	deepest := 0
	for _, p := range all {
		deepest = max(deepest, p.depth())
	}
	level := r.IntN(deepest + 1)
	p := pick(r, slices.DeleteFunc(all, func(p *part) bool { return p.depth() != level }))
	path := p.path()
	what := change(r, p)
	sums := "checksums as they were"
	// What was changed in the container or in the manifest itself would be undone.
	if r.IntN(4) != 0 && p != artifact && p != artifact.find("manifest") && artifact.mend() {
		sums = "checksums made right"
	}
	return artifact.bytes(), fmt.Sprintf("level %d, %s: %s, %s", level, path, what, sums)
}

// mend corrects the manifest, and reports whether there is one.
func (p *part) mend() bool {
	manifest := p.find("manifest")
	if manifest == nil {
		return false
	}
	manifest.data = []byte(strings.Join(sums(p), ""))
	manifest.touch()
	return true
}

func pick[T any](r *rand.Rand, list []T) T { return list[r.IntN(len(list))] }
