package fleet

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/input"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/generator/bases"
)

// planFormat is what a plan says it is. deltaOptions is the part of a key that says how the
// deltas are made; whoever changes that changes it.
const (
	planFormat   = "mender-app fleet plan 1"
	deltaOptions = "standard"
	maxPlan      = 64 << 20
)

// MaxShards is the maximum number of shards.
const MaxShards = 10_000

// maxDeltas is how many deltas an image can have in a release, beside the whole image.
const maxDeltas = 31

// Component names an image.
type Component struct {
	URL    string        `json:"url"`
	Digest digest.Digest `json:"digest"`
}

// Key identifies a delta by everything that its bytes follow from, but for the program that
// makes it.
type Key struct {
	From     Component `json:"from"`
	To       Component `json:"to"`
	Platform string    `json:"platform"`
	// With are images of the release that a device has by then, because they come first.
	With    []Component `json:"with,omitempty"`
	Options string      `json:"options"`
	Format  int         `json:"format"` // the version of the format of deltas
}

// Hex is the key in a name.
func (k Key) Hex() string {
	text, err := json.Marshal(k)
	if err != nil {
		panic(err) // it has texts and numbers alone
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// Delta is a delta that may be made.
type Delta struct {
	Key     Key      `json:"key"`
	Over    []string `json:"over"`    // the releases whose devices take it
	Devices int64    `json:"devices"` // that take it
	Whole   int64    `json:"whole_bytes"`
	Bytes   int64    `json:"delta_bytes"`
	Saved   int64    `json:"saved_bytes"` // in the fleet
	// CPU is what making it takes of one processor, in milliseconds; 0 if it is there.
	CPU int64 `json:"cpu_ms"`
	// There says that the size is not estimated: "release" or "store" has the delta.
	There string `json:"there,omitempty"`
	Left  string `json:"left,omitempty"` // why it is not made
}

// WholeImages are devices that fetch whole images.
type WholeImages struct {
	Row
	Devices int64  `json:"devices"`
	Bytes   int64  `json:"bytes"` // for each of them
	Why     string `json:"why"`
}

// Target is an artifact of the release.
type Target struct {
	File        string        `json:"file"`
	Digest      digest.Digest `json:"digest"` // SHA-256 of the file
	Platform    string        `json:"platform"`
	DeviceTypes []string      `json:"device_types"`
}

// Count is a row of the histogram.
type Count struct {
	Row
	Devices int64 `json:"devices"`
}

// Budget bounds what is made. At most one of its values is set.
type Budget struct {
	CPU     int64 `json:"cpu_ms,omitempty"`        // of one processor
	Storage int64 `json:"storage_bytes,omitempty"` // in the store
	Time    int64 `json:"time_ms,omitempty"`       // of the shard that takes the longest, with a processor for each
	Shards  int   `json:"shards,omitempty"`        // for Time
}

// Plan says which deltas are made for a release.
type Plan struct {
	Format      string        `json:"plan"`
	Application string        `json:"application"`
	Release     string        `json:"release"`
	Targets     []Target      `json:"targets"`
	Budget      *Budget       `json:"budget,omitempty"`
	Devices     int64         `json:"devices"`
	Skipped     int64         `json:"skipped_devices,omitempty"` // that could not be read
	Histogram   []Count       `json:"histogram"`
	Missing     []string      `json:"missing_releases,omitempty"` // that devices have, and the releases do not
	Deltas      []Delta       `json:"deltas"`                     // the best first
	Left        []Delta       `json:"left,omitempty"`             // not worth it, or beyond the budget
	Whole       []WholeImages `json:"whole,omitempty"`
	Totals      Totals        `json:"totals"`
}

// Totals add up a plan.
type Totals struct {
	Whole   int64 `json:"whole_bytes"`   // what devices fetch if all fetch whole images
	Planned int64 `json:"planned_bytes"` // what they fetch with the plan
	Saved   int64 `json:"saved_bytes"`
	CPU     int64 `json:"cpu_ms"`        // what making the deltas takes
	Storage int64 `json:"storage_bytes"` // what they take in the store
	// Longest is what the shard with the most to do takes; 0 without a budget of time.
	Longest int64 `json:"longest_shard_ms,omitempty"`
}

// Options say what to plan.
type Options struct {
	Releases    []string // directories
	Release     string
	Application string // "" is that of the release
	Store       *Store // whose deltas need not be made; nil for none
	Budget      Budget
}

// release is a release for a platform.
type release struct {
	*bases.Known
}

func (r *release) platform() string { return r.Meta.Platform }

// answers reports whether a device that says it has version has the release.
func (r *release) answers(version string) bool {
	if r.Header.Name == version {
		return true
	}
	for key, v := range r.Header.Provides {
		if v == version && strings.HasSuffix(key, ".version") {
			return true
		}
	}
	return false
}

// releases reads the headers of the releases of an application.
func (o *Options) releases(ctx context.Context) (list []release, targets []release, err error) {
	for _, dir := range o.Releases {
		known, kerr := bases.KnownIn(ctx, dir, func(path string, bad error) {
			err = cmp.Or(err, error(&Error{Text: path + ": it cannot be read: " + bad.Error(), Hint: "take it out of the directory; app-gen releases --check looks at all of them"}))
		})
		if err = cmp.Or(kerr, err); err != nil {
			return nil, nil, err
		}
		for _, k := range known {
			list = append(list, release{k})
		}
	}
	for _, r := range list {
		if r.Header.Name == o.Release && (o.Application == "" || r.Meta.ApplicationName == o.Application) {
			targets = append(targets, r)
		}
	}
	if len(targets) == 0 {
		return nil, nil, &Error{Text: fmt.Sprintf("there is no release %s in %s", o.Release, strings.Join(o.Releases, ", ")), Hint: "app-gen releases lists those that are there"}
	}
	app, platforms := targets[0].Meta.ApplicationName, map[string]string{}
	for _, t := range targets {
		if t.Meta.ApplicationName != app {
			return nil, nil, &Error{Text: fmt.Sprintf("two applications have a release %s: %s and %s", o.Release, app, t.Meta.ApplicationName), Hint: "name one with --application-name"}
		}
		if other := platforms[t.platform()]; other != "" {
			return nil, nil, &Error{Text: fmt.Sprintf("%s and %s are both %s for %s", other, t.Path, o.Release, t.platform()), Hint: "keep one of them"}
		}
		platforms[t.platform()] = t.Path
		for _, c := range t.Meta.ImageComponents() {
			if _, ok := whole(&c); !ok {
				return nil, nil, &Error{Text: fmt.Sprintf("%s has no whole %s: a device without a base that has a delta would get nothing", t.Path, c.URL), Hint: "make the release without bases, or with --full-fallback"}
			}
		}
	}
	list = slices.DeleteFunc(list, func(r release) bool { return r.Meta.ApplicationName != app })
	return list, targets, nil
}

// MakePlan counts the devices of inventories and plans the deltas of a release. garbage are
// devices that were skipped, as ReadInventories names them.
func MakePlan(ctx context.Context, o Options, inventories []string, lenient bool) (plan *Plan, garbage []string, err error) {
	list, targets, err := o.releases(ctx)
	if err != nil {
		return nil, nil, err
	}
	inventory, err := ReadInventories(ctx, inventories, targets[0].Meta.ApplicationName, lenient)
	if err != nil {
		return nil, nil, err
	}
	plan, err = o.plan(ctx, inventory, list, targets)
	return plan, inventory.Garbage, err
}

// plan plans the deltas for counted devices.
func (o *Options) plan(ctx context.Context, in *Inventory, list, targets []release) (*Plan, error) {
	p := &planner{Options: o, all: list, targets: targets, wanted: map[string]*Delta{}, lacks: map[*Delta]lacks{}, made: map[string]*samples{}, images: map[image.Digest]artifact.Component{}, plan: &Plan{
		Format: planFormat, Application: targets[0].Meta.ApplicationName, Release: o.Release, Devices: in.Devices, Skipped: in.Skipped, Deltas: []Delta{},
	}}
	if o.Budget != (Budget{}) {
		p.plan.Budget = &o.Budget
	}
	for _, t := range targets {
		d, err := digest.OfFile(t.Path)
		if err != nil {
			return nil, err
		}
		p.plan.Targets = append(p.plan.Targets, Target{File: t.Path, Digest: d, Platform: t.platform(), DeviceTypes: t.Header.DeviceTypes})
	}
	for _, r := range list {
		for _, c := range r.Meta.ImageComponents() {
			p.images[c.Digest] = c
		}
	}
	for row, n := range in.Rows {
		p.plan.Histogram = append(p.plan.Histogram, Count{row, n})
	}
	slices.SortFunc(p.plan.Histogram, func(a, b Count) int { return cmp.Or(cmp.Compare(b.Devices, a.Devices), a.compare(b.Row)) })
	for _, c := range p.plan.Histogram {
		p.row(c)
	}
	if err := p.choose(ctx); err != nil {
		return nil, err
	}
	return p.plan, nil
}

// planner makes a plan.
type planner struct {
	*Options
	all, targets []release
	plan         *Plan
	wanted       map[string]*Delta // by key
	lacks        map[*Delta]lacks
	made         map[string]*samples // by platform and image
	images       map[image.Digest]artifact.Component
}

// target is the artifact for a device; nil and why there is none.
func (p *planner) target(row Row) (*release, string) {
	var fits []*release
	for i := range p.targets {
		t := &p.targets[i]
		if (row.Platform == "" || row.Platform == t.platform()) && (row.DeviceType == "" || slices.Contains(t.Header.DeviceTypes, row.DeviceType)) {
			fits = append(fits, t)
		}
	}
	switch len(fits) {
	case 0:
		return nil, "the release is not for this device type and platform"
	case 1:
		return fits[0], ""
	}
	return nil, "the inventory does not say the platform, and the release has several for this device type"
}

// row adds what devices need that have the same.
func (p *planner) row(c Count) {
	t, why := p.target(c.Row)
	if t == nil {
		p.plan.Whole = append(p.plan.Whole, WholeImages{c.Row, c.Devices, 0, why})
		return
	}
	var bytes int64
	images := distinct(t.Meta.ImageComponents())
	for i := range images {
		n, _ := whole(&images[i])
		bytes += n
	}
	i := slices.IndexFunc(p.all, func(r release) bool { return r.platform() == t.platform() && r.answers(c.Version) })
	if c.Version == "" || i < 0 {
		why = "the application is not installed"
		if c.Version != "" {
			why = "the releases do not have " + c.Version
			if !slices.Contains(p.plan.Missing, c.Version) {
				p.plan.Missing = append(p.plan.Missing, c.Version)
			}
		}
		p.plan.Whole = append(p.plan.Whole, WholeImages{c.Row, c.Devices, bytes, why})
		p.plan.Totals.Whole += bytes * c.Devices
		p.plan.Totals.Planned += bytes * c.Devices
		return
	}
	from := &p.all[i]
	if from.Path == t.Path {
		return // they have the release
	}
	for n := range images {
		to := &images[n]
		size, _ := whole(to)
		base := from.Replaced(to.URL, to.Digest)
		// An image that did not change needs a delta as well, over itself: without one a
		// device would fetch it whole.
		p.plan.Totals.Whole += size * c.Devices
		p.plan.Totals.Planned += size * c.Devices
		if base == nil {
			p.plan.Whole = append(p.plan.Whole, WholeImages{c.Row, c.Devices, size, fmt.Sprintf("%s has nothing that %s replaces", from.Header.Name, to.URL)})
			continue
		}
		p.want(t, images[:n], to, base, from.Header.Name, c.Devices)
	}
}

// distinct leaves out images that are there already under another name.
func distinct(list []artifact.Component) (rest []artifact.Component) {
	for _, c := range list {
		if !slices.ContainsFunc(rest, func(have artifact.Component) bool { return have.Digest == c.Digest }) {
			rest = append(rest, c)
		}
	}
	return rest
}

// want counts devices that want a delta.
func (p *planner) want(t *release, before []artifact.Component, to, base *artifact.Component, over string, devices int64) {
	k := Key{From: Component{base.URL, base.Digest}, To: Component{to.URL, to.Digest}, Platform: t.platform(), Options: deltaOptions, Format: delta.Version}
	others := []*artifact.Component{base}
	for i := range before {
		k.With = append(k.With, Component{before[i].URL, before[i].Digest})
		others = append(others, &before[i])
	}
	// Two releases may have one image under two names: the name that more devices have is taken.
	id := k.Platform + " " + string(k.From.Digest) + " " + string(k.To.Digest)
	d := p.wanted[id]
	if d == nil {
		d = &Delta{Key: k}
		d.Whole, _ = whole(to)
		if size, ok := ready(to, base.Digest); ok {
			d.Bytes, d.There = size, "release"
		}
		w := lacks{of: k.Platform + " " + string(to.Digest)}
		w.bytes, w.byKind = changed(to, others...)
		p.lacks[d], p.wanted[id] = w, d
		if p.made[w.of] == nil {
			p.made[w.of] = p.madeBefore(to, k.Platform)
		}
	}
	d.Devices += devices
	if !slices.Contains(d.Over, over) {
		d.Over = append(d.Over, over)
	}
}

// lacks is what a device lacks of an image.
type lacks struct {
	of     string // the platform and the image
	bytes  int64
	byKind time.Duration // about what encoding takes, by the kind of the layers
}

// madeBefore are the deltas that the releases have of an image, and of those in its place.
func (p *planner) madeBefore(to *artifact.Component, platform string) *samples {
	s := &samples{}
	for _, r := range p.all {
		if r.platform() != platform {
			continue
		}
		c := r.Replaced(to.URL, to.Digest)
		if c == nil {
			continue
		}
		for _, v := range c.Variants {
			if len(v.Bases) != 1 {
				continue
			}
			if base, ok := p.images[v.Bases[0].Digest]; ok {
				n, _ := changed(c, &base)
				s.add(&v, n)
			}
		}
	}
	return s
}

// choose decides which deltas are made.
func (p *planner) choose(ctx context.Context) error {
	var list []*Delta
	for _, id := range slices.Sorted(maps.Keys(p.wanted)) {
		d := p.wanted[id]
		if p.Store != nil && d.There == "" {
			m, err := p.Store.Find(ctx, d.Key)
			if err != nil {
				return err
			}
			if m != nil {
				d.Bytes, d.There = m.Variant.Content.Size, "store"
				p.made[p.lacks[d].of].add(&m.Variant, p.lacks[d].bytes)
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(p.wanted)) {
		d := p.wanted[id]
		if d.There == "" {
			w := p.lacks[d]
			size, encoding := p.made[w.of].estimate(w.bytes, w.byKind)
			d.Bytes, d.CPU = size, encoding.Milliseconds()
		}
		if d.Saved = d.Devices * (d.Whole - d.Bytes); d.Saved <= 0 {
			d.Saved, d.Left = 0, "it is not smaller than the whole image"
		}
		list = append(list, d)
	}
	slices.SortStableFunc(list, func(a, b *Delta) int { return denser(choice{a.Saved, a.CPU}, choice{b.Saved, b.CPU}) })
	limitImages(list)
	var open []*Delta
	for _, d := range list {
		if d.Left == "" {
			open = append(open, d)
		}
	}
	p.within(open)
	for _, d := range list {
		slices.Sort(d.Over)
		if d.Left != "" {
			p.plan.Left = append(p.plan.Left, *d)
			continue
		}
		p.plan.Deltas = append(p.plan.Deltas, *d)
		t := &p.plan.Totals
		t.Saved, t.CPU = t.Saved+d.Saved, t.CPU+d.CPU
		if d.There != "release" {
			t.Storage += d.Bytes
		}
	}
	p.plan.Totals.Planned -= p.plan.Totals.Saved
	if p.Budget.Time > 0 {
		p.plan.Totals.Longest = longest(p.plan.Deltas, p.Budget.Shards)
	}
	slices.Sort(p.plan.Missing)
	return nil
}

// limitImages leaves out the deltas of an image that a release has no room for: those that
// save the least.
func limitImages(list []*Delta) {
	byImage := map[string][]*Delta{}
	for _, d := range list {
		if d.Left == "" {
			id := d.Key.Platform + " " + string(d.Key.To.Digest)
			byImage[id] = append(byImage[id], d)
		}
	}
	for _, of := range byImage {
		// What the release has stays in it.
		slices.SortStableFunc(of, func(a, b *Delta) int {
			rank := func(d *Delta) int64 {
				if d.There == "release" {
					return math.MaxInt64
				}
				return d.Saved
			}
			return cmp.Compare(rank(b), rank(a))
		})
		for _, d := range of[min(len(of), maxDeltas):] {
			d.Left = fmt.Sprintf("an image has at most %d deltas", maxDeltas)
		}
	}
}

// within leaves out what is beyond the budget.
func (p *planner) within(list []*Delta) {
	b := p.Budget
	var limit int64
	costs := func(d *Delta) int64 { return d.CPU }
	name := "--budget-cpu"
	switch {
	case b.CPU > 0:
		limit = b.CPU
	case b.Storage > 0:
		limit, name = b.Storage, "--budget-storage"
		costs = func(d *Delta) int64 {
			if d.There == "release" {
				return 0
			}
			return d.Bytes
		}
	case b.Time > 0:
		limit, name = b.Time*int64(b.Shards), "--budget-time"
	default:
		return
	}
	for {
		choices := make([]choice, len(list))
		for i, d := range list {
			choices[i] = choice{d.Saved, costs(d)}
			if b.Time > 0 && d.CPU > b.Time { // no shard has the time
				choices[i].value = 0
			}
		}
		taken := choose(choices, limit)
		var kept []Delta
		for i, d := range list {
			if d.Left = "it is beyond " + name; slices.Contains(taken, i) {
				d.Left = ""
				kept = append(kept, *d)
			}
		}
		over := longest(kept, b.Shards) - b.Time
		if b.Time == 0 || over <= 0 {
			return
		}
		// The shards cannot share the work evenly: take less of it.
		limit -= over
	}
}

// shares distributes deltas over shards: the longest first, each to the shard that has the
// least to do. It depends on nothing but the plan.
func shares(list []Delta, shards int) (of [][]int, load []int64) {
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(list[b].CPU, list[a].CPU) })
	of, load = make([][]int, shards), make([]int64, shards)
	for _, i := range order {
		if list[i].There == "release" {
			continue
		}
		least := 0
		for n := range load {
			if load[n] < load[least] || load[n] == load[least] && len(of[n]) < len(of[least]) {
				least = n
			}
		}
		of[least], load[least] = append(of[least], i), load[least]+list[i].CPU
	}
	for n := range of {
		slices.Sort(of[n]) // the best first
	}
	return of, load
}

// longest is what the shard with the most to do takes, in milliseconds.
func longest(list []Delta, shards int) int64 {
	_, load := shares(list, max(shards, 1))
	return slices.Max(load)
}

// ReadPlan reads a plan from a file.
func ReadPlan(path string) (*Plan, error) {
	text, err := input.Read(path, maxPlan)
	if err != nil {
		return nil, err
	}
	p := &Plan{}
	if err := json.Unmarshal(text, p); err != nil || p.Format != planFormat {
		return nil, &Error{Text: path + " is no plan", Hint: "app-gen fleet plan -o writes one"}
	}
	if err := p.check(); err != nil {
		return nil, &Error{Text: path + ": " + err.Error(), Hint: "make the plan again"}
	}
	return p, nil
}

// check refuses a plan that names nothing which can be made.
func (p *Plan) check() error {
	seen := map[string]bool{}
	for _, d := range p.Deltas {
		k := d.Key
		for _, c := range append([]Component{k.From, k.To}, k.With...) {
			if err := c.Digest.Check(); err != nil {
				return err
			}
		}
		hex := k.Hex()
		if k.Options != deltaOptions || k.Format != delta.Version {
			return errors.New("it is for another version of app-gen")
		}
		if seen[hex] {
			return errors.New("a delta occurs twice")
		}
		seen[hex] = true
	}
	return nil
}
