package imagestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules"
)

// RepairStore is a Store whose images can be repaired.
type RepairStore interface {
	Store
	// PlanRepair finds the images that have to be loaded again to repair those of q,
	// and the applications that run from them. With k it keeps the layers that the
	// store will lack then. It changes nothing in the store. It returns nil if
	// nothing is damaged.
	PlanRepair(ctx context.Context, q RepairRequest, k *Keeper) (*RepairPlan, error)
	// RemoveDamaged stops what runs from the plan's damaged layers, keeps its
	// data, and removes those layers from the store. It may be called again.
	// release ends the protection of the remaining layers from garbage
	// collection; it is called after the images were loaded, or on an error.
	RemoveDamaged(ctx context.Context, plan *RepairPlan) (release func(), err error)
	// Damages reads an image as containers see it and describes its damaged parts,
	// one in each line.
	Damages(ctx context.Context, img Stored) ([]string, error)
	// Sync returns when everything that was loaded is durable.
	Sync(ctx context.Context) error
}

// RepairRequest says what to repair.
type RepairRequest struct {
	App    string
	Want   []Damaged
	Dir    string // the repair's own directory, which outlives the call
	Source string // directory with image archives, "" for none
	Finish bool   // only complete a repair that an earlier call began
	Log    func(format string, args ...any)
}

// Damaged is an image that has to be repaired.
type Damaged struct {
	URL string // its name for people
	Identity
}

// typeImage is the type of components that are images. Components without a type are
// images too.
const typeImage = "image"

// NewRepairRequest reads a sub-module's REPAIR call.
func NewRepairRequest(r submodules.RepairRequest) (RepairRequest, error) {
	q := RepairRequest{App: r.App, Dir: r.Work, Source: r.Source, Finish: r.Finish, Log: r.Logf}
	for _, c := range r.Components {
		if c.Type != "" && c.Type != typeImage || c.Digest == "" {
			continue
		}
		id, err := ParseIdentity(c)
		if err != nil {
			return q, err
		}
		q.Want = append(q.Want, Damaged{URL: c.URL, Identity: id})
	}
	return q, nil
}

// RepairPlan is plan.json in the repair's directory. It is written when everything
// that is needed is durable in the directory. From then on the repair is completed,
// also after a crash.
type RepairPlan struct {
	Images []RepairImage  `json:"images"`
	Chains []image.Digest `json:"chains,omitempty"` // chain IDs of layers that are unpacked again, with all layers above
	Blobs  []image.Digest `json:"blobs,omitempty"`  // blobs that are replaced
	Apps   []string       `json:"apps,omitempty"`   // applications that had containers: to be rolled out again
	Done   bool           `json:"done,omitempty"`
}

// RepairImage is an image that is loaded again.
type RepairImage struct {
	ID      string         `json:"id,omitempty"`  // the store's own name, before; "" where there is none
	URL     string         `json:"url,omitempty"` // what the manifests call an image that is missing
	Config  image.Digest   `json:"config"`
	DiffIDs []image.Digest `json:"diff_ids"`
	Names   []string       `json:"names"`           // an own reference first, unless no layer is replaced
	Floor   image.Digest   `json:"floor,omitempty"` // chain ID of the layers that stay unpacked
}

// UnmarshalJSON also reads the plans of earlier versions, in which the names of
// Docker's images are tags.
func (p *RepairImage) UnmarshalJSON(data []byte) error {
	type plain RepairImage
	v := struct {
		*plain
		Tags []string `json:"tags"`
	}{plain: (*plain)(p)}
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	if len(p.Names) == 0 {
		p.Names = v.Tags
	}
	if len(p.Names) == 0 {
		return errors.New("an image without names")
	}
	return nil
}

// Identity is the image's identity.
func (p RepairImage) Identity() Identity { return Identity{Config: p.Config, DiffIDs: p.DiffIDs} }

// Repair repairs images, and returns the applications whose containers it had to
// remove. Before it changes anything, everything that is needed to restore what it
// removes is durable in q.Dir. If a crash interrupts a repair, the same call resumes
// it.
//
// The error for an image that cannot be repaired is submodules.ErrContent; then
// nothing is changed. If the store still reads an image as damaged after all images of
// the repair were loaded again, the repair ends: another attempt would end the same
// way. Repair logs it and returns the applications, so that they run as before; a
// verification tells what is damaged. Any other error leaves a repair to be resumed.
func Repair(ctx context.Context, s RepairStore, q RepairRequest) (apps []string, err error) {
	dir := RepairDir(q.Dir)
	plan, err := ResumeOrPlan(dir, q.Finish, func() (*RepairPlan, error) { return makePlan(ctx, s, q) })
	if err != nil || plan == nil {
		return nil, err
	}
	if plan.Done {
		return plan.Apps, nil
	}
	if err := carryOut(ctx, s, q, plan); err != nil {
		return nil, fmt.Errorf("the repair is not complete; continue it with mender-app resume: %w", err)
	}
	return plan.Apps, nil
}

// finish records that nothing of a plan is left to do, and removes what was kept for it.
func finish(dir RepairDir, plan *RepairPlan) error {
	plan.Done = true
	if err := dir.WritePlan(plan); err != nil {
		return err
	}
	return dir.Clear()
}

// makePlan returns a plan that is durable, nil if nothing is damaged.
func makePlan(ctx context.Context, s RepairStore, q RepairRequest) (*RepairPlan, error) {
	source, err := OpenSource(q.Source)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	plan, err := s.PlanRepair(ctx, q, &Keeper{app: q.App, dir: RepairDir(q.Dir), Source: source})
	if err != nil || plan == nil {
		return nil, err
	}
	return plan, RepairDir(q.Dir).WritePlan(plan)
}

// carryOut executes the plan. Every step may be repeated.
func carryOut(ctx context.Context, s RepairStore, q RepairRequest, plan *RepairPlan) error {
	if err := durable.Point("repair.planned"); err != nil {
		return err
	}
	release, err := s.RemoveDamaged(ctx, plan)
	if err != nil {
		return err
	}
	defer release()
	dir := RepairDir(q.Dir)
	for _, p := range plan.Images {
		damages, err := reload(ctx, s, q, p)
		if err != nil {
			return fmt.Errorf("image %s: %w", p.Config, err)
		}
		if len(damages) > 0 {
			q.Log("warning: image %s was loaded again, and the engine kept what was damaged (%s)", p.Names[0], damages[0])
		}
	}
	if err := s.Sync(ctx); err != nil {
		return err
	}
	if err := durable.Point("repair.loaded"); err != nil {
		return err
	}
	return finish(dir, plan)
}

// reload loads an image from what was kept, names it, and returns what is still
// damaged.
func reload(ctx context.Context, s RepairStore, q RepairRequest, p RepairImage) (damages []string, err error) {
	dir := RepairDir(q.Dir)
	img, err := s.Find(ctx, q.App, p.Identity(), "")
	missing := errors.Is(err, submodules.ErrNotFound)
	if err != nil && !missing {
		return nil, err
	}
	if missing || slices.ContainsFunc(p.DiffIDs, dir.Has) {
		q.Log("loading image %s again", p.Names[0])
		if err := loadKept(ctx, s, dir, p); err != nil {
			return nil, err
		}
		if img, err = s.Find(ctx, q.App, p.Identity(), p.Names[0]); err != nil {
			return nil, err
		}
	}
	for _, name := range p.Names {
		if err := s.Name(ctx, img, name, p.URL); err != nil {
			return nil, err
		}
	}
	return s.Damages(ctx, img)
}

// loadKept loads an image from what was kept. Layers that were not are in the
// store.
func loadKept(ctx context.Context, s RepairStore, dir RepairDir, p RepairImage) error {
	config, err := keptConfig(ctx, s, dir, p.Config)
	if err != nil {
		return err
	}
	present, err := s.Present(ctx, p.DiffIDs)
	if err != nil {
		return err
	}
	omit := map[image.Digest]image.Descriptor{}
	var layers []image.Layer
	for _, d := range p.DiffIDs {
		l, ok := dir.Layer(d)
		if !ok {
			if omit[d], ok = present[d]; !ok {
				return fmt.Errorf("layer %s is not in %s any more", d, dir)
			}
			l = image.Layer{DiffID: d, Size: -1}
		}
		layers = append(layers, l)
	}
	img, err := image.New(config, layers)
	if err != nil {
		return err
	}
	pr, pw := io.Pipe()
	go func() {
		_ = pw.CloseWithError(image.WriteArchive(pw, image.ArchiveSpec{Image: img, RepoTags: p.Names[:1], Omit: omit}))
	}()
	err = s.Load(ctx, struct{ io.Reader }{pr})
	pr.CloseWithError(errors.New("the engine reads no more"))
	return err
}

// OwnFirst puts an own reference at the head of an image's names.
func OwnFirst(names []string) []string {
	names = slices.Clone(names)
	slices.SortStableFunc(names, func(a, b string) int {
		switch {
		case IsOwnRef(a) == IsOwnRef(b):
			return strings.Compare(a, b)
		case IsOwnRef(a):
			return -1
		}
		return 1
	})
	return names
}
