package compose

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/mender-app/mender-app/store/durable"
)

// copies are what services mount from the manifests, in
// <store>/<app>/mounts/<hash>/<path in the manifests>. The name is a hash of the
// content, so the path stays the same over releases exactly as long as the content
// does. Only root can enter the store: see mountsBase for what others mount.
//
// Mounting the release's own directory does not work. The kernel follows the link
// <app>/manifests once, when the container starts. A service that no release changes
// would keep the directory of the first release, and lose its files when that
// release is removed.
type copies struct {
	dir   string   // the project's, a link
	real  string   // where it leads now
	base  string   // see mountsBase
	data  string   // see dataBase
	owner int      // the user of this machine that the root of containers is
	below []string // paths of data in the manifests
}

// copies returns nil if the project is not in mender-app's store: nobody replaces or
// removes the directory there.
func (p *project) copies(app string) (*copies, error) {
	if in, err := inStore(app, p.dir); err != nil || !in {
		return nil, err
	}
	real, err := filepath.EvalSymlinks(p.dir)
	if err != nil {
		return nil, err
	}
	below, err := p.dataDirectories()
	if err != nil {
		return nil, err
	}
	return &copies{dir: p.dir, real: real, base: p.mounts, data: p.data, owner: p.owner, below: below}, nil
}

// inStore reports whether the manifests of the application in dir are those of mender-app's
// store, where a link names them.
func inStore(app, dir string) (bool, error) {
	fi, err := os.Lstat(dir)
	return err == nil && fi.Mode()&fs.ModeSymlink != 0 && ownDirectory(app, dir), err
}

// volumes returns the service's mounts with the paths of copies and of data. With keep,
// those of data are left as they are.
func (c *copies) volumes(svc service, keep bool) ([]mount, error) {
	var list []mount
	for _, v := range svc.Volumes {
		if v.Text("type") != "bind" {
			continue
		}
		to, ok, err := c.dataPath(v.Text("source"))
		switch {
		case err != nil:
			return nil, err
		case ok && keep:
			continue
		case ok:
			err = c.place(to)
		default:
			to, err = c.path(v.Text("source"))
		}
		if err != nil {
			return nil, err
		}
		if to == "" {
			continue
		}
		moved := mount{}
		for k, x := range v {
			moved[k] = x
		}
		moved["source"] = strings.ReplaceAll(to, "$", "$$")
		list = append(list, moved)
	}
	return list, nil
}

// objects returns the configs or secrets with the paths of copies of their files.
func (c *copies) objects(all map[string]fileObject) (map[string]fileObject, error) {
	moved := map[string]fileObject{}
	for name, o := range all {
		to, err := c.path(o.File)
		if err != nil {
			return nil, err
		}
		if to != "" {
			moved[name] = fileObject{File: strings.ReplaceAll(to, "$", "$$")}
		}
	}
	return moved, nil
}

// path returns the copy of a file or directory of the manifests, and makes it if
// needed. It returns "" for a path elsewhere, and for one that the release does not
// have.
func (c *copies) path(source string) (string, error) {
	rel, err := filepath.Rel(c.dir, source)
	if source == "" || err != nil || !filepath.IsLocal(rel) {
		return "", nil
	}
	real, err := filepath.EvalSymlinks(filepath.Join(c.real, rel))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if in, err := filepath.Rel(c.real, real); err != nil || !filepath.IsLocal(in) {
		return "", nil // a link that leads out of the manifests
	}
	name, err := c.hash(c.real, rel)
	if err != nil {
		return "", err
	}
	to := filepath.Join(c.base, name)
	there, err := isThere(real, filepath.Join(to, rel))
	if err != nil {
		return "", err
	}
	if there {
		return filepath.Join(to, rel), nil
	}
	if err := durable.RemoveAll(to); err != nil { // what it had is lost
		return "", err
	}
	if err := c.make(); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(c.base, durable.TempPrefix+"*")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o755); err != nil {
		return "", err
	}
	at := filepath.Join(tmp, rel)
	if rel == "." { // all manifests: CopyTree makes the directory
		if err := os.Remove(tmp); err != nil {
			return "", err
		}
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return "", err
	}
	if err := durable.CopyTree(real, at); err != nil {
		return "", err
	}
	// A service may have data mounted below, where the engine cannot make a directory if
	// the copy is mounted read-only.
	for _, data := range c.below {
		if in, err := filepath.Rel(rel, data); err == nil && filepath.IsLocal(in) {
			if err := os.MkdirAll(filepath.Join(tmp, data), 0o755); err != nil {
				return "", err
			}
		}
	}
	// After a power cut the engine starts containers by itself.
	if err := durable.SyncTree(tmp); err != nil {
		return "", err
	}
	return filepath.Join(to, rel), durable.Rename(tmp, to)
}

// isThere reports whether a copy has what it is of. The engine makes a directory where the
// source of a mount is missing.
func isThere(source, copied string) (bool, error) {
	was, err := os.Stat(source)
	if err != nil {
		return false, err
	}
	is, err := os.Stat(copied)
	return err == nil && is.IsDir() == was.IsDir(), nil
}

// make creates the directory of the copies. Other users who may pass through it see no
// names in it: they reach only what they can name.
func (c *copies) make() error {
	for _, dir := range []string{filepath.Dir(c.base), c.base} {
		if err := durable.MkdirAll(dir, 0o711); err != nil {
			return err
		}
	}
	return nil
}

// hash identifies the tree at root/rel by its path and content.
func (c *copies) hash(root, rel string) (string, error) {
	h := sha256.New()
	if err := hashTree(h, root, rel); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// mountsDir is the directory of the copies beside the manifests.
const mountsDir = "mounts"

// mountsBase is the directory of what the application with the manifests in dir mounts.
// The engine of root mounts what is in the store: permissions of the directories above do
// not count inside of a container. An engine of another user, or one that maps the root
// of containers to another user, has to enter each directory of a path. It gets
// <store>-mounts/<app>.
func (s *session) mountsBase(ctx context.Context, dir string) (string, error) {
	remapped, err := s.engine.Remapped(ctx)
	if err != nil {
		return "", err
	}
	home := filepath.Dir(dir)
	if remapped {
		return filepath.Join(filepath.Dir(home)+"-"+mountsDir, filepath.Base(home)), nil
	}
	return filepath.Join(home, mountsDir), nil
}

// purgeMounts removes the copies of a removed application. A copy that a service has
// written into is data, and is removed only with data.
func (s *session) purgeMounts(base string, data bool) error {
	if data {
		return durable.RemoveAll(base)
	}
	entries, err := os.ReadDir(base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	c := &copies{base: base}
	left := 0
	for _, e := range entries {
		at := filepath.Join(base, e.Name())
		same, err := c.unchanged(e.Name())
		if err != nil {
			return err
		}
		if !same && !strings.HasPrefix(e.Name(), durable.TempPrefix) {
			s.req.Logf("%s stays: a service has written into it", at)
			left++
			continue
		}
		if err := durable.RemoveAll(at); err != nil {
			return err
		}
	}
	if left > 0 {
		return nil
	}
	return durable.RemoveAll(base)
}

// sweep removes the copies that neither this release nor any container mounts. A
// copy that a service has written into is data, and stays.
func (s *session) sweep(ctx context.Context, p *project) error {
	c, err := p.copies(s.req.App)
	if err != nil || c == nil {
		return err
	}
	entries, err := os.ReadDir(c.base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := durable.Sweep(c.base); err != nil {
		return err
	}
	all, err := s.containers(ctx, labelProject)
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for _, ct := range all {
		for _, m := range ct.Mounts {
			if rel, err := filepath.Rel(c.base, m.Source); err == nil && filepath.IsLocal(rel) {
				used[strings.Split(rel, string(filepath.Separator))[0]] = true
			}
		}
	}
	for _, e := range entries {
		if used[e.Name()] || strings.HasPrefix(e.Name(), durable.TempPrefix) {
			continue
		}
		same, err := c.unchanged(e.Name())
		if err != nil {
			return err
		}
		if !same {
			s.req.Logf("%s stays: a service has written into it", filepath.Join(c.base, e.Name()))
			continue
		}
		if err := durable.RemoveAll(filepath.Join(c.base, e.Name())); err != nil {
			return fmt.Errorf("remove %s: %w", e.Name(), err)
		}
	}
	return nil
}

// unchanged reports whether a copy still has the content that its name says. The
// hash covers a path, which is that of the first thing that is not a directory with
// a single entry, or of a directory above it; so all of them are tried.
func (c *copies) unchanged(name string) (bool, error) {
	same, err := c.hasName(name)
	if err != nil || same {
		return same, err
	}
	// The engine makes directories for what is mounted below. They are not data.
	if err := dropEmpty(filepath.Join(c.base, name)); err != nil {
		return false, err
	}
	return c.hasName(name)
}

// dropEmpty removes the directories below a directory that have no files.
func dropEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // a file
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		at := filepath.Join(dir, e.Name())
		if err := dropEmpty(at); err != nil {
			return err
		}
		if err := os.Remove(at); err != nil && !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, syscall.EEXIST) {
			return err
		}
	}
	return nil
}

// hasName reports whether the name of a copy is the hash of what it has.
func (c *copies) hasName(name string) (bool, error) {
	root := filepath.Join(c.base, name)
	rel := "."
	for {
		sum, err := c.hash(root, rel)
		if err != nil || sum == name {
			return sum == name, err
		}
		entries, err := os.ReadDir(filepath.Join(root, rel))
		if err != nil || len(entries) != 1 {
			return false, nil
		}
		rel = filepath.Join(rel, entries[0].Name())
	}
}
