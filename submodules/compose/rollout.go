package compose

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
	"github.com/mender-app/mender-app/submodules/imagestore/docker"
)

// plan is a project that is ready to be brought up: everything has been checked, and
// nothing changed yet.
type plan struct {
	*project
	compose    *command
	existing   []container.Summary // the application's, of any project and directory
	everything []container.Summary // all containers of the engine
	pins       []pin
	told       []string // volumes whose loss was said
	renewals   []renewal
	volumes    []string            // volumes that stay although the release says otherwise
	schedules  map[string]schedule // of the services that have a health check
	unnamed    map[string][]string // where services get volumes without a name
	relimited  map[string]bool     // services whose containers were made again for their limits
	asked      asked               // what Compose asked the engine for, and does not know of
	waits      string              // a file of Compose for services that jobs no longer hold up; "" for none
}

// pin is a tag and the image it must name.
type pin struct {
	url string
	img docker.Image
}

// read reads the release and makes the checks that need no image. replaces returns those
// of all containers of projects that the release would replace.
func (s *session) read(ctx context.Context, replaces func(dir string, all []container.Summary) []container.Summary) (*plan, error) {
	dir, err := s.directory()
	if err != nil {
		return nil, err
	}
	c, err := s.findCompose(ctx)
	if err != nil {
		return nil, err
	}
	everything, err := s.containers(ctx, "")
	if err != nil {
		return nil, err
	}
	all := slices.DeleteFunc(slices.Clone(everything), func(c container.Summary) bool { return c.Labels[labelProject] == "" })
	pl := &plan{compose: c, existing: replaces(dir, all), everything: everything, asked: asked{}, relimited: map[string]bool{}}
	pl.project, err = s.readProject(ctx, c, dir, runsAs(pl.existing), !s.back)
	if err != nil && s.back && len(s.req.Overrides) > 0 && ctx.Err() == nil {
		// No other release could run instead.
		s.req.Logf("warning: going on without the overrides: %v", err)
		s.req.Overrides = nil
		pl.project, err = s.readProject(ctx, c, dir, runsAs(pl.existing), false)
	}
	if err != nil {
		return nil, err
	}
	if !s.back {
		if err := pl.checkModel(s.set); err != nil {
			return nil, err
		}
		if err := s.checkLevel(pl.project, pl.existing); err != nil {
			return nil, err
		}
	}
	if err := s.decrypt(ctx, pl.project); err != nil {
		return nil, err
	}
	if err := s.foreign(pl, all); err != nil {
		return nil, err
	}
	if err := s.checkOthers(ctx, pl); err != nil {
		return nil, err
	}
	if err := s.planNetworks(ctx, pl); err != nil {
		return nil, err
	}
	if pl.volumes, err = s.checkVolumes(ctx, pl.project); err != nil {
		return nil, err
	}
	if !s.back {
		if err := s.checkNetworks(ctx, pl); err != nil {
			return nil, err
		}
		if err := s.checkSubnets(ctx, pl); err != nil {
			return nil, err
		}
	}
	return pl, nil
}

// prepare checks everything that can be checked before anything changes.
func (s *session) prepare(ctx context.Context) (*plan, error) {
	s.settleKilled(ctx)
	pl, err := s.read(ctx, s.from)
	if err != nil {
		return nil, err
	}
	if err := s.pin(ctx, pl); err != nil {
		return nil, err
	}
	if err := s.findMarked(ctx, pl); err != nil {
		return nil, err
	}
	if !s.back {
		if err := s.checkNames(ctx, pl); err != nil {
			return nil, err
		}
	}
	s.setDeadline(pl)
	s.warnLate(ctx, pl, s.rest(ctx, s.set.deadline))
	if was := runsAs(pl.existing); was != "" && was != pl.name {
		s.req.Logf("warning: the project %s becomes %s: volumes that do not say a name: of their own stay with %s", was, pl.name, was)
	}
	return pl, nil
}

// runsAs returns the project that the containers of a directory belong to, "" if
// there are none. A failed release may have left containers of a project with
// another name: running containers count before others, and older before newer ones.
func runsAs(existing []container.Summary) string {
	if len(existing) == 0 {
		return ""
	}
	return slices.MinFunc(existing, func(a, b container.Summary) int {
		aRuns, bRuns := a.State == container.StateRunning, b.State == container.StateRunning
		switch {
		case aRuns && !bRuns:
			return -1
		case bRuns && !aRuns:
			return 1
		}
		return cmp.Compare(a.Created, b.Created)
	}).Labels[labelProject]
}

// findMarked notes the services whose containers would get our labels from their
// files or images, which ours override, when their health is checked, and where they get
// volumes without a name.
func (s *session) findMarked(ctx context.Context, p *plan) error {
	p.schedules, p.unnamed, p.byName = map[string]schedule{}, map[string][]string{}, map[string]map[string]string{}
	for name, svc := range p.model.Services {
		ref := svc.Image
		if r := p.images[name]; r != "" {
			ref = r
		}
		for _, pin := range p.pins { // not tagged yet
			if image.SameRef(pin.url, svc.Image) {
				ref = pin.img.ID
			}
		}
		img, err := s.engine.Client().ImageInspect(ctx, ref)
		if err != nil {
			return fmt.Errorf("service %s: %w", name, err)
		}
		labels := []map[string]string{svc.Labels}
		p.schedule(name, img)
		var volumes map[string]struct{}
		if img.Config != nil {
			labels = append(labels, img.Config.Labels)
			volumes = img.Config.Volumes
		}
		p.unnamed[name] = svc.unnamedPaths(volumes)
		for _, l := range labels {
			for _, ours := range []string{labelApp, labelContent} {
				if _, ok := l[ours]; ok {
					p.marked[name] = true
				}
			}
		}
	}
	return nil
}

// foreign refuses a project that others use: Compose would take their containers for
// the application's. The shell reference ran all applications in the one project
// "manifests"; their directories tell them apart, as long as no two have a service
// of the same name.
//
// START and ROLLBACK refuse only the containers of another application: the release was
// installed with this project, so somebody called Compose by hand with other files. Compose
// makes such a container of one of the release's services again, and leaves others alone.
func (s *session) foreign(pl *plan, all []container.Summary) error {
	mine := false
	ours := map[string]bool{} // IDs
	for _, c := range pl.existing {
		mine = mine || c.Labels[labelProject] == pl.name
		ours[c.ID] = true
	}
	for _, c := range all {
		if c.Labels[labelProject] != pl.name || ours[c.ID] || oneoff(c) {
			continue
		}
		_, same := pl.model.Services[c.Labels[labelService]]
		if _, owned := s.owner(c); s.mustStart && !owned {
			if same {
				s.req.Logf("warning: container %s, which somebody started from %s, is made again from this application's files", name(c), c.Labels[labelDir])
			}
			continue
		}
		if same || !mine {
			return invalid("the project %q is in use by container %s, which runs from %s; give this application's compose file another name:", pl.name, name(c), c.Labels[labelDir])
		}
	}
	return nil
}

// pin finds every image that the project uses, and names those that are missing.
func (s *session) pin(ctx context.Context, pl *plan) error {
	for _, comp := range s.req.Components {
		if comp.Type != "image" || comp.Digest == "" {
			continue
		}
		id, err := imagestore.ParseIdentity(comp)
		if err != nil {
			return err
		}
		img, err := s.engine.Find(ctx, s.req.App, id, comp.URL)
		if errors.Is(err, submodules.ErrNotFound) {
			return submodules.Mark(fmt.Errorf("image %s (config %s) is not there: install an artifact that contains it (mender-app install FILE), or LOAD it", comp.URL, comp.Digest), submodules.ErrNotFound)
		}
		if err != nil {
			return err
		}
		pl.pins = append(pl.pins, pin{comp.URL, img})
	}
	for _, svc := range pl.model.names() {
		ref := pl.model.Services[svc].Image
		if err := imagestore.CheckName(ref); err != nil {
			return fmt.Errorf("service %s: %w", svc, err)
		}
		bare, digest := submodules.SplitURL(ref)
		i := slices.IndexFunc(pl.pins, func(p pin) bool {
			return p.url == ref || image.SameRef(p.url, bare)
		})
		if i >= 0 {
			if digest != "" {
				// An engine knows a loaded image by its tags only.
				pl.images[svc] = pl.pins[i].img.Ref(s.req.App)
			}
			continue
		}
		if _, err := s.engine.Inspect(ctx, ref); err != nil {
			if errors.Is(err, submodules.ErrNotFound) {
				return missingImage(svc, ref)
			}
			return err
		}
	}
	return nil
}

func missingImage(service, ref string) error {
	return submodules.Mark(fmt.Errorf("service %s uses the image %s, which is neither loaded nor on the device", service, ref), submodules.ErrNotFound)
}

// Rollout implements submodules.Session. It brings the release up and returns when
// it is healthy. The order: check everything; pin the tags; remove what the release
// no longer has, because its ports and names may be reused; up; watch; tidy.
func (s *session) Rollout(ctx context.Context, _ submodules.Request) error {
	return s.orGone(ctx, s.rollout(ctx))
}

func (s *session) rollout(ctx context.Context) error {
	pl, err := s.prepare(ctx)
	if err != nil {
		return err
	}
	if err := s.putSecrets(pl.project); err != nil {
		return err
	}
	if err := s.noteMade(ctx, pl); err != nil {
		return err
	}
	s.bringBack(ctx, pl)
	before := s.bygones(ctx, pl)
	s.services, s.times = pl.model, watchDowntime(ctx, s.engine.Client(), labelService, pl.existing, s.req.Log)
	if err := s.repin(ctx, pl); err != nil {
		return err
	}
	var orphans []container.Summary
	for _, c := range pl.existing {
		if _, ok := pl.model.Services[c.Labels[labelService]]; !ok && c.Labels[labelProject] == pl.name {
			orphans = append(orphans, c)
		}
	}
	if err := s.remove(ctx, orphans); err != nil {
		return err
	}
	if err := s.bringUp(ctx, pl, before); err != nil {
		return err
	}
	if err := s.sweep(ctx, pl.project); err != nil {
		s.req.Logf("warning: old copies of mounted files stay: %v", err)
	}
	if err := s.sweepSecrets(ctx, pl.project); err != nil {
		s.req.Logf("warning: old secrets stay decrypted: %v", err)
	}
	s.req.Logf("project %s is up and healthy", pl.name)
	return nil
}

// Downtimes implements submodules.Timekeeper.
func (s *session) Downtimes(ctx context.Context, failed bool) []submodules.Downtime {
	if s.times == nil {
		return nil // nothing was changed
	}
	list, err := s.ours(ctx)
	now, ierr := s.inspect(ctx, list)
	if err != nil || ierr != nil {
		s.req.Logf("the downtime of services is not known: %v", cmp.Or(err, ierr))
		return nil
	}
	return s.times.End(now, failed, func(c container.InspectResponse) bool {
		return !c.State.Running && s.dead(c, s.services.mayEnd(serviceOf(c))) == ""
	})
}

// bygones returns what each container went through until now, by its ID.
func (s *session) bygones(ctx context.Context, pl *plan) map[string]bygone {
	before := map[string]bygone{}
	for _, c := range pl.existing {
		if full, err := s.engine.Client().ContainerInspect(ctx, c.ID); err == nil {
			before[c.ID] = bygoneOf(full)
		}
	}
	return before
}

// repin makes every tag name the image of this release.
func (s *session) repin(ctx context.Context, pl *plan) error {
	for _, p := range pl.pins {
		// The application's own reference keeps the image when the tag moves.
		if err := s.engine.Tag(ctx, p.img, p.img.Ref(s.req.App)); err != nil {
			return err
		}
		// A name with a digest and no tag cannot be given to an image.
		ref, digest := submodules.SplitURL(p.url)
		if digest != "" && !strings.Contains(filepath.Base(ref), ":") {
			continue
		}
		if err := s.engine.Tag(ctx, p.img, ref); err != nil {
			return err
		}
	}
	return nil
}

// tidy removes what other projects of the application left (a release with another name:,
// or a person who started the files under another one), and networks that nobody uses. The
// release is up already: errors here do not fail it.
func (s *session) tidy(ctx context.Context, pl *plan) {
	others := map[string][]container.Summary{}
	for _, c := range pl.existing {
		if p := c.Labels[labelProject]; p != pl.name {
			others[p] = append(others[p], c)
		}
	}
	for p, list := range others {
		if err := s.remove(ctx, list); err != nil {
			s.req.Logf("warning: %v", err)
		}
		if err := s.removeNetworks(ctx, p); err != nil {
			s.req.Logf("warning: %v", err)
		}
	}
}

// Stop implements submodules.Session. It stops the application's containers, in Compose's order where its files
// are good. With the option remove it removes them too: a restarting engine starts those
// whose restart policy is "always", although somebody stopped them.
func (s *session) Stop(ctx context.Context, r submodules.StopRequest) error {
	return s.orGone(ctx, s.stopAll(ctx, r))
}

func (s *session) stopAll(ctx context.Context, r submodules.StopRequest) error {
	dir, err := s.directory()
	if err != nil {
		return err
	}
	s.settleKilled(ctx)
	all, err := s.containers(ctx, labelProject)
	if err != nil {
		return err
	}
	list := s.from(dir, all)
	projects := map[string]bool{}
	running := 0
	for _, c := range list {
		projects[c.Labels[labelProject]] = true
		if c.State == container.StateRunning || c.State == container.StateRestarting || c.State == container.StatePaused {
			running++
		}
	}
	if running > 0 && len(projects) == 1 {
		if c, err := s.findCompose(ctx); err == nil {
			p, err := s.readProject(ctx, c, dir, list[0].Labels[labelProject], false)
			if err == nil && p.name == list[0].Labels[labelProject] {
				said := &tail{log: s.req.Log}
				if err := p.run(ctx, c.limited(s.set.deadline+upMargin), said, said, "stop"); ctx.Err() != nil {
					return err
				}
				said.flush()
			}
		}
	}
	if err := removeCommands(ctx, s.engine.Client(), s.req.App, s.req.Logf); err != nil {
		return err
	}
	// Containers that Compose left: those of services that are no longer in its
	// files.
	if running > 0 {
		for _, c := range list {
			if err := s.stop(ctx, c); err != nil {
				return err
			}
		}
	}
	if r.Remove {
		base := appDirectory(s.req.App, dir)
		if err := s.adopt(ctx, base, list); err != nil {
			return err
		}
		if _, err := s.noteUnnamed(ctx, base, list); err != nil {
			return err
		}
		if err := s.remove(ctx, list); err != nil {
			return err
		}
	}
	return s.secretsDir(dir).Remove()
}

// Start implements submodules.Session. It starts the application again, and returns when it is healthy.
func (s *session) Start(ctx context.Context, _ submodules.Request) error {
	return s.orGone(ctx, s.start(ctx))
}

func (s *session) start(ctx context.Context) error {
	s.mustStart = true
	pl, err := s.prepare(ctx)
	if err != nil {
		return err
	}
	if err := s.putSecrets(pl.project); err != nil {
		return err
	}
	s.bringBack(ctx, pl)
	before := s.bygones(ctx, pl)
	if err := s.repin(ctx, pl); err != nil {
		return err
	}
	return s.bringUp(ctx, pl, before)
}

// bringUp makes and starts what the release has, and returns when it is healthy.
func (s *session) bringUp(ctx context.Context, pl *plan, before map[string]bygone) error {
	if err := s.adoptData(ctx, pl); err != nil {
		return err
	}
	if err := s.renewNetworks(ctx, pl); err != nil {
		return err
	}
	if err := s.up(ctx, pl, before); err != nil {
		return err
	}
	list, err := s.ours(ctx)
	if err == nil {
		_, err = s.noteUnnamed(ctx, appDirectory(s.req.App, pl.dir), list)
	}
	if err != nil {
		s.req.Logf("warning: volumes without a name are not written down: %v", err) // the next call does it
	}
	if err := s.moveIn(ctx, pl); err != nil {
		return err
	}
	made, err := s.projectContainers(ctx, pl.project)
	if err != nil {
		return err
	}
	s.resetPolicies(ctx, pl.project, made)
	s.resetLimits(ctx, pl.project, made)
	if err := s.verify(ctx, pl); err != nil {
		if !s.back {
			return err
		}
		s.req.Logf("warning: %v", err) // no other release could run instead
	}
	if err := s.watch(ctx, pl.project, before); err != nil {
		return err
	}
	if err := s.recordEnded(ctx, pl.project); err != nil {
		s.req.Logf("warning: jobs that nobody waits for will run again: %v", err)
	}
	s.tidy(ctx, pl)
	return nil
}

// moveIn makes the container of one service again if none is from the project's directory:
// the release came from another directory and changed none of its services, and only by
// the newest container is the release's directory known later.
func (s *session) moveIn(ctx context.Context, pl *plan) error {
	list, err := s.ours(ctx)
	if err != nil || len(list) == 0 {
		return err
	}
	service := ""
	for _, c := range list {
		if s.takenOver(c) || sameDir(c.Labels[labelDir], pl.dir) {
			return nil
		}
		if c.State == container.StateRunning && service == "" {
			service = c.Labels[labelService]
		}
	}
	if service == "" {
		return nil // jobs that have ended
	}
	s.req.Logf("the container of service %s is made again: no other one is from %s", service, pl.dir)
	said := &tail{log: s.req.Log}
	if err := s.compose(ctx, pl, said, "--detach", "--no-deps", "--force-recreate", service); err != nil {
		return fmt.Errorf("docker compose up failed half-way: %w", said.reason(err))
	}
	said.flush()
	return nil
}
