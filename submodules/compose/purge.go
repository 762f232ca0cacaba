package compose

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/volume"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
	"github.com/mender-app/mender-app/submodules/imagestore/docker"
)

// Purge implements submodules.Session. It removes the application's containers, then their networks, the volumes
// if that is asked for, and the images nobody else uses.
func (s *session) Purge(ctx context.Context) error {
	list, err := s.ours(ctx)
	if err != nil {
		return err
	}
	all, err := s.containers(ctx, labelProject)
	if err != nil {
		return err
	}
	mine := map[string]bool{} // IDs
	dirs := map[string]bool{} // the manifests they run from
	projects := map[string]bool{}
	urls := map[string][]string{} // image ID → tags
	for _, c := range list {
		mine[c.ID] = true
		if dir := c.Labels[labelDir]; ownDirectory(s.req.App, dir) {
			dirs[dir] = true
		}
		projects[c.Labels[labelProject]] = true
		urls[c.ImageID] = append(urls[c.ImageID], c.Image)
	}
	// Its containers may be gone already, and the copies that they mounted still be
	// there.
	if s.req.Dir != "" {
		dir, err := filepath.Abs(s.req.Dir)
		if err != nil {
			return err
		}
		if ownDirectory(s.req.App, dir) {
			dirs[dir] = true
		}
	}
	// If others share the project, its networks and volumes are theirs too and stay.
	for _, c := range all {
		if !mine[c.ID] {
			delete(projects, c.Labels[labelProject])
		}
	}
	var volumes []string
	if s.req.PurgeData {
		if volumes, err = s.volumes(ctx, projects, list); err != nil {
			return err
		}
	}
	images, err := s.engine.Own(ctx, s.req.App)
	if err != nil {
		return err
	}
	if err := s.remove(ctx, list); err != nil {
		return err
	}
	for p := range projects {
		if err := s.removeNetworks(ctx, p); err != nil {
			return err
		}
	}
	for _, v := range volumes {
		if err := s.engine.Client().VolumeRemove(ctx, v, false); err != nil && !docker.IsNotFound(err) {
			if docker.IsConflict(err) {
				s.req.Logf("volume %s stays: it is in use", v)
				continue
			}
			return fmt.Errorf("remove volume %s: %w", v, err)
		}
		s.req.Logf("volume %s is removed", v)
	}
	if err := s.secretsDir("").Remove(); err != nil {
		return err
	}
	for dir := range dirs {
		if err := s.secretsDir(dir).Remove(); err != nil {
			return err
		}
		if err := s.purgeMounts(filepath.Join(filepath.Dir(dir), mountsDir)); err != nil {
			return err
		}
	}
	for _, img := range images {
		if err := s.engine.Delete(ctx, s.req.App, img, s.tagsOf(img, urls[img.ID])...); err != nil {
			return err
		}
	}
	return nil
}

// tagsOf returns the tags to remove with the application: those that its containers
// and its release used.
func (s *session) tagsOf(img docker.Image, containers []string) []string {
	var refs []string
	for _, url := range s.named(img) {
		ref, _ := submodules.SplitURL(url)
		refs = append(refs, ref)
	}
	for _, name := range containers {
		if name != img.ID && !slices.Contains(refs, name) {
			refs = append(refs, name)
		}
	}
	if len(refs) > 0 {
		return refs
	}
	// If there is one tag beside our own, LOAD made it.
	var tags []string
	for _, t := range img.Tags {
		if !imagestore.IsOwnRef(t) {
			tags = append(tags, t)
		}
	}
	if len(tags) == 1 {
		return tags
	}
	return nil
}

// volumes returns the application's data: the projects' named volumes and the
// containers' anonymous ones.
func (s *session) volumes(ctx context.Context, projects map[string]bool, list []container.Summary) ([]string, error) {
	var names []string
	for p := range projects {
		res, err := s.engine.Client().VolumeList(ctx, volume.ListOptions{Filters: filters.NewArgs(filters.Arg("label", labelProject+"="+p))})
		if err != nil {
			return nil, fmt.Errorf("list volumes: %w", err)
		}
		for _, v := range res.Volumes {
			names = append(names, v.Name)
		}
	}
	for _, c := range list {
		for _, m := range c.Mounts {
			if m.Type == "volume" && isAnonymous(m.Name) {
				names = append(names, m.Name)
			}
		}
	}
	return names, nil
}

// ExportManifest implements submodules.Session. It copies the manifests the application runs from to req.Dir.
func (s *session) ExportManifest(ctx context.Context) error {
	list, err := s.ours(ctx)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return submodules.Mark(fmt.Errorf("application %s is not installed: it has no containers", s.req.App), submodules.ErrNotFound)
	}
	from := s.manifestsOf(list)
	src, err := os.OpenRoot(from)
	if errors.Is(err, fs.ErrNotExist) {
		return submodules.Mark(fmt.Errorf("the manifests of application %s are gone from %s", s.req.App, from), submodules.ErrNotFound)
	}
	if err != nil {
		return err
	}
	defer src.Close()
	if err := os.MkdirAll(s.req.Dir, 0o755); err != nil {
		return err
	}
	dst, err := os.OpenRoot(s.req.Dir)
	if err != nil {
		return err
	}
	defer dst.Close()
	return fs.WalkDir(src.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			if err := dst.Mkdir(name, fi.Mode().Perm()|0o700); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
		case d.Type()&fs.ModeSymlink != 0:
			target, err := src.Readlink(name)
			if err != nil {
				return err
			}
			if err := dst.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return dst.Symlink(target, name)
		case d.Type().IsRegular():
			return copyFile(dst, src, name, fi.Mode().Perm())
		}
		return nil
	})
}
