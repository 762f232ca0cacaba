package containerd

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	ocidigest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// planner finds damaged layers and all images that share them, and keeps the content
// that is needed to replace them. It changes nothing in containerd.
type planner struct {
	s      *Store
	t      repairStore
	k      *imagestore.Keeper
	list   []*stored
	urls   map[image.Digest]string    // config → a name for people
	chains map[image.Digest]bool      // chain IDs of the layers with damaged unpacked files
	blobs  map[ocidigest.Digest]bool  // damaged blobs
	lacks  map[*stored]map[int]string // layers that have no undamaged blob, and why
	gone   []imagestore.Damaged       // missing images
}

// PlanRepair implements imagestore.RepairStore.
func (t repairStore) PlanRepair(ctx context.Context, q imagestore.RepairRequest, k *imagestore.Keeper) (*imagestore.RepairPlan, error) {
	s := t.Store
	p := &planner{
		s: s, t: t, k: k, urls: map[image.Digest]string{},
		chains: map[image.Digest]bool{}, blobs: map[ocidigest.Digest]bool{}, lacks: map[*stored]map[int]string{},
	}
	var err error
	if p.list, err = s.all(ctx); err != nil {
		return nil, err
	}
	if err := p.survey(ctx, q.Want); err != nil || len(p.lacks)+len(p.gone) == 0 {
		return nil, err
	}
	if err := p.k.MakeRoom(p.need()); err != nil {
		return nil, err
	}
	plan := &imagestore.RepairPlan{}
	for _, w := range p.gone {
		img, err := p.keepAll(ctx, w)
		if err != nil {
			return nil, err
		}
		plan.Images = append(plan.Images, img)
	}
	for _, st := range p.list {
		if p.lacks[st] == nil {
			continue
		}
		if err := p.keepLacking(ctx, st); err != nil {
			return nil, err
		}
	}
	// Now it is known which files are damaged: some could not be compared before
	// there was an undamaged blob.
	for _, st := range p.list {
		img, err := p.image(ctx, st)
		if err != nil {
			return nil, err
		}
		if img != nil {
			plan.Images = append(plan.Images, *img)
		}
	}
	plan.Chains, plan.Blobs = slices.Sorted(maps.Keys(p.chains)), nil
	for _, d := range slices.Sorted(maps.Keys(p.blobs)) {
		plan.Blobs = append(plan.Blobs, image.Digest(d))
	}
	plan.Apps, err = p.users(ctx, plan)
	return plan, err
}

// survey verifies the wanted images.
func (p *planner) survey(ctx context.Context, want []imagestore.Damaged) error {
	seen := map[image.Digest]bool{}
	for _, w := range want {
		p.urls[w.Config] = w.URL
		if seen[w.Config] {
			continue
		}
		seen[w.Config] = true
		found, err := p.s.find(ctx, w.Identity)
		if err != nil {
			return err
		}
		if found == nil {
			p.gone = append(p.gone, w)
			continue
		}
		i := slices.IndexFunc(p.list, func(st *stored) bool { return st.manifest.Digest == found.manifest.Digest })
		if i < 0 {
			return fmt.Errorf("%s: it changes while it is looked at: try again", w.URL)
		}
		p.urls[found.config] = w.URL
		if err := p.note(ctx, p.list[i], 0); err != nil {
			return err
		}
	}
	return nil
}

// note reads the layers of an image, beginning at index from, and notes the
// damages.
func (p *planner) note(ctx context.Context, st *stored, from int) error {
	list, err := p.s.damages(ctx, st, from)
	if err != nil {
		return err
	}
	chains := image.ChainIDs(st.diffIDs)
	for _, d := range list {
		p.s.log("%s: %s", p.name(st), d.what)
		if p.lacks[st] == nil {
			p.lacks[st] = map[int]string{}
		}
		if d.blob != "" {
			p.blobs[d.blob] = true
		}
		if d.blob != "" || d.gone {
			p.lacks[st][d.layer] = d.what
		} else {
			p.chains[chains[d.layer]] = true
		}
	}
	return nil
}

// name returns an image's name for people.
func (p *planner) name(st *stored) string {
	if url := p.urls[st.config]; url != "" {
		return url
	}
	return "image " + st.names[0] + ", which shares a damaged layer,"
}

// need is the size of the content that has to be kept, in bytes, as far as it is
// known.
func (p *planner) need() (need int64) {
	seen := map[image.Digest]bool{}
	add := func(d image.Digest) {
		if !seen[d] {
			need += p.k.SourceSize(d)
		}
		seen[d] = true
	}
	for _, w := range p.gone {
		for _, d := range w.DiffIDs {
			add(d)
		}
	}
	for st, layers := range p.lacks {
		for i := range layers {
			add(st.diffIDs[i])
		}
	}
	return need
}

// copies are the copies of a layer in blobs that are not known to be damaged.
func (p *planner) copies(ctx context.Context, d image.Digest) (copies []*image.Layer, err error) {
	seen := map[ocidigest.Digest]bool{}
	add := func(desc ocispec.Descriptor) error {
		if p.blobs[desc.Digest] || seen[desc.Digest] {
			return nil
		}
		seen[desc.Digest] = true
		held, err := p.s.holds(ctx, desc)
		if held {
			copies = append(copies, &image.Layer{DiffID: d, Size: -1, Open: func() (io.ReadCloser, error) { return p.s.open(ctx, desc) }})
		}
		return err
	}
	for _, st := range p.list {
		for i := range st.diffIDs {
			if st.diffIDs[i] == d {
				if err := add(st.layers[i]); err != nil {
					return nil, err
				}
			}
		}
	}
	blobs, err := p.s.blobs(ctx, []image.Digest{d})
	if err == nil && blobs[d].Digest != "" {
		err = add(blobs[d])
	}
	return copies, err
}

// keep keeps a layer. It returns false if there is no whole copy.
func (p *planner) keep(ctx context.Context, d image.Digest) (bool, error) {
	return p.k.Layer(ctx, d, func() ([]*image.Layer, error) { return p.copies(ctx, d) })
}

// keepAll keeps all parts of a missing image.
func (p *planner) keepAll(ctx context.Context, w imagestore.Damaged) (imagestore.RepairImage, error) {
	img, err := p.k.Missing(w)
	if err != nil {
		return img, err
	}
	if err := p.k.Config(ctx, img.Config, func() (imagestore.Old, error) { return p.s.Old(ctx, nil) }); err != nil {
		return img, p.k.Lost(w.URL, "it is not there")
	}
	for _, d := range img.DiffIDs {
		if kept, err := p.keep(ctx, d); err != nil {
			return img, err
		} else if !kept {
			return img, p.k.Lost(w.URL, fmt.Sprintf("layer %s: it is not there whole", d))
		}
	}
	return img, nil
}

// keepLacking keeps the layers of an image that have no whole blob, and compares
// the unpacked files with them.
func (p *planner) keepLacking(ctx context.Context, st *stored) error {
	chains := image.ChainIDs(st.diffIDs)
	for i, what := range p.lacks[st] {
		d := st.diffIDs[i]
		if kept, err := p.keep(ctx, d); err != nil {
			return err
		} else if !kept {
			return p.k.Lost(p.name(st), what)
		}
		l, _ := p.k.Kept(d)
		bad, files, err := p.s.compare(ctx, &l, chains[i])
		if err == nil {
			err = bad
		}
		if err != nil {
			return err
		}
		if len(files) > 0 {
			p.chains[chains[i]] = true
		}
	}
	return nil
}

// image returns the repair of an image, nil if it needs none. The image is unpacked
// again from its lowest damaged layer upwards, which needs all blobs above.
func (p *planner) image(ctx context.Context, st *stored) (*imagestore.RepairImage, error) {
	chains := image.ChainIDs(st.diffIDs)
	low := slices.IndexFunc(chains, func(c image.Digest) bool { return p.chains[c] })
	if low < 0 && p.lacks[st] == nil {
		return nil, nil
	}
	if low < 0 {
		low = len(chains)
	}
	wanted := p.urls[st.config] != ""
	if !wanted {
		if err := p.note(ctx, st, low); err != nil {
			return nil, err
		}
		if err := p.keepLacking(ctx, st); err != nil {
			return nil, err
		}
	}
	replaced := len(p.lacks[st]) > 0
	for i := low; i < len(chains); i++ {
		if held, err := p.s.holds(ctx, st.layers[i]); err != nil {
			return nil, err
		} else if held {
			continue
		}
		// Discarded after it was unpacked.
		if kept, err := p.keep(ctx, st.diffIDs[i]); err != nil {
			return nil, err
		} else if !kept {
			return nil, p.k.Lost(p.name(st), fmt.Sprintf("layer %s: its blob was discarded after it was unpacked, and it stands on a damaged one", st.diffIDs[i]))
		}
		replaced = true
	}
	for low > 0 {
		if unpacked, err := p.s.committed(ctx, chains[low-1]); err != nil {
			return nil, err
		} else if unpacked {
			break
		}
		low--
	}
	img := &imagestore.RepairImage{Config: st.config, DiffIDs: st.diffIDs, Names: imagestore.OwnFirst(st.names)}
	if low > 0 {
		img.Floor = chains[low-1]
	}
	if replaced && !imagestore.IsOwnRef(img.Names[0]) {
		return nil, submodules.Mark(fmt.Errorf("image %s belongs to no application and shares a damaged layer, of which it has no undamaged copy: "+
			"remove it (crictl rmi %[1]s), repair again, and pull it anew", img.Names[0]), submodules.ErrContent)
	}
	return img, nil
}

// users returns the applications whose containers use the layers that are
// unpacked again.
func (p *planner) users(ctx context.Context, plan *imagestore.RepairPlan) ([]string, error) {
	keys, err := p.s.standing(ctx, plan.Chains)
	if err != nil {
		return nil, err
	}
	running, _, err := p.s.containersOf(ctx, keys)
	if err != nil || len(running) == 0 {
		return nil, err
	}
	var refs []string
	for _, img := range plan.Images {
		for _, n := range img.Names {
			if imagestore.IsOwnRef(n) {
				refs = append(refs, n)
			}
		}
	}
	return p.t.users(ctx, refs, running)
}
