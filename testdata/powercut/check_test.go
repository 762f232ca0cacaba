package powercut

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mender-app/mender-app/testdata/bed"
)

// standing says which release a device runs and what its client believes. A version
// of "" means no release.
type standing struct {
	runs     string   // version that runs
	provides string   // version that the client takes for installed
	phase    string   // of the open deployment; "" is none
	kept     []string // versions that can be gone back to
}

// agrees reports whether the client believes in the release that runs, with no
// deployment open.
func (s standing) agrees() bool { return s.runs == s.provides && s.phase == "" }

// inspect asserts the invariant of promise 1, whatever a deployment was interrupted
// in. Exactly one release runs: each service once, from its own image, and it answers
// on its port. Every image
// of the engine is complete, byte for byte. Each tag names its own image. The
// volume's content is unchanged. If no deployment is open, the engine also holds no
// other images.
func inspect(d *bed.Device, c *catalogue, records map[string]string) (s standing, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	state, err := d.State("/")
	if err != nil {
		return s, err
	}
	if s.provides, err = provided(state.Provides); err != nil {
		return s, err
	}
	if err := s.readJournal(d); err != nil {
		return s, err
	}
	configs, err := d.ReadImages(ctx)
	if err != nil {
		return s, err
	}
	identify(&state, configs)
	err = errors.Join(s.readContainers(state, c), s.answers(d), tags(state, c), volumes(state, s, records))
	if s.phase == "" {
		err = errors.Join(err, s.onlyImages(state, c))
	}
	return s, err
}

// identify replaces the engine's image IDs in a state with config digests, and the
// full names of images with those in the manifests. The containerd store uses other
// IDs, and Podman full names.
func identify(state *bed.State, configs map[string]string) {
	images := map[string]string{}
	for id, names := range state.Images {
		images[configs[id]] = strings.ReplaceAll(names, "docker.io/", "")
	}
	state.Images = images
	for name, c := range state.Containers {
		c.Image, c.Ref = configs[c.Image], strings.TrimPrefix(c.Ref, "docker.io/")
		state.Containers[name] = c
	}
}

// noArtifact is the name that the client in C++ stores for a device without an artifact.
const noArtifact = "unknown"

// provided returns the version that the client believes to be installed.
func provided(p map[string]string) (string, error) {
	name, version := p["artifact_name"], p["data-partition."+app+".version"]
	if (name == "" || name == noArtifact) && version == "" {
		return "", nil
	}
	if name != app+"-"+version {
		return "", fmt.Errorf("the client provides %v", p)
	}
	return version, nil
}

func (s *standing) readJournal(d *bed.Device) error {
	r, err := d.Run("mender-app", "list", "--json")
	if err != nil || r.Code != 0 {
		return fmt.Errorf("mender-app list: %w %s", err, r.Output())
	}
	var apps []struct {
		Kept       []string
		Problem    string
		Deployment *struct{ Phase string }
	}
	if err := json.Unmarshal([]byte(r.Stdout), &apps); err != nil {
		return fmt.Errorf("mender-app list: %w", err)
	}
	for _, a := range apps {
		for _, id := range a.Kept {
			s.kept = append(s.kept, id[strings.LastIndex(id, "-")+1:])
		}
		if a.Deployment != nil {
			s.phase = a.Deployment.Phase
		} else if a.Problem != "" {
			return fmt.Errorf("mender-app list: %s", a.Problem)
		}
	}
	return nil
}

// readContainers determines which release runs.
func (s *standing) readContainers(state bed.State, c *catalogue) error {
	if len(state.Containers) == 0 {
		return nil
	}
	web, stock := state.Service(app, "web"), state.Service(app, "stock")
	services := 2
	if work.ledger != "" {
		services = 3
		if l := state.Service(app, "ledger"); l == nil || l.Status != "running" || l.Image != c.ledger {
			return fmt.Errorf("the ledger is not there: %v", state.Containers)
		}
	}
	if web == nil || stock == nil || len(state.Containers) != services {
		return fmt.Errorf("these containers are there: %v", state.Containers)
	}
	r := c.byWeb(web.Image)
	if r == nil || r.fails || web.Status != "running" {
		return fmt.Errorf("web is %s, of image %s (%s)", web.Status, web.Image, web.Ref)
	}
	s.runs = r.version
	if web.Ref != r.tag() || stock.Ref != stockTag || stock.Image != c.stock || stock.Status != "running" {
		return fmt.Errorf("web is of %s, stock is %s, of image %s (%s)", web.Ref, stock.Status, stock.Image, stock.Ref)
	}
	return nil
}

// answers asserts that the release that runs answers on its port, and nothing else does.
func (s *standing) answers(d *bed.Device) error {
	r, err := d.Run("timeout", "5", "bash", "-c", "cat </dev/tcp/127.0.0.1/"+port)
	if err != nil {
		return err
	}
	want := ""
	if s.runs != "" {
		want = "web " + s.runs
	}
	if got := strings.TrimSpace(r.Stdout); got != want {
		return fmt.Errorf("port %s answers %q, not %q: %s", port, got, want, r.Stderr)
	}
	if work.ledger != "" && s.runs != "" {
		_, err = ledgerRows(d, s.runs)
	}
	return err
}

// tags asserts that each tag names its own image.
func tags(state bed.State, c *catalogue) error {
	var wrong []error
	for id, names := range state.Images {
		for tag := range strings.FieldsSeq(names) {
			want := id
			switch tag {
			case stockTag:
				want = c.stock
			case ledgerTag:
				want = c.ledger
			}
			for _, r := range c.releases {
				if tag == r.tag() {
					want = r.web
				}
			}
			if want != id {
				wrong = append(wrong, fmt.Errorf("tag %s names %s, not %s", tag, id, want))
			}
		}
	}
	return errors.Join(wrong...)
}

// volumes asserts that the data is unchanged.
func volumes(state bed.State, s standing, records map[string]string) error {
	if s.runs == "" && len(records) == 0 {
		return nil // a first release that failed may leave its data
	}
	delete(state.Volumes, ledgerData) // see ledgerRows
	if got, want := fmt.Sprint(state.Volumes), fmt.Sprint(records); len(records) > 0 && got != want {
		return fmt.Errorf("the volumes hold %s, not %s", got, want)
	}
	return nil
}

// onlyImages asserts that the engine has exactly the images of the running release
// and of the kept releases.
func (s *standing) onlyImages(state bed.State, c *catalogue) error {
	want := map[string]bool{}
	for _, v := range append([]string{s.runs}, s.kept...) {
		if r := c.releases[v]; r != nil {
			want[r.web], want[c.stock] = true, true
			if c.ledger != "" {
				want[c.ledger] = true
			}
		}
	}
	var wrong []error
	for id, names := range state.Images {
		if !want[id] {
			wrong = append(wrong, fmt.Errorf("image %s (%s) is left over", id, names))
		}
		delete(want, id)
	}
	for id := range want {
		wrong = append(wrong, fmt.Errorf("image %s is not there", id))
	}
	return errors.Join(wrong...)
}

// settled repeats the inspection until it succeeds, for at most 15 s: containers
// take a while to start.
func settled(d *bed.Device, c *catalogue, records map[string]string) (s standing, err error) {
	for end := time.Now().Add(15 * time.Second); ; time.Sleep(500 * time.Millisecond) {
		if s, err = inspect(d, c, records); err == nil || time.Now().After(end) {
			return s, err
		}
	}
}

// becomes asserts that a device passes the inspection, runs one of the versions,
// that the client knows it, and that no deployment is open. It returns the version
// that runs.
func becomes(d *bed.Device, c *catalogue, records map[string]string, versions ...string) (string, error) {
	s, err := settled(d, c, records)
	if err == nil && (!s.agrees() || !slices.Contains(versions, s.runs)) {
		err = fmt.Errorf("%q runs, the client takes %q for installed, the deployment is %q; one of %q should be", s.runs, s.provides, s.phase, versions)
	}
	return s.runs, err
}

// overrideFile is what an operator changes: web has one more label.
const overrideFile = "override.yaml"

// overridden reports whether the application has the operator's override, and asserts that
// what runs agrees.
func overridden(d *bed.Device) (bool, error) {
	r, err := d.Run("mender-app", "overrides", "show", app)
	if err != nil || r.Code != 0 {
		return false, fmt.Errorf("mender-app overrides show: %w %s", err, r.Output())
	}
	has := strings.Contains(r.Stdout, "cut:")
	cli, err := d.Docker()
	if err != nil {
		return false, err
	}
	defer cli.Close()
	c, err := cli.ContainerInspect(context.Background(), app+"-web-1")
	if err == nil && (c.Config.Labels["cut"] == "yes") != has {
		err = fmt.Errorf("web has the labels %v, and the override is there: %v", c.Config.Labels, has)
	}
	return has, err
}
