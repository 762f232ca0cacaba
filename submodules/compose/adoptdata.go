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

	"github.com/docker/docker/api/types/container"

	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/compose/rules"
)

// Earlier versions let the engine make a directory for data in the release that was current
// when the container started. adopt moves such a directory to its place and leaves a link.
// A running service does not notice, because a mount follows the directory itself. Its
// container keeps the old path, so that Compose does not make it again.

// oldMounts returns, by their paths in the manifests, what containers mount from there by
// the path of the link: older versions let the engine make it.
func oldMounts(base string, list []container.Summary) map[string][]container.Summary {
	mounts := map[string][]container.Summary{}
	for _, c := range list {
		for _, m := range c.Mounts {
			rel, err := filepath.Rel(filepath.Join(base, "manifests"), m.Source)
			if m.Type == "bind" && err == nil && filepath.IsLocal(rel) && rel != "." {
				mounts[rel] = append(mounts[rel], c)
			}
		}
	}
	return mounts
}

// adopt moves the data that older versions left in releases to its place. It stops and
// recreates nothing. A container that an engine started on another directory than that of
// the data is restarted.
func (s *session) adopt(ctx context.Context, base string, list []container.Summary) error {
	if base == "" || !strings.HasPrefix(s.engine.Host(), "unix://") {
		return nil
	}
	data, owner, err := s.dataBase(ctx, filepath.Join(base, "manifests"))
	if err != nil {
		return err
	}
	c := &copies{data: data, owner: owner}
	mounts := oldMounts(base, list)
	var rels []string
	for rel := range mounts {
		rels = append(rels, rel)
	}
	slices.Sort(rels)
	for _, rel := range rels {
		if err := s.adoptOne(ctx, c, base, rel, mounts[rel]); err != nil {
			return fmt.Errorf("move ./%s of %s to its place: %w", rel, s.req.App, err)
		}
	}
	return nil
}

func (s *session) adoptOne(ctx context.Context, c *copies, base, rel string, list []container.Summary) error {
	roots, err := filepath.Glob(filepath.Join(base, "releases", "*", "manifests"))
	if err != nil {
		return err
	}
	var found []string // directories with data, the newest first
	for _, root := range roots {
		dir := filepath.Join(root, rel)
		real, err := filepath.EvalSymlinks(root)
		if err != nil {
			return err
		}
		if at, err := filepath.EvalSymlinks(dir); err != nil || at != filepath.Join(real, rel) {
			continue // not there, or behind a link
		}
		if fi, err := os.Stat(dir); err != nil || !fi.IsDir() {
			continue
		}
		if ours, err := madeLater(root, dir); err != nil {
			return err
		} else if ours {
			found = append(found, dir)
		}
	}
	live := map[string]bool{}
	for _, user := range list {
		full, err := s.engine.Client().ContainerInspect(ctx, user.ID)
		if err != nil {
			return err
		}
		for _, m := range user.Mounts {
			if m.Source != filepath.Join(base, "manifests", rel) {
				continue
			}
			for _, dir := range found {
				live[dir] = live[dir] || sees(full, m.Destination, dir)
			}
		}
	}
	slices.SortFunc(found, func(a, b string) int {
		switch {
		case live[a] && !live[b]:
			return -1
		case live[b] && !live[a]:
			return 1
		}
		return newest(b).Compare(newest(a))
	})
	to := filepath.Join(c.data, rel)
	if fi, err := os.Lstat(to); err == nil && fi.Mode()&fs.ModeSymlink != 0 {
		// An interrupted call was about to exchange it.
		if err := durable.Remove(to); err != nil {
			return err
		}
	}
	for _, dir := range found {
		empty, err := isBare(dir)
		if err != nil {
			return err
		}
		if empty && !live[dir] {
			continue // link makes it a link
		}
		at := to
		if isDirectory(at) {
			at = freeName(fmt.Sprintf("%s.%s", to, releaseOf(base, dir)))
			s.req.Logf("warning: %s had other files in ./%s: they are kept in %s", releaseOf(base, dir), rel, at)
		}
		if err := c.makeData(); err != nil {
			return err
		}
		if err := durable.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if err := durable.MoveBehindLink(dir, at); err != nil {
			return err
		}
		s.req.Logf("./%s is data of the application: it is in %s now", rel, at)
	}
	return s.link(ctx, c, base, rel, list)
}

// link makes the path of the manifests, which containers have from older versions, lead to
// the data. It restarts containers that mount something else by it.
func (s *session) link(ctx context.Context, data *copies, base, rel string, list []container.Summary) error {
	to := filepath.Join(data.data, rel)
	root, err := filepath.EvalSymlinks(filepath.Join(base, "manifests"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	at := filepath.Join(root, rel)
	fi, err := os.Lstat(at)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil && fi.IsDir() && os.Remove(at) == nil { // one that is empty
		err = fs.ErrNotExist
	}
	if err != nil {
		if err := data.place(to); err != nil {
			return err
		}
		if err := durable.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		target, err := filepath.Rel(filepath.Dir(at), to)
		if err != nil {
			return err
		}
		if err := durable.Symlink(target, at); err != nil {
			return err
		}
	}
	if real, err := filepath.EvalSymlinks(at); err != nil || !sameFile(real, to) {
		return nil // the release brings it
	}
	for _, c := range list {
		if c.State != container.StateRunning {
			continue
		}
		full, err := s.engine.Client().ContainerInspect(ctx, c.ID)
		if err != nil {
			return err
		}
		for _, m := range c.Mounts {
			if m.Source != filepath.Join(base, "manifests", rel) || !visible(full) || sees(full, m.Destination, to) {
				continue
			}
			s.req.Logf("restarting container %s: the engine started it on another directory than its data", name(c))
			if err := s.engine.Client().ContainerRestart(ctx, c.ID, container.StopOptions{}); err != nil {
				return fmt.Errorf("restart container %s: %w", name(c), err)
			}
			break
		}
	}
	return nil
}

// visible reports whether this process can look into a running container.
func visible(c container.InspectResponse) bool {
	if c.ContainerJSONBase == nil || c.State == nil || c.State.Pid <= 0 {
		return false
	}
	// The engine may have other numbers for processes.
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", c.State.Pid))
	return err == nil && strings.Contains(string(groups), c.ID)
}

// sees reports whether a running container has a directory of this machine at a path.
func sees(c container.InspectResponse, path, dir string) bool {
	return visible(c) && sameFile(filepath.Join(fmt.Sprintf("/proc/%d/root", c.State.Pid), path), dir)
}

func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// isBare reports whether a directory has nothing in it.
func isBare(dir string) (bool, error) {
	entries, err := os.ReadDir(dir)
	return len(entries) == 0, err
}

// newest returns the time of the newest entry of a directory.
func newest(dir string) (at time.Time) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if fi, err := e.Info(); err == nil && fi.ModTime().After(at) {
			at = fi.ModTime()
		}
	}
	return at
}

// freeName returns a name that nothing has yet, which begins with the given one.
func freeName(name string) string {
	for n, at := 2, name; ; n++ {
		if !isDirectory(at) {
			return at
		}
		at = fmt.Sprintf("%s.%d", name, n)
	}
}

// releaseOf names the release that a directory is of.
func releaseOf(base, dir string) string {
	rel, err := filepath.Rel(filepath.Join(base, "releases"), dir)
	if err != nil {
		return dir
	}
	id, _, _ := strings.Cut(rel, string(filepath.Separator))
	return id
}

// adoptData adopts the data of the application that a plan is for.
func (s *session) adoptData(ctx context.Context, pl *plan) error {
	base := appDirectory(s.req.App, pl.dir)
	if err := s.adopt(ctx, base, pl.existing); err != nil {
		return err
	}
	return s.keepPaths(ctx, base, pl)
}

// keepPaths lets services keep the paths of older versions whose containers have them and
// that Compose would not make again for another reason.
func (s *session) keepPaths(ctx context.Context, base string, pl *plan) error {
	if base == "" {
		return nil
	}
	old := oldMounts(base, pl.existing)
	if len(old) == 0 {
		return nil
	}
	pl.oldPaths = map[string]bool{}
	was := map[string]string{} // the hash of a service's definition
	for _, list := range old {
		for _, c := range list {
			svc := c.Labels[labelService]
			pl.oldPaths[svc], was[svc] = true, c.Labels[labelHash]
		}
	}
	now, err := s.hashes(ctx, pl)
	if err != nil {
		return err
	}
	for svc := range pl.oldPaths {
		pl.oldPaths[svc] = now[svc] != "" && now[svc] == was[svc]
	}
	return nil
}

// hashes returns the hash that Compose gives the definition of each service.
func (s *session) hashes(ctx context.Context, pl *plan) (map[string]string, error) {
	p, err := s.overridden(pl)
	if err != nil {
		return nil, err
	}
	out, said := submodules.Capped{Max: rules.MaxModel}, &tail{}
	if err := p.run(ctx, pl.compose.limited(readProcessor), &out, said, "config", "--hash", "*"); err != nil {
		return nil, said.reason(err)
	}
	hashes := map[string]string{}
	for _, line := range strings.Split(string(out.Bytes()), "\n") {
		if svc, hash, ok := strings.Cut(line, " "); ok {
			hashes[svc] = strings.TrimSpace(hash)
		}
	}
	return hashes, nil
}
