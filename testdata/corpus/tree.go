package corpus

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// archiveFile writes a docker-archive and returns its SHA-256.
func archiveFile(to, configName string, config, manifest []byte, layers []layer) (sum string, err error) {
	f, err := os.Create(to)
	if err != nil {
		return "", err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	h := sha256.New()
	w := tar.NewWriter(io.MultiWriter(f, h))
	add := func(name string, size int64, r io.Reader) error {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: size, ModTime: time.Unix(0, 0)}); err != nil {
			return err
		}
		_, err := io.Copy(w, r)
		return err
	}
	if err := add(configName, int64(len(config)), strings.NewReader(string(config))); err != nil {
		return "", err
	}
	seen := map[string]bool{}
	for _, l := range layers {
		if seen[l.sum] {
			continue // one file serves both
		}
		seen[l.sum] = true
		in, err := os.Open(l.path)
		if err != nil {
			return "", err
		}
		err = add(l.sum+"/layer.tar", l.size, in)
		in.Close()
		if err != nil {
			return "", err
		}
	}
	if err := add("manifest.json", int64(len(manifest)), strings.NewReader(string(manifest))); err != nil {
		return "", err
	}
	if err := w.Close(); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// member is one entry of a tree.
type member struct {
	tar.Header
	data []byte
}

// tree maps names to the entries of a layer. The names have no leading "./" and no
// trailing "/".
type tree map[string]*member

// file adds a file and its parent directories.
func (t tree) file(name string, mode int64, when time.Time, data []byte) {
	t.above(name, when)
	t[name] = &member{tar.Header{Typeflag: tar.TypeReg, Mode: mode, Size: int64(len(data)), ModTime: when}, data}
}

func (t tree) link(name, to string, when time.Time) {
	t.above(name, when)
	t[name] = &member{tar.Header{Typeflag: tar.TypeSymlink, Linkname: to, Mode: 0o777, ModTime: when}, nil}
}

func (t tree) above(name string, when time.Time) {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if t[dir] == nil {
			t[dir] = &member{tar.Header{Typeflag: tar.TypeDir, Mode: 0o755, ModTime: when}, nil}
		}
	}
}

// clone copies the headers; the contents are shared.
func (t tree) clone() tree {
	c := tree{}
	for n, m := range t {
		d := *m
		c[n] = &d
	}
	return c
}

// add adds the entries of the other tree. They replace entries of the same name.
func (t tree) add(other tree) tree {
	for n, m := range other {
		t[n] = m
	}
	return t
}

// without returns the entries that are missing in the other tree or differ there.
func (t tree) without(other tree) tree {
	c := tree{}
	for n, m := range t {
		if o := other[n]; o == nil || o.Typeflag != m.Typeflag || o.Linkname != m.Linkname || o.Size != m.Size || string(o.data) != string(m.data) {
			c[n] = m
		}
	}
	return c
}

// at sets the time of all entries, like a build that does not keep times.
func (t tree) at(when time.Time) tree {
	for _, m := range t {
		m.ModTime = when
	}
	return t
}

// layer writes the tree as a layer, in the order of a walk through its directories.
func (b *builder) layer(t tree) (layer, error) {
	return b.tar(func(out io.Writer) error {
		w := tar.NewWriter(out)
		for _, name := range t.names() {
			m := t[name]
			h := m.Header
			h.Name = name
			if h.Typeflag == tar.TypeDir {
				h.Name += "/"
			}
			if err := w.WriteHeader(&h); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if _, err := w.Write(m.data); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return w.Close()
	})
}

func (t tree) names() []string {
	var names []string
	for n := range t {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b string) int {
		return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
	})
	return names
}

// layers writes each tree as a layer.
func (b *builder) layers(trees ...tree) ([]layer, error) {
	var list []layer
	for _, t := range trees {
		l, err := b.layer(t)
		if err != nil {
			return nil, err
		}
		list = append(list, l)
	}
	return list, nil
}

// pair writes the layers of both images.
func (b *builder) pair(old, next []tree) (o, n []layer, err error) {
	if o, err = b.layers(old...); err == nil {
		n, err = b.layers(next...)
	}
	return o, n, err
}
