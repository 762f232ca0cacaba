package compose

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/compose/rules"
)

// A service may mount a directory beside the Compose files that no release brings, as in
// ./data:/data. What it writes there is the application's data. All releases have it in
// one place, <store>/<app>/data/<path in the manifests>: updates and rollbacks do not
// touch it, and PURGE removes it only with the data.

// dataDir is the directory of that data, beside the manifests.
const dataDir = "data"

// dataBase is the directory of the data of the application with the manifests in dir; "" if
// they are not in mender-app's store. owner is the user of this machine that the root of
// containers is. An engine that cannot enter the store gets <store>-data/<app>.
func (s *session) dataBase(ctx context.Context, dir string) (base string, owner int, err error) {
	home := appDirectory(s.req.App, dir)
	if home == "" {
		return "", 0, nil
	}
	remapped, err := s.engine.Remapped(ctx)
	if err != nil || !remapped {
		return filepath.Join(home, dataDir), 0, err
	}
	owner, err = s.engine.ContainerRoot(ctx)
	return filepath.Join(filepath.Dir(home)+"-"+dataDir, filepath.Base(home)), owner, err
}

// appDirectory returns <store>/<app> for a directory of manifests of the application: the
// link, or that of a release. It returns "" for any other directory.
func appDirectory(app, dir string) string {
	if ownDirectory(app, dir) {
		return filepath.Dir(dir)
	}
	at := filepath.Dir(filepath.Dir(filepath.Dir(dir)))
	if filepath.Base(dir) == "manifests" && filepath.Base(filepath.Dir(filepath.Dir(dir))) == "releases" && filepath.Base(at) == app {
		return at
	}
	return ""
}

// bringsNo reports whether a release does not bring what a service mounts from rel, a path
// in its manifests. root is the directory of the manifests without links, and data that of
// the application's data, "" if it has none.
func bringsNo(root, rel, data string) (bool, error) {
	at := filepath.Join(root, rel)
	real, err := filepath.EvalSymlinks(at)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true, nil
	case err != nil:
		return false, err
	}
	if in, err := filepath.Rel(root, real); err != nil || !filepath.IsLocal(in) {
		kept, err := filepath.EvalSymlinks(data)
		return err == nil && data != "" && strings.HasPrefix(real, kept+string(filepath.Separator)), nil
	}
	if rel == "." {
		return false, nil
	}
	if fi, err := os.Stat(real); err != nil || !fi.IsDir() || data == "" || !isDirectory(filepath.Join(data, rel)) {
		return false, err
	}
	return madeLater(root, real)
}

// hasFiles reports whether there is anything but directories below a directory.
func hasFiles(dir string) (bool, error) {
	found := errors.New("a file")
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			err = found
		}
		return err
	})
	if errors.Is(err, found) {
		return true, nil
	}
	return false, err
}

// maxLooked bounds how many files of a directory madeLater looks at.
const maxLooked = 1000

// madeLater reports whether all files below a directory of a release's manifests are
// younger than its Compose files, by a second at least: then a service wrote them. The
// kernel keeps the time that is compared; no archive sets it.
func madeLater(root, dir string) (bool, error) {
	files, err := rules.FindFiles(root)
	if err != nil {
		return false, nil // such a release was never started
	}
	var unpacked time.Time
	for _, f := range files {
		if t, err := changed(f); err == nil && t.After(unpacked) {
			unpacked = t
		}
	}
	found, n := errors.New("an older file"), 0
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if n++; n > maxLooked {
			return fs.SkipAll
		}
		t, err := changed(name)
		if err == nil && t.Before(unpacked.Add(time.Second)) {
			err = found
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a service removed it meanwhile
		}
		return err
	})
	if errors.Is(err, found) {
		return false, nil
	}
	return err == nil, err
}

// changed returns the time at which the kernel last changed a file.
func changed(name string) (time.Time, error) {
	var st unix.Stat_t
	if err := unix.Lstat(name, &st); err != nil {
		return time.Time{}, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	return time.Unix(st.Ctim.Unix()), nil
}

// dataPath returns where the application keeps what a service mounts from a path in the
// manifests; ok is false if the release brings it, or if it lies elsewhere.
func (c *copies) dataPath(source string) (path string, ok bool, err error) {
	rel, err := filepath.Rel(c.dir, source)
	if source == "" || err != nil || !filepath.IsLocal(rel) {
		return "", false, nil
	}
	ok, err = bringsNo(c.real, rel, c.data)
	return filepath.Join(c.data, rel), ok, err
}

// place makes a directory for data. Compose lets the engine make it, with the same owner
// and permissions. A service may have put a link where another one has a directory: that is
// refused.
func (c *copies) place(dir string) error {
	rel, err := filepath.Rel(c.data, dir)
	if err != nil {
		return err
	}
	if err := c.makeData(); err != nil {
		return err
	}
	at := c.data
	for _, name := range strings.Split(rel, string(filepath.Separator)) {
		at = filepath.Join(at, name)
		switch fi, err := os.Lstat(at); {
		case err == nil && fi.IsDir():
			continue
		case err == nil:
			return fmt.Errorf("%s is not a directory: a service mounts it, and nothing but directories may be there", at)
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
		if err := durable.MkdirAll(at, 0o755); err != nil {
			return err
		}
		if err := os.Chmod(at, 0o755); err != nil { // whatever the umask
			return err
		}
		if c.owner > 0 {
			if err := os.Chown(at, c.owner, c.owner); err != nil {
				return err
			}
		}
	}
	return nil
}

// isData reports whether what a service mounts from a path in the manifests is data of the
// application.
func (p *project) isData(source string) (bool, error) {
	rel, err := filepath.Rel(p.dir, source)
	if err != nil || !filepath.IsLocal(rel) {
		return false, nil
	}
	if p.oldData[rel] {
		return true, nil
	}
	real, err := filepath.EvalSymlinks(p.dir)
	if err != nil {
		return false, err
	}
	return bringsNo(real, rel, p.data)
}

// makeData creates the directory of the data. Other users who may pass through it see no
// names in it.
func (c *copies) makeData() error {
	for _, dir := range []string{filepath.Dir(c.data), c.data} {
		if err := durable.MkdirAll(dir, 0o711); err != nil {
			return err
		}
	}
	return nil
}

// dataDirectories lists the paths of the application's data in the manifests, sorted.
func (p *project) dataDirectories() (list []string, err error) {
	for _, svc := range p.model.Services {
		for _, v := range svc.Volumes {
			rel, err := filepath.Rel(p.dir, v.Text("source"))
			if v.Text("type") != "bind" || err != nil || !filepath.IsLocal(rel) || slices.Contains(list, rel) {
				continue
			}
			switch ok, err := p.isData(v.Text("source")); {
			case err != nil:
				return nil, err
			case ok:
				list = append(list, rel)
			}
		}
	}
	slices.Sort(list)
	return list, nil
}

// isDirectory reports whether a path names a directory, and not a link to one.
func isDirectory(path string) bool {
	fi, err := os.Lstat(path)
	return err == nil && fi.IsDir()
}

// dataVolumes lists the application's data in directories, for VOLUMES. With make,
// missing ones are made.
func (s *session) dataVolumes(p *project, make bool) (list []submodules.Volume, err error) {
	if p.data == "" {
		return nil, nil
	}
	c := &copies{data: p.data, owner: p.owner}
	rels, err := p.dataDirectories()
	if err != nil {
		return nil, err
	}
	for i, rel := range rels {
		if slices.ContainsFunc(rels[:i], func(above string) bool { return strings.HasPrefix(rel, above+"/") }) {
			continue // it is in that one
		}
		v := submodules.Volume{Name: "./" + rel}
		if at := filepath.Join(c.data, rel); make || isDirectory(at) {
			v.Dir = at
			if err := c.place(at); err != nil {
				return nil, err
			}
		}
		list = append(list, v)
	}
	return list, nil
}

// purgeData removes all of the application's data if that is asked for. Otherwise it removes the
// directories that a first installation made, and what of the rest has no file.
func (s *session) purgeData(dir string, made []string, all bool) error {
	if !isDirectory(dir) {
		return nil
	}
	for _, rel := range made {
		if !filepath.IsLocal(rel) {
			continue
		}
		if err := durable.RemoveAll(filepath.Join(dir, rel)); err != nil {
			return err
		}
	}
	if !all {
		if has, err := hasFiles(dir); err != nil || has {
			s.req.Logf("%s stays: it is data of the application", dir)
			return err
		}
	}
	return durable.RemoveAll(dir)
}
