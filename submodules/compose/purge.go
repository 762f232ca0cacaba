package compose

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"

	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/compose/rules"
	"github.com/mender-app/mender-app/submodules/imagestore"
	"github.com/mender-app/mender-app/submodules/imagestore/docker"
)

// Purge implements submodules.Session. It removes the application's containers, then their networks, the volumes
// if that is asked for, and the images nobody else uses.
func (s *session) Purge(ctx context.Context, r submodules.PurgeRequest) error {
	images, err := s.engine.Own(ctx, s.req.App)
	if err != nil {
		return err
	}
	s.settleKilled(ctx)
	var p *project // nil if it was not read
	if r.First {
		p = s.readable(ctx)
		s.settleFirst(ctx, p, images)
	}
	has, err := s.belongings(ctx, r, p)
	if err != nil {
		return err
	}
	data, err := s.dataToRemove(ctx, r, has)
	if err != nil {
		return err
	}
	for dir := range has.dirs {
		if err := s.adopt(ctx, filepath.Dir(dir), has.containers); err != nil {
			return err
		}
	}
	if err := s.removeAll(ctx, has, data); err != nil {
		return err
	}
	if err := s.removeFiles(ctx, r, has); err != nil {
		return err
	}
	for _, img := range images {
		if err := s.delete(ctx, img, s.tagsOf(img, has.tags[img.ID])...); err != nil {
			return err
		}
	}
	return nil
}

// belongings are what PURGE finds of an application.
type belongings struct {
	containers []container.Summary
	tags       map[string][]string // image ID → tags of its containers
	dirs       map[string]bool     // the manifests they run from
	projects   map[string]bool     // without those that others have, too
	shared     map[string]bool     // projects that others have, too: their networks and volumes stay
	made       made                // by a first release
}

// belongings finds them. p is the release's project, nil if it was not read.
func (s *session) belongings(ctx context.Context, r submodules.PurgeRequest, p *project) (has belongings, err error) {
	has = belongings{tags: map[string][]string{}, dirs: map[string]bool{}, projects: map[string]bool{}}
	if has.containers, err = s.ours(ctx); err != nil {
		return has, err
	}
	all, err := s.containers(ctx, labelProject)
	if err != nil {
		return has, err
	}
	mine := map[string]bool{} // IDs
	for _, c := range has.containers {
		mine[c.ID] = true
		if dir := c.Labels[labelDir]; ownDirectory(s.req.App, dir) {
			has.dirs[dir] = true
		}
		has.projects[c.Labels[labelProject]] = true
		has.tags[c.ImageID] = append(has.tags[c.ImageID], c.Image)
	}
	if len(has.containers) == 0 {
		if !r.First {
			p = s.readable(ctx)
		}
		has.projects = s.projectsOf(p)
	}
	// Its containers may be gone already, and the copies that they mounted still be
	// there.
	if s.req.Dir != "" {
		dir, err := filepath.Abs(s.req.Dir)
		if err != nil {
			return has, err
		}
		if ownDirectory(s.req.App, dir) {
			has.dirs[dir] = true
		}
	}
	has.shared = s.shared(s.req.Dir, all, mine)
	maps.DeleteFunc(has.projects, func(p string, _ bool) bool { return has.shared[p] })
	if r.First {
		has.made, err = s.madeFirst()
	}
	return has, err
}

// dataToRemove returns the names of the volumes to remove. It says which ones stay, and notes
// them for a later PURGE.
func (s *session) dataToRemove(ctx context.Context, r submodules.PurgeRequest, has belongings) (data []string, err error) {
	named, err := s.finder().Data(ctx, has.projects)
	if err != nil {
		return nil, err
	}
	var unnamed []unnamedVolume
	for dir := range has.dirs {
		base := filepath.Dir(dir)
		noted, err := s.noteUnnamed(ctx, base, has.containers)
		if err != nil {
			return nil, err
		}
		unnamed = addUnnamed(unnamed, noted...)
		kept, err := s.kept(ctx, base, has.shared)
		if err != nil {
			return nil, err
		}
		for _, name := range kept {
			if !slices.Contains(named, name) {
				named = append(named, name)
			}
		}
		if !r.Data && !r.First {
			if err := s.noteKept(ctx, base, has.projects); err != nil {
				return nil, err
			}
		}
	}
	mounted := unnamedOf(has.containers)
	unnamed = addUnnamed(unnamed, mounted...)
	data = slices.Clone(has.made.Volumes)
	for _, v := range unnamed {
		// One that a first release got by its name has data of an earlier installation.
		if r.First && !v.ByName && slices.ContainsFunc(mounted, func(m unnamedVolume) bool { return m.Name == v.Name }) {
			data = append(data, v.Name)
		}
	}
	if r.Data {
		data = append(data, named...)
		for _, v := range unnamed {
			data = append(data, v.Name)
		}
	}
	s.tellKept(named, unnamed, data)
	return data, nil
}

// removeAll removes the containers, the networks and the volumes with these names.
func (s *session) removeAll(ctx context.Context, has belongings, volumes []string) error {
	if err := s.remove(ctx, has.containers); err != nil {
		return err
	}
	if err := removeCommands(ctx, s.engine.Client(), s.req.App, s.req.Logf); err != nil {
		return err
	}
	for p := range has.projects {
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
	return nil
}

// removeFiles removes the notes, the secrets, the copies of mounted files and, where that is
// asked for, the directories of data.
func (s *session) removeFiles(ctx context.Context, r submodules.PurgeRequest, has belongings) error {
	for dir := range has.dirs {
		base := filepath.Dir(dir)
		if _, err := s.noteUnnamed(ctx, base, nil); err != nil {
			return err
		}
		if r.Data {
			if err := durable.Remove(filepath.Join(base, keptName)); err != nil {
				return err
			}
		}
	}
	if err := s.forgetMade(); err != nil {
		return err
	}
	if err := s.secretsDir("").Remove(); err != nil {
		return err
	}
	for dir := range has.dirs {
		if err := s.secretsDir(dir).Remove(); err != nil {
			return err
		}
		mounts, err := s.mountsBase(ctx, dir)
		if err != nil {
			return err
		}
		for _, base := range []string{mounts, filepath.Join(filepath.Dir(dir), mountsDir)} { // the engine may have been another one
			if err := s.purgeMounts(base, r.Data); err != nil {
				return err
			}
		}
		data, _, err := s.dataBase(ctx, dir)
		if err != nil {
			return err
		}
		if err := s.purgeData(data, has.made.Directories, r.Data); err != nil {
			return err
		}
	}
	return nil
}

// shared are the projects that others have, too; mine are the IDs of the application's
// containers among all.
func (s *session) shared(dir string, all []container.Summary, mine map[string]bool) map[string]bool {
	shared := map[string]bool{}
	for _, c := range all {
		if !mine[c.ID] {
			shared[c.Labels[labelProject]] = true
		}
	}
	claims, _ := s.claims(dir, all)
	for p := range claims {
		shared[p] = true
	}
	return shared
}

// tellKept says which volumes stay, in a line each.
func (s *session) tellKept(named []string, unnamed []unnamedVolume, removed []string) {
	for _, name := range named {
		if !slices.Contains(removed, name) {
			s.req.Logf("volume %s stays: it is data of the application", name)
		}
	}
	for _, v := range unnamed {
		if !slices.Contains(removed, v.Name) {
			s.req.Logf("volume %s stays: it is data of the application, which service %s had in %s", v.Name, v.Service, v.Path)
		}
	}
}

// projectsOf returns the projects that the application without containers may have had: by
// its name, and by its manifests, where p is not nil.
func (s *session) projectsOf(p *project) map[string]bool {
	projects := map[string]bool{rules.ProjectName(s.req.App): true}
	if p != nil {
		projects[p.name] = true
	}
	return projects
}

// readable reads the release's project. It returns nil if Compose does not read it: such a
// release made nothing.
func (s *session) readable(ctx context.Context) *project {
	if s.req.Dir == "" {
		return nil
	}
	dir, err := s.directory()
	if err != nil {
		return nil
	}
	c, err := s.findCompose(ctx)
	if err != nil {
		return nil
	}
	p, err := s.readProject(ctx, c, dir, "", false)
	if err != nil {
		return nil
	}
	return p
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

// finder finds the application's volumes.
func (s *session) finder() volumeFinder {
	return volumeFinder{Engine: s.engine.Client(), Ours: s.owned, Log: s.req.Logf}
}

// Volumes implements submodules.VolumeLister.
func (s *session) Volumes(ctx context.Context, r submodules.VolumesRequest) ([]submodules.Volume, error) {
	dir, err := s.directory()
	if err != nil {
		return nil, err
	}
	c, err := s.findCompose(ctx)
	if err != nil {
		return nil, err
	}
	ours, err := s.ours(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkNamedVolumes(ours); err != nil {
		return nil, err
	}
	was := runsAs(ours)
	p, err := s.readProject(ctx, c, dir, was, false)
	if err != nil {
		return nil, err
	}
	if err := s.checkProject(ctx, p); err != nil {
		return nil, err
	}
	if named, err := rules.Named(dir, p.files); err != nil || !named && was != "" && was != rules.ProjectName(s.req.App) {
		return nil, cmp.Or(content(err), invalid("only the containers say that the project is %s, and they are removed: write name: %s into the compose files", was, was))
	}
	if !strings.HasPrefix(s.engine.Host(), "unix://") {
		s.req.Logf("the engine is on another machine, and its volumes with it")
		return nil, nil
	}
	if r.Make {
		if err := s.finder().Make(ctx, p.name, p.model.Volumes); err != nil {
			return nil, err
		}
	}
	list, err := s.finder().Own(ctx, p.name, p.model.Volumes)
	if err != nil {
		return nil, err
	}
	if err := s.adopt(ctx, appDirectory(s.req.App, dir), ours); err != nil {
		return nil, err
	}
	directories, err := s.dataVolumes(p, r.Make)
	return append(list, directories...), err
}

// ExportManifest implements submodules.Session. It copies the manifests the application runs from to req.Dir.
func (s *session) ExportManifest(ctx context.Context, _ submodules.Request) error {
	list, err := s.ours(ctx)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return submodules.Mark(fmt.Errorf("application %s is not installed: it has no containers", s.req.App), submodules.ErrNotFound)
	}
	from := s.manifestsOf(list)
	err = exportFiles(from, s.req.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return submodules.Mark(fmt.Errorf("the manifests of application %s are gone from %s", s.req.App, from), submodules.ErrNotFound)
	}
	return err
}
