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

// standing is where a device stands, as far as it is right. "" is no release.
type standing struct {
	runs     string   // version that runs
	provides string   // version that the client takes for installed
	phase    string   // of the open deployment; "" is none
	kept     []string // versions that can be gone back to
}

// agrees tells whether the client knows what runs and nothing is open.
func (s standing) agrees() bool { return s.runs == s.provides && s.phase == "" }

// inspect asserts the invariant of promise 1 on a device, whatever a
// deployment was interrupted in: one release runs and no other, each service
// once and from exactly its image; every image of the engine is whole, byte
// for byte; each tag names the image it is of; the volume's content is as it
// was. With nothing open, nothing else is left in the engine, either.
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
	err = errors.Join(s.readContainers(state, c), tags(state, c), volumes(state, s, records))
	if s.phase == "" {
		err = errors.Join(err, s.onlyImages(state, c))
	}
	return s, err
}

// identify puts the digests of configs into a state in the place of the
// engine's IDs, which are others in the containerd store.
func identify(state *bed.State, configs map[string]string) {
	images := map[string]string{}
	for id, names := range state.Images {
		images[configs[id]] = names
	}
	state.Images = images
	for name, c := range state.Containers {
		c.Image = configs[c.Image]
		state.Containers[name] = c
	}
}

// provided is the version that the client takes for installed.
func provided(p map[string]string) (string, error) {
	name, version := p["artifact_name"], p["data-partition."+app+".version"]
	if name == "" && version == "" {
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

// readContainers finds out which release runs.
func (s *standing) readContainers(state bed.State, c *catalogue) error {
	if len(state.Containers) == 0 {
		return nil
	}
	web, stock := state.Service(app, "web"), state.Service(app, "stock")
	if web == nil || stock == nil || len(state.Containers) != 2 {
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

// tags asserts that no tag names another image than its own.
func tags(state bed.State, c *catalogue) error {
	var wrong []error
	for id, names := range state.Images {
		for tag := range strings.FieldsSeq(names) {
			want := id
			if tag == stockTag {
				want = c.stock
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

// volumes asserts that the data is as it was.
func volumes(state bed.State, s standing, records map[string]string) error {
	if s.runs == "" && len(records) == 0 {
		return nil // a first release that failed may leave its data
	}
	if got, want := fmt.Sprint(state.Volumes), fmt.Sprint(records); len(records) > 0 && got != want {
		return fmt.Errorf("the volumes hold %s, not %s", got, want)
	}
	return nil
}

// onlyImages asserts that the engine has the images of the release that runs
// and of those that are kept, and no others.
func (s *standing) onlyImages(state bed.State, c *catalogue) error {
	want := map[string]bool{}
	for _, v := range append([]string{s.runs}, s.kept...) {
		if r := c.releases[v]; r != nil {
			want[r.web], want[c.stock] = true, true
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

// settled inspects a device until it is right, for as long as containers may
// take to come up.
func settled(d *bed.Device, c *catalogue, records map[string]string) (s standing, err error) {
	for end := time.Now().Add(15 * time.Second); ; time.Sleep(500 * time.Millisecond) {
		if s, err = inspect(d, c, records); err == nil || time.Now().After(end) {
			return s, err
		}
	}
}

// becomes asserts that a device is right and at one of some versions, with
// the client knowing and nothing open. It returns which.
func becomes(d *bed.Device, c *catalogue, records map[string]string, versions ...string) (string, error) {
	s, err := settled(d, c, records)
	if err == nil && (!s.agrees() || !slices.Contains(versions, s.runs)) {
		err = fmt.Errorf("%q runs, the client takes %q for installed, the deployment is %q; one of %q should be", s.runs, s.provides, s.phase, versions)
	}
	return s.runs, err
}
