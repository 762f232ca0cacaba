// Package generator makes App Artifacts on the build host, from container
// images and an orchestrator's manifests, and describes existing ones.
//
// Generate works in phases. It reads the manifests, finds the images and reads their
// layers. It makes a [Plan], which says how each image is sent and which layers are left
// out. Then it executes the plan: it makes the deltas, within the budget for decoding,
// describes them, packs them and writes the artifact. Each phase passes its results on;
// none changes those of an earlier one. Nothing appears at the output path unless all
// succeed.
//
// It knows no terminals or exit codes, and never runs a container engine. Its
// errors about options name them as app-gen does.
package generator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/scratch"
	"github.com/mender-app/mender-app/artifact/similar"
	"github.com/mender-app/mender-app/generator/bases"
	"github.com/mender-app/mender-app/generator/manifests"
	"github.com/mender-app/mender-app/generator/render"
	"github.com/mender-app/mender-app/generator/source"
	"github.com/mender-app/mender-app/generator/write"
)

// Result describes what Generate has made.
type Result struct {
	Path string // of the artifact, once it is published
	// Unpublished is where the artifact is before Publish; "" without Build.Hold.
	Unpublished string

	// Unchanged: an artifact of this name was made from the same before. It is the
	// result, and nothing was made.
	Unchanged bool

	// Manifests are the files that are shipped, before variables are added and secrets
	// encrypted. NotShipped are the files and directories of the manifests directory that
	// stay here whole.
	Manifests  []manifests.Shipped
	NotShipped []string
	Rendered   *render.Rendered // nil: the manifests are shipped as they are

	Plan     *Plan  // nil if it is unchanged
	Sent     []Sent // of each of the plan's components; nil after a dry run
	Warnings []string
	Notes    []string // what is worth a line, and not a reason to stop

	written []*write.File
}

// Publish gives the files of a result that Build.Hold held their names, the artifact
// last.
func (r *Result) Publish() error {
	for i, w := range r.written {
		if err := w.Commit(); err != nil {
			r.written = r.written[i+1:]
			r.Discard()
			return err
		}
	}
	r.written, r.Unpublished = nil, ""
	return nil
}

// Discard removes the files that are not published.
func (r *Result) Discard() {
	for _, w := range r.written {
		w.Abort()
	}
	r.written = nil
}

// Sent is the size of an image in the artifact, in bytes of the images payload. The
// sizes of all images add up to the payload.
type Sent struct {
	Bytes    int64   // everything of the image
	Shared   int64   // of it, what several variants need
	Variants []int64 // of it, what each variant has for itself, in the order of the plan
}

// Generate makes the artifact. On an error there is no new file at Build.Output,
// and what was there is untouched. With dry it only makes the plan: it finds and
// reads images, and encodes and writes nothing.
func Generate(ctx context.Context, o Options, dry bool) (*Result, error) {
	r, err := begin(o)
	if err != nil {
		return nil, err
	}
	defer r.end()
	used, err := r.prepareManifests(ctx)
	if err != nil {
		return nil, err
	}
	images, err := r.collectImages(ctx, used)
	if err != nil {
		return nil, err
	}
	kept, err := r.kept(ctx, images, used)
	if err != nil {
		return nil, err
	}
	if kept != nil && !dry && !r.reports() {
		result, err := r.unchanged(ctx, kept, nil)
		return r.finish(result, err)
	}
	if kept == nil && r.Images.RequireBase && !slices.ContainsFunc(images, func(f foundImage) bool { return len(f.named) > 0 }) {
		return nil, &UsageError{Text: "--require-base: there is no older release to build on, and devices would get whole images",
			Hint: "name where the releases are with --bases-from; leave --require-base out for the first release"}
	}
	if r.first && kept == nil {
		r.note("there is no older release of %s in %s: all images travel whole", r.Application.Name, strings.Join(r.Images.Releases.Dirs, ", "))
	}
	images, layers, err := r.readLayers(ctx, images)
	if err != nil {
		return nil, err
	}
	p, err := r.makePlan(ctx, images, layers)
	if err != nil {
		return nil, err
	}
	switch {
	case dry:
		return &Result{Path: r.Build.Output, Plan: &p.Plan, Unchanged: kept != nil, Manifests: r.shipped, NotShipped: r.left, Rendered: r.rendered, Warnings: r.warnings, Notes: r.notes}, nil
	case kept != nil:
		result, err := r.unchanged(ctx, kept, p)
		return r.finish(result, err)
	}
	result := &Result{Path: r.Build.Output, Plan: &p.Plan}
	if result.Sent, err = r.execute(ctx, p, used); err == nil {
		err = r.strict()
	}
	result.written = r.written
	if err != nil {
		result.Discard()
		return nil, err
	}
	result.Unpublished = r.written[len(r.written)-1].Content()
	return r.finish(result, nil)
}

// finish publishes a result, unless Build.Hold leaves that to the caller.
func (r *run) finish(result *Result, err error) (*Result, error) {
	if err != nil {
		return nil, err
	}
	result.Warnings, result.Notes, result.Manifests, result.NotShipped, result.Rendered = r.warnings, r.notes, r.shipped, r.left, r.rendered
	if r.Build.Hold {
		return result, nil
	}
	return result, result.Publish()
}

// run has what all steps of one call of Generate need.
type run struct {
	Options
	policy     json.RawMessage       // of the metadata; nil: there is none
	recipients *manifests.Recipients // of the secrets
	temp       string                // directory for temporary files
	opener     *source.Opener
	older      *bases.Chain // the content of older releases, for opener
	noting     sync.Mutex   // guards warnings and notes while deltas are made
	warnings   []string
	notes      []string          // what is not a reason to stop
	tree       string            // the manifests as they are shipped: the manifests directory, or a copy
	ignore     *manifests.Ignore // what of the manifests directory is not shipped
	rendered   *render.Rendered  // nil: the manifests are shipped as they are
	shipped    []manifests.Shipped
	left       []string      // what of the manifests directory is not shipped, by its names there
	written    []*write.File // complete files, the artifact last

	reads    []string    // the features that the devices have; nil: all
	limit    decodeLimit // of what they take to decode the deltas
	byteCost int64       // of a delta, see encoder.Options
	first    bool        // older releases were looked for, and there are none
	made     *artifact.Made

	cache       *source.Cache // nil: nothing is kept
	cacheFailed sync.Once     // says that it does not work
}

// begin checks the options, reads what they name apart from images and manifests, and
// makes the directory for temporary files.
func begin(o Options) (r *run, err error) {
	if o, err = o.checked(); err != nil {
		return nil, err
	}
	r = &run{Options: o}
	if r.reads, err = o.Artifact.readBy(); err != nil {
		return nil, err
	}
	if r.limit, err = decodeLimitOn(o.Images.Budgets, o.Application.Platform.String()); err != nil {
		return nil, &UsageError{Text: "--decode-budget: " + err.Error()}
	}
	r.byteCost = o.Images.byteCost(o.Application.Platform.String())
	r.checkOrchestrator()
	if s := &o.Artifact.Signing; s.Sign != nil && s.Public == nil {
		r.warn("the signature is not verified: give the public key with --public-key")
	}
	if r.recipients, err = manifests.ReadRecipients(o.Application.EncryptTo, artifact.MaxRecipients); err != nil {
		return nil, encryptUsage(err)
	}
	if err := r.readPolicy(); err != nil {
		return nil, err
	}
	if r.temp, err = scratch.Dir(o.Build.TempDir, scratch.HostPrefix); err != nil {
		return nil, &write.Error{Err: err}
	}
	if dir := o.Build.CacheDir; dir != "" && o.Build.CacheLimit > 0 {
		if r.cache, err = source.OpenCache(dir, o.Build.CacheLimit); err != nil {
			r.noCache(err)
		}
	}
	return r, nil
}

// end closes the images and removes all temporary files.
func (r *run) end() {
	if r.older != nil {
		r.older.Builder.Close()
	}
	if r.opener != nil {
		r.opener.Close()
	}
	scratch.Remove(r.temp)
}

// prepareManifests reads the manifests as they are shipped, and checks what can be
// checked without images. It returns nil for an orchestrator whose manifests the
// generator cannot read.
func (r *run) prepareManifests(ctx context.Context) (*manifests.Found, error) {
	if err := r.openManifests(); err != nil {
		return nil, err
	}
	used, err := r.readManifests(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.checkServices(used); err != nil {
		return nil, err
	}
	if err := r.shipManifests(used); err != nil {
		return nil, err
	}
	if err := r.listManifests(); err != nil {
		return nil, err
	}
	if err := r.suspectManifests(used); err != nil {
		return nil, err
	}
	if err := r.judgeManifests(ctx, used); err != nil {
		return nil, err
	}
	return used, r.strict()
}

// collectImages finds the images and their bases.
func (r *run) collectImages(ctx context.Context, used *manifests.Found) (images []foundImage, err error) {
	r.opener = &source.Opener{Platform: r.Application.Platform, Several: r.Application.Several, TempDir: r.temp, Config: r.Build.Sources, Cache: r.cache}
	r.opener.Progress = func(what string, done, total int64) { r.tell("fetch", what, done, total) }
	r.opener.Attestations = r.Build.SBOM != ""
	if err := r.olderContent(ctx); err != nil {
		return nil, err
	}
	if images, err = r.find(ctx, used); err != nil {
		return nil, err
	}
	if err := r.checkUses(images, used); err != nil {
		return nil, err
	}
	r.checkHealth(images, used)
	return images, nil
}

// makePlan decides how everything travels, and refuses what the devices cannot read.
func (r *run) makePlan(ctx context.Context, images []foundImage, layers source.Layers) (*plan, error) {
	p, err := r.plan(images, layers)
	if err != nil {
		return nil, err
	}
	if err := r.planFiles(p); err != nil {
		return nil, err
	}
	if err := r.checkReader(p); err != nil {
		return nil, err
	}
	if err := r.checkFeatures(p); err != nil {
		return nil, err
	}
	if r.Build.SBOM != "" {
		if p.packages, err = r.packages(ctx, images); err != nil {
			return nil, err
		}
	}
	return p, r.strict()
}

func (r *run) warn(format string, args ...any) {
	r.noting.Lock()
	defer r.noting.Unlock()
	r.warnings = append(r.warnings, fmt.Sprintf(format, args...))
}

// note says something that is worth a line, and not a reason to stop.
func (r *run) note(format string, args ...any) {
	r.noting.Lock()
	defer r.noting.Unlock()
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// strict refuses warnings if that was asked for.
func (r *run) strict() error {
	if r.Build.Strict && len(r.warnings) > 0 {
		return &StrictError{r.warnings}
	}
	return nil
}

// checkOrchestrator warns of an orchestrator whose manifests cannot be read.
func (r *run) checkOrchestrator() {
	name := r.Application.Orchestrator
	if r.Application.known() {
		return
	}
	const text = "orchestrator %s is not one of ours: the device needs a sub-module of that name, and the manifests are not checked. "
	if meant := similar.Meant(name, orchestrators); meant != "" {
		r.warn(text+"%s", name, meant)
		return
	}
	r.note(text+"If that is not meant: ours are %s and %s", name, Compose, Kubernetes)
}

func (r *run) tell(stage, what string, done, total int64) {
	r.report(source.Event{Stage: stage, What: what, Done: done, Total: total})
}

func (r *run) report(e source.Event) {
	if r.Build.Progress != nil {
		r.Build.Progress(e)
	}
}

// readManifests finds the images that the manifests use. It returns nil for an
// orchestrator whose manifests the generator cannot read.
func (r *run) readManifests(ctx context.Context) (*manifests.Found, error) {
	var found *manifests.Found
	var err error
	dir, encrypt := r.tree, len(r.recipients.Names) > 0
	switch r.Application.Orchestrator {
	case Compose:
		o := r.Application.Compose
		o.Encrypt, o.Ignored, o.Plain = encrypt, r.ignore.Ignored, r.Application.PlainSecrets
		found, err = manifests.Compose(ctx, dir, o)
		var version *manifests.VersionError
		if errors.As(err, &version) {
			return nil, &UsageError{Text: "--compose-version: " + err.Error(), Hint: "give what docker compose version says on the devices, such as 2.26"}
		}
	case Kubernetes:
		found, err = manifests.Kubernetes(dir, manifests.KubernetesOptions{
			Encrypt: encrypt, Plain: r.Application.PlainSecrets, Namespace: r.Application.Env["K8S_NAMESPACE"], At: r.rendered.Place,
		})
	default:
		return nil, nil
	}
	if err != nil {
		return nil, r.inManifests(err)
	}
	r.warnings, r.notes = append(r.warnings, found.Warnings...), append(r.notes, found.Notes...)
	if encrypt && len(found.Encrypt) == 0 {
		r.warn("--encrypt-secrets-to: there is no secret to encrypt")
	}
	for _, v := range found.Ship {
		if v.Value == manifests.ProjectFile {
			continue // app-gen's own
		}
		r.note("%s comes from outside the manifests directory: it is shipped in .env", v.Name)
	}
	return found, nil
}
