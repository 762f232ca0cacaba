package generator

import (
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/generator/bases"
	"github.com/mender-app/mender-app/generator/manifests"
)

// TakenError reports that there is another artifact of the name.
type TakenError struct {
	Path, Name string // of that artifact
	Text, Hint string
}

func (e *TakenError) Error() string { return e.Name + " exists (" + e.Path + "): " + e.Text }

// Advice says what to do about it.
func (e *TakenError) Advice() string { return e.Hint }

// kept returns the artifact of the same name, if it was made from the same inputs; nil if
// there is none of the name, or it is to be replaced. Devices may have a release of that
// name, and later releases build on it: so another one must not take its place
// unnoticed.
func (r *run) kept(ctx context.Context, images []foundImage, used *manifests.Found) (*bases.Known, error) {
	var err error
	if r.made, err = r.madeFrom(images, used); err != nil {
		return nil, err
	}
	all, same, err := r.taken(ctx)
	if err != nil {
		return nil, err
	}
	for _, k := range all {
		if by := r.builtOn(k, all); by != "" && k.Header.Name != r.Artifact.Name && r.isOutput(k.Path) {
			return nil, &TakenError{Path: k.Path, Name: k.Header.Name, Text: by + " builds on it, so its file is not replaced", Hint: "choose another --output-path"}
		}
	}
	if !r.Build.Replace {
		for _, k := range same {
			if m := k.Meta.Made; m != nil && m.Inputs == r.made.Inputs {
				return k, r.signedAlike(ctx, k)
			}
		}
	}
	for _, k := range same {
		if r.Build.Split && !r.isOutput(k.Path) && !sameBases(k.Meta.Made, r.made) {
			continue // it is for devices with another release
		}
		e := &TakenError{Path: k.Path, Name: k.Header.Name}
		if by := r.builtOn(k, all); by != "" {
			e.Text = fmt.Sprintf("%s, and %s builds on it, so it is never replaced", r.difference(k, images), by)
			e.Hint = "give this release a new name"
			return nil, e
		}
		if !r.Build.Replace {
			e.Text = r.difference(k, images)
			e.Hint = "give this release a new name; --replace makes it anew, where no device has it"
			return nil, e
		}
	}
	return nil, nil
}

// taken lists the known releases of the application for the platform, and those of them
// that have the artifact's name.
func (r *run) taken(ctx context.Context) (all, same []*bases.Known, err error) {
	dirs := slices.Clone(r.Build.Taken)
	if info, err := os.Stat(r.Build.Output); err == nil && info.Mode().IsRegular() {
		dirs = append(dirs, filepath.Dir(r.Build.Output))
	}
	var seen []os.FileInfo
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil || slices.ContainsFunc(seen, func(s os.FileInfo) bool { return os.SameFile(s, info) }) {
			continue
		}
		seen = append(seen, info)
		in, err := bases.KnownIn(ctx, dir, func(string, error) {}) // no release of this name
		if err != nil {
			return nil, nil, err
		}
		taken := slices.Contains(r.Build.Taken, dir)
		for _, k := range in {
			if k.Meta.ApplicationName != r.Application.Name || k.Meta.Platform != r.Application.Platform.String() {
				continue
			}
			all = append(all, k)
			if k.Header.Name == r.Artifact.Name && (r.isOutput(k.Path) && r.bearsName() || taken && r.sameDevices(k)) {
				same = append(same, k)
			}
		}
	}
	return all, same, nil
}

// bearsName reports whether the output's file is called after the artifact. Any other, such as
// out.mender, is for one release after another.
func (r *run) bearsName() bool {
	return strings.Contains(filepath.Base(r.Build.Output), strings.ReplaceAll(r.Artifact.Name, "/", "-"))
}

// sameDevices reports whether an artifact is for devices that this one is for too. A
// release may have an artifact for each type of device.
func (r *run) sameDevices(k *bases.Known) bool {
	return slices.ContainsFunc(k.Header.DeviceTypes, func(t string) bool { return slices.Contains(r.Artifact.DeviceTypes, t) })
}

func (r *run) isOutput(path string) bool {
	a, err1 := os.Stat(path)
	b, err2 := os.Stat(r.Build.Output)
	return err1 == nil && err2 == nil && os.SameFile(a, b)
}

// signedAlike refuses a kept artifact that another key signed.
func (r *run) signedAlike(ctx context.Context, k *bases.Known) error {
	key := r.Artifact.Signing.PublicKey()
	if key == nil {
		return nil
	}
	f, err := os.Open(k.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = mender.NewReader(metered.Reader(ctx, f, nil), mender.ReadOptions{PublicKeys: []crypto.PublicKey{key}})
	if errors.Is(err, mender.ErrSignature) {
		return &TakenError{Path: k.Path, Name: k.Header.Name, Text: "another key signed it", Hint: "give this release a new name; --replace makes it anew, where no device has it"}
	}
	return err
}

// builtOn names a release that builds on k and has no other artifact of k's name to build
// on; "" if there is none.
func (r *run) builtOn(k *bases.Known, all []*bases.Known) string {
	for _, other := range all {
		if other.Header.Name == k.Header.Name || !bases.BuildsOn(other, k.Header.Name, nil, r.Artifact.Software.In) || other.Fits(nil) || !other.Fits(k) {
			continue
		}
		if !slices.ContainsFunc(all, func(twin *bases.Known) bool {
			return twin.Path != k.Path && twin.Header.Name == k.Header.Name && other.Fits(twin)
		}) {
			return other.Header.Name
		}
	}
	return ""
}

func sameBases(a, b *artifact.Made) bool {
	return a != nil && slices.EqualFunc(a.Over, b.Over, func(x, y artifact.MadeOver) bool { return x.Name == y.Name })
}

// difference says in what the artifact differs from an earlier one, as far as that one says.
func (r *run) difference(k *bases.Known, images []foundImage) string {
	for i := range images {
		img := &images[i]
		at := slices.IndexFunc(k.Meta.Components, func(c artifact.Component) bool { return c.URL == img.URL })
		switch {
		case at < 0 && len(k.Meta.Components) > 0:
			return fmt.Sprintf("it has no image %s", img.URL)
		case at >= 0 && k.Meta.Components[at].Digest != img.digest():
			return fmt.Sprintf("its %s is another image (%s, now %s)", img.URL, short(k.Meta.Components[at].Digest), short(img.digest()))
		}
	}
	switch m := k.Meta.Made; {
	case m == nil:
		return "it does not say what it was made from"
	case m.Inputs == r.made.Inputs:
		return "it was made from the same"
	case !sameBases(m, r.made):
		return fmt.Sprintf("it was made over %s, and now there is %s", overText(m), overText(r.made))
	}
	return "its manifests or the options were others"
}

func short(d digest.Digest) string { return d.String()[:min(len(d), 19)] }

func overText(m *artifact.Made) string {
	var names []string
	for _, o := range m.Over {
		names = append(names, o.Name)
	}
	if names == nil {
		return "no older release"
	}
	return strings.Join(names, " and ")
}

// unchanged makes a kept artifact the result, with the reports that were asked for. Where
// it lies elsewhere than the output, it is copied there.
func (r *run) unchanged(ctx context.Context, k *bases.Known, p *plan) (*Result, error) {
	result := &Result{Path: r.Build.Output, Unchanged: true, Unpublished: k.Path}
	if p != nil {
		result.Plan = &p.Plan
	}
	err := r.keep(ctx, k, p)
	result.written = r.written
	if err == nil {
		err = r.strict()
	}
	if err != nil {
		result.Discard()
		return nil, err
	}
	if !r.isOutput(k.Path) {
		result.Unpublished = result.written[len(result.written)-1].Content()
	}
	return result, nil
}

func (r *run) keep(ctx context.Context, k *bases.Known, p *plan) error {
	f, err := os.Open(k.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	if r.reports() {
		sum, _, err := digest.OfReader(f)
		if err != nil {
			return err
		}
		out := &payload{}
		if out.manifestsFile, err = manifestsOf(ctx, k.Path); err != nil {
			return err
		}
		if err := r.writeReports(ctx, p, out, sum); err != nil {
			return err
		}
	}
	if r.isOutput(k.Path) {
		return nil
	}
	return r.writeOutput(ctx, r.Build.Output, func(w io.Writer) error {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		_, err := io.Copy(w, f)
		return err
	})
}

// reports reports whether a report was asked for.
func (r *run) reports() bool { return r.Build.SBOM != "" || r.Build.Provenance != "" }

// manifestsOf is the digest of the manifests payload of an artifact.
func manifestsOf(ctx context.Context, path string) (digest.Digest, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	r, err := mender.NewReader(metered.Reader(ctx, f, nil), mender.ReadOptions{})
	for err == nil {
		var file *mender.FileInfo
		if file, err = r.Next(); err == nil && file.Name == artifact.ManifestsPayload {
			return digest.FromHex(file.Digest)
		}
	}
	return "", fmt.Errorf("%s: %w", path, err)
}

// inputs are all that decides what an artifact does on a device. Their JSON is hashed, so
// the order of the fields counts. Not among them: the time, and what only the build
// host notices.
type inputs struct {
	Name, Group                 string
	DeviceTypes                 []string
	DependsNames, DependsGroups []string
	Software                    Software
	Provides                    map[string]string
	Depends                     map[string][]string
	Clears                      []string
	NoAutoDepends               bool
	Scripts                     []inputFile
	Signed                      bool
	Compression                 string
	Reader, ForVersion          string

	Application, Version, Orchestrator, Platform string
	Reboot                                       bool
	Env                                          map[string]string
	Policy                                       json.RawMessage
	Manifests                                    digest.Digest
	Ship                                         []manifests.Variable
	Recipients                                   []string

	Images                               []inputImage
	Files                                []inputFile
	DeepDelta, FilesOnly, Fallback, Skip bool
	Effort                               string        `json:",omitempty"`
	ByteCost                             int64         `json:",omitempty"`
	Expires                              string        `json:",omitempty"`
	Revocations                          digest.Digest `json:",omitempty"`
	OnDevice                             []string
	Budgets                              []string
}

type inputImage struct {
	URL    string
	Digest digest.Digest
	Bases  []inputBase
	Whole  bool
}

type inputBase struct {
	Digest  digest.Digest
	Version string
}

type inputFile struct {
	Name, Type string
	Digest     digest.Digest
	Bases      []digest.Digest
}

// madeFrom says what the artifact is made from.
func (r *run) madeFrom(images []foundImage, used *manifests.Found) (*artifact.Made, error) {
	a, app := &r.Artifact, &r.Application
	in := inputs{
		Name: a.Name, Group: a.Group, DeviceTypes: a.DeviceTypes, DependsNames: a.DependsNames, DependsGroups: a.DependsGroups,
		Software: a.Software, Provides: a.Provides, Depends: a.Depends, Clears: a.Clears, NoAutoDepends: a.NoAutoDepends,
		Compression: string(a.Compression), Reader: a.Reader, ForVersion: a.ForVersion,
		Application: app.Name, Version: app.Version, Orchestrator: app.Orchestrator, Platform: app.Platform.String(),
		Reboot: app.Reboot, Env: app.Env, Policy: r.policy, Recipients: r.recipients.Names,
		DeepDelta: r.Images.Coding == Coded, FilesOnly: r.Images.FilesOnly, Fallback: r.Images.Fallback, Skip: r.Images.Skip,
		OnDevice: r.Images.OnDevice,
	}
	in.Expires = a.Expiry.Text
	if a.Revocations != nil {
		in.Revocations = digest.Of(a.Revocations)
	}
	switch {
	case r.Images.Coding == Fast:
		in.Effort = "fast"
	case r.Images.Best:
		in.Effort = "best"
	}
	in.ByteCost = r.byteCost
	for _, s := range a.Scripts {
		in.Scripts = append(in.Scripts, inputFile{Name: s.Name, Digest: digest.Of(s.Data)})
	}
	for _, b := range r.Images.Budgets {
		in.Budgets = append(in.Budgets, fmt.Sprint(b))
	}
	in.Signed = a.Signing.Key != nil || a.Signing.Sign != nil
	if used != nil {
		in.Ship = used.Ship
	}
	var err error
	if in.Manifests, err = r.treeDigest(); err != nil {
		return nil, err
	}
	made := &artifact.Made{By: "app-gen " + toolVersion()}
	if t := r.Build.ModTime; !t.IsZero() && t.Unix() != 0 {
		made.Time = t.UTC().Format(time.RFC3339)
	}
	for i := range images {
		img := inputImage{URL: images[i].URL, Digest: images[i].digest(), Whole: images[i].whole}
		for _, b := range images[i].named {
			img.Bases = append(img.Bases, inputBase{b.Image.ConfigDigest, a.Software.In(b.Provides)})
			if b.Artifact.Name != "" && !slices.Contains(made.Over, b.Artifact) {
				made.Over = append(made.Over, b.Artifact)
			}
		}
		in.Images = append(in.Images, img)
	}
	for _, f := range r.Images.Files {
		file := inputFile{Name: f.URL, Type: f.Type}
		for n, path := range append([]string{f.Path}, f.Bases...) {
			l, err := readLocal(path)
			if err != nil {
				return nil, err
			}
			if n == 0 {
				file.Digest = l.digest
			} else {
				file.Bases = append(file.Bases, l.digest)
			}
		}
		in.Files = append(in.Files, file)
	}
	b, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	made.Inputs = digest.Of(b)
	return made, nil
}

// treeDigest is the digest of the manifests before variables are added and secrets
// encrypted, which gives other bytes each time.
func (r *run) treeDigest() (digest.Digest, error) {
	root, err := os.OpenRoot(r.tree)
	if err != nil {
		return "", fmt.Errorf("manifests directory: %w", err)
	}
	defer root.Close()
	size, err := artifact.WriteManifests(io.Discard, root.FS())
	if err != nil {
		return "", r.inManifests(&manifests.Error{Place: manifests.Place{File: "."}, Text: err.Error()})
	}
	return size.Digest, nil
}
