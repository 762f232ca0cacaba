package generator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/generator/manifests"
	"github.com/mender-app/mender-app/generator/render"
	"github.com/mender-app/mender-app/generator/write"
	"github.com/mender-app/mender-app/modules/policy"
)

// packManifests packs the manifests directory, with the secrets encrypted.
func (r *run) packManifests(used *manifests.Found, p *payload) (err error) {
	p.sealed = used.Encrypted
	if len(used.Encrypt) > 0 {
		p.sealed, p.recipients = true, r.recipients.Names
	}
	if err := manifests.EncryptFiles(r.tree, used.Encrypt, r.recipients.Seal); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(r.temp, artifact.ManifestsPayload))
	if err != nil {
		return &write.Error{Err: err}
	}
	size, err := r.writeManifests(f)
	if cerr := f.Close(); err == nil && cerr != nil {
		err = &write.Error{Err: cerr}
	}
	if err != nil {
		return err
	}
	p.manifests = f.Name()
	if p.manifestsFile, err = digest.OfFile(p.manifests); err != nil {
		return err
	}
	p.digest, p.sizes.ManifestsPayload, p.sizes.Manifests = size.Digest, size.Payload, size.Files
	return nil
}

// openManifests makes the manifests directory readable as a device will have it: if a
// part of it is ignored, r.tree becomes a copy without that part. Of a Compose project only
// what is needed must be fit for a device (shipManifests); of others everything.
func (r *run) openManifests() error {
	dir := r.Application.ManifestsDir
	var err error
	if r.ignore, err = manifests.ReadIgnore(dir); err != nil {
		return r.inManifests(err)
	}
	r.tree = dir
	if r.Application.Orchestrator != Compose {
		if err := manifests.CheckTree(dir, r.ignore); err != nil {
			return r.inManifests(err)
		}
	} else if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return fmt.Errorf("manifests directory %s is a file", dir)
	}
	if r.Application.Orchestrator == Compose {
		return r.inManifests(r.liftManifests())
	}
	if r.ignore != nil {
		if err := r.copyManifests("read", r.ignore); err != nil {
			return r.inManifests(err)
		}
	}
	if r.Application.Orchestrator == Kubernetes {
		return r.inManifests(r.renderManifests())
	}
	return nil
}

// liftManifests makes r.tree readable for a Compose project. If its own files lie in a
// subdirectory, r.tree becomes a copy with a project at the top that includes them.
func (r *run) liftManifests() error {
	o := &r.Application.Compose
	var err error
	if o.Files, err = r.inTree(o.Files); err != nil {
		return err
	}
	lift, err := manifests.LiftOf(r.tree, *o)
	if err != nil {
		return err
	}
	ignore := r.ignore
	if ignore == nil && lift != nil {
		if ignore, err = manifests.Without(".git"); err != nil {
			return err
		}
	}
	if ignore == nil {
		return nil
	}
	if err := r.copyManifests("read", ignore); err != nil || lift == nil {
		return err
	}
	o.Files = []string{manifests.ProjectFile}
	return lift.Write(r.tree)
}

// renderManifests makes r.tree a copy with plain objects, if a kustomization or a chart
// stands at its top. Beside them it has what the rendering does not look at: the policy, its hooks, and
// encrypted Secrets at the top.
func (r *run) renderManifests() error {
	top, err := render.Top(r.tree)
	if err != nil {
		return err
	}
	if len(r.Application.Values) > 0 && !render.IsChart(top) {
		return &UsageError{Text: "--values is for a chart, and there is no Chart.yaml in the manifests directory"}
	}
	if top == "" {
		return nil
	}
	shown, err := filepath.Abs(r.Application.ManifestsDir)
	if err != nil {
		return err
	}
	release := render.Release{Name: r.Application.Name, Namespace: r.Application.Env["K8S_NAMESPACE"], Values: r.Application.Values}
	if release.Namespace == "" {
		release.Namespace = "default"
	}
	rendered, err := render.Render(r.tree, shown, top, release)
	var values *render.ValuesError
	if errors.As(err, &values) {
		return &UsageError{Text: values.Error()}
	}
	if err != nil {
		return err
	}
	for _, n := range rendered.Notes {
		r.note("%s", n)
	}
	needs := []string{policyName, policy.HooksDir}
	entries, err := os.ReadDir(r.tree)
	if err != nil {
		return fmt.Errorf("manifests directory: %w", err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), names.EncryptedSuffix) {
			needs = append(needs, e.Name())
		}
	}
	beside, err := (*manifests.Ignore)(nil).Select(r.tree, needs)
	if err != nil {
		return err
	}
	if err := r.copyManifests("rendered", beside); err != nil {
		return err
	}
	r.rendered, r.ignore = rendered, nil
	return rendered.Write(r.tree)
}

// shipManifests makes r.tree a copy with what the device reads and nothing else: build
// contexts, histories and reports stay here. What other orchestrators read is not known,
// so all of it is shipped.
func (r *run) shipManifests(used *manifests.Found) error {
	if used == nil {
		return nil
	}
	needs := append(slices.Clone(used.Needs), policyName, policy.HooksDir)
	only, err := r.ignore.Select(r.tree, needs)
	if err != nil {
		return r.inManifests(err)
	}
	for _, link := range only.Lost() {
		r.warn("%s is a link to nothing: it is not shipped", link)
	}
	if err = manifests.CheckTree(r.tree, only); err == nil {
		err = r.copyManifests("shipped", only)
	}
	return r.inManifests(err)
}

// copyManifests makes r.tree a copy, in a directory of this name. The copy's own name is that
// of the manifests directory, because that is the name of a Compose project.
func (r *run) copyManifests(name string, ignore *manifests.Ignore) error {
	dir, err := filepath.Abs(r.Application.ManifestsDir)
	if err != nil {
		return err
	}
	to := filepath.Join(r.temp, name, filepath.Base(dir))
	if err := manifests.CopyTree(r.tree, to, ignore); err != nil {
		return err
	}
	r.tree = to
	return nil
}

// manyManifests is the size of manifests from which they are warned of, in bytes.
const manyManifests = 1 << 20

// listManifests finds out what is shipped, and what of the directory is not.
func (r *run) listManifests() (err error) {
	if r.shipped, err = manifests.List(r.tree); err != nil {
		return err
	}
	if size := manifests.Size(r.shipped); size > manyManifests {
		r.warn("%s of manifests travel to each device: %s; what no service needs can be named in %s", manifests.SizeText(size), manifests.Largest(r.shipped), manifests.IgnoreFile)
	}
	entries, err := os.ReadDir(r.Application.ManifestsDir)
	if err != nil {
		return fmt.Errorf("manifests directory: %w", err)
	}
	for _, e := range entries {
		if e.Name() == manifests.IgnoreFile || slices.ContainsFunc(r.shipped, func(s manifests.Shipped) bool {
			return s.Path == e.Name() || strings.HasPrefix(s.Path, e.Name()+"/")
		}) {
			continue
		}
		name := e.Name()
		if e.IsDir() {
			name += "/"
		}
		r.left = append(r.left, name)
	}
	return nil
}

// inTree names files of the manifests directory as they are named in r.tree.
func (r *run) inTree(files []string) ([]string, error) {
	list := slices.Clone(files)
	for i, f := range files {
		if !filepath.IsAbs(f) {
			continue
		}
		dir, err := filepath.Abs(r.Application.ManifestsDir)
		if err != nil {
			return nil, err
		}
		if rel, err := filepath.Rel(dir, f); err == nil && filepath.IsLocal(rel) {
			list[i] = rel
		}
	}
	return list, nil
}

// suspectManifests warns of what was probably not meant to be shipped.
func (r *run) suspectManifests(used *manifests.Found) error {
	var known []string
	plain := r.Application.PlainSecrets
	if used != nil {
		known = slices.Concat(used.Encrypt, used.Plain)
		for _, name := range manifests.ExposedVariables(used.Ship) {
			if !slices.Contains(plain, name) {
				r.warn("%s is shipped in plain in .env, and whoever has the artifact can read it: set it on the device, or make a secret of it; if it is no secret, say --plain-secret %s", name, name)
			}
		}
	}
	list, err := manifests.Suspects(r.tree, slices.Concat(known, plain))
	r.warnings = append(r.warnings, list...)
	return err
}

// judgeManifests asks of what is shipped what a device's CHECK asks, and what the reader of
// the artifact asks: so --dry-run, app-gen and the device give one verdict.
func (r *run) judgeManifests(ctx context.Context, used *manifests.Found) error {
	if used != nil {
		if err := manifests.AddVariables(r.tree, used.Ship); err != nil {
			return err
		}
	}
	if used != nil && r.Application.Orchestrator == Compose {
		if err := manifests.Judge(ctx, r.tree, used.Encrypt); err != nil {
			return r.inManifests(err)
		}
	}
	_, err := r.writeManifests(io.Discard)
	return err
}

// writeManifests packs the tree.
func (r *run) writeManifests(w io.Writer) (artifact.Written, error) {
	root, err := os.OpenRoot(r.tree)
	if err != nil {
		return artifact.Written{}, fmt.Errorf("manifests directory: %w", err)
	}
	defer root.Close()
	size, err := artifact.WriteManifests(w, root.FS())
	var write *write.Error
	if err != nil && !errors.As(err, &write) {
		err = &ManifestError{Dir: r.Application.ManifestsDir, Err: &manifests.Error{Place: manifests.Place{File: "."}, Text: err.Error()}}
	}
	return size, err
}

// inManifests adds the directory to an error about manifests.
func (r *run) inManifests(err error) error {
	var e *manifests.Error
	if errors.As(err, &e) {
		return &ManifestError{Dir: r.Application.ManifestsDir, Err: r.asRendered(e)}
	}
	return err
}

// asRendered names the file that a rendered object comes from.
func (r *run) asRendered(e *manifests.Error) *manifests.Error {
	p := r.rendered.Place(e.Place)
	if p == e.Place {
		return e
	}
	return &manifests.Error{Place: p, Text: "as rendered: " + e.Text, Hint: e.Hint}
}
