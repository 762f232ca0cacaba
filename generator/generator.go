// Package generator makes App Artifacts on the build host, from container
// images and an orchestrator's manifests, and tells what is in them.
//
// It first finds out everything and puts it down as a [Plan] (which image
// travels how, which layers are omitted), then executes the plan once. Nothing
// appears at the output path unless all of it succeeded.
//
// It knows no flags, terminals or exit codes, and never runs a container engine.
package generator

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/generator/manifests"
	"github.com/mender-app/mender-app/generator/source"
)

// The orchestrators whose manifests the generator can read. Any other name is
// that of somebody's own sub-module.
const (
	Compose    = "docker-compose"
	Kubernetes = "k8s"
)

// Options say what artifact is made. ApplicationName, ArtifactName,
// DeviceTypes, Orchestrator, Platform, ManifestsDir and Output are needed.
type Options struct {
	ApplicationName    string
	ApplicationVersion string
	Reboot             bool // ask for a restart of the machine before the commit
	Orchestrator       string
	Platform           image.Platform
	ManifestsDir       string
	Env                map[string]string // of the metadata; empty values are left out
	Compose            manifests.ComposeOptions

	Images     []Pair   // none: those the manifests use
	DeepDelta  bool     // deltas even for images without a base
	FilesOnly  bool     // deltas need old files alone, not the headers of layers, see delta.Options
	Fallback   bool     // every image with a base is there whole as well
	SkipImages bool     // ship none: all of them are on the device
	OnDevice   []string // images the manifests use that are on the device

	ArtifactName  string
	DeviceTypes   []string
	Group         string
	DependsNames  []string
	DependsGroups []string
	Software      Software
	Provides      map[string]string
	Depends       map[string][]string // keys of provides and the values that serve
	Clears        []string
	NoAutoDepends bool // do not depend on the version of the application that a delta builds on
	Key           crypto.Signer
	Compression   mender.Compression

	Output  string
	TempDir string    // for what is fetched and made; needs room for the images; "" is the output's directory
	ModTime time.Time // of everything in the artifact that has a time

	Sources  source.Config
	Progress func(Event) // may be called from several goroutines; may be nil
}

// Software is what the artifact's version is known by to Mender:
// provides FILESYSTEM.NAME.version.
type Software struct {
	Filesystem string // "" is rootfs-image
	Name       string // "" is the application's name
	Version    string // "" is the artifact's name
	NoVersion  bool   // provide no version
	NoClears   bool   // add no clears_artifact_provides
}

// Event tells how far a piece of work is.
type Event struct {
	Stage string // "fetch", "read", "encode", "write"
	What  string
	Done  int64
	Total int64 // -1: unknown
}

// Pair is an image and the base of its delta, if it has one. Pairs of one image
// and several bases make a delta for each, of which a device takes the one it
// has the base of.
type Pair struct {
	Base *source.Spec
	New  source.Spec
}

// ParsePair reads [CURRENT,]NEW; each is what source.Parse reads. CURRENT may be
// the same as NEW: then the device has the image and no content travels.
func ParsePair(s string) (Pair, error) {
	next := s
	current, after, two := strings.Cut(s, ",")
	if two {
		next = after
	}
	n, err := source.Parse(next)
	if err != nil {
		return Pair{}, err
	}
	p := Pair{New: n}
	if two {
		c, err := source.Parse(current)
		if err != nil {
			return Pair{}, err
		}
		p.Base = &c
	}
	return p, nil
}

// Result is what Generate made.
type Result struct {
	Path     string
	Plan     *Plan
	Warnings []string
}

// Generate makes the artifact. On an error there is no new file at
// Options.Output, and what was there is untouched. With dry only the plan is
// made: images are found and read, nothing is encoded or written.
func Generate(ctx context.Context, o Options, dry bool) (*Result, error) {
	g := &generation{Options: o}
	if err := g.check(); err != nil {
		return nil, err
	}
	used, err := g.readManifests(ctx)
	if err != nil {
		return nil, err
	}
	temp, err := os.MkdirTemp(g.TempDir, ".app-gen-*")
	if err != nil {
		return nil, &WriteError{err}
	}
	defer os.RemoveAll(temp)
	g.temp = temp
	opener := &source.Opener{Platform: o.Platform, TempDir: temp, Config: o.Sources}
	opener.Progress = func(what string, done, total int64) { g.tell("fetch", what, done, total) }
	defer opener.Close()

	if err := g.find(ctx, opener, used); err != nil {
		return nil, err
	}
	if err := g.plan(ctx, used); err != nil {
		return nil, err
	}
	if !dry {
		if err := g.execute(ctx); err != nil {
			return nil, err
		}
	}
	return &Result{Path: o.Output, Plan: &g.result, Warnings: g.warnings}, nil
}

// generation is one run of Generate.
type generation struct {
	Options
	temp     string
	ship     []manifests.Variable
	images   []*planned
	apart    bool // devices differ in the bases they have
	result   Plan
	warnings []string
}

func (g *generation) warn(format string, args ...any) {
	g.warnings = append(g.warnings, fmt.Sprintf(format, args...))
}

func (g *generation) tell(stage, what string, done, total int64) {
	if g.Progress != nil {
		g.Progress(Event{stage, what, done, total})
	}
}

// check refuses what can be refused without looking at anything else.
func (g *generation) check() error {
	var missing []string
	for _, o := range []struct {
		name string
		have bool
	}{
		{"--application-name", g.ApplicationName != ""},
		{"--artifact-name", g.ArtifactName != ""},
		{"--device-type", len(g.DeviceTypes) > 0},
		{"--orchestrator", g.Orchestrator != ""},
		{"--platform", g.Platform != image.Platform{}},
		{"--manifests-dir", g.ManifestsDir != ""},
	} {
		if !o.have {
			missing = append(missing, o.name)
		}
	}
	switch {
	case len(missing) > 0:
		return &UsageError{Text: "missing " + strings.Join(missing, ", ")}
	case !artifact.ValidApplicationName(g.ApplicationName):
		return &UsageError{Text: fmt.Sprintf("bad application name %q", g.ApplicationName), Hint: "letters, digits, _, . and -, at most 63, the first a letter or digit"}
	case !artifact.ValidOrchestrator(g.Orchestrator):
		return &UsageError{Text: fmt.Sprintf("bad orchestrator %q", g.Orchestrator), Hint: "it is the name of a sub-module: " + Compose + ", " + Kubernetes + " or your own"}
	case g.SkipImages && len(g.Images) > 0:
		return &UsageError{Text: "--skip-images and --image exclude each other"}
	}
	known := g.Orchestrator == Compose || g.Orchestrator == Kubernetes
	if !known {
		g.warn("orchestrator %s is not one of ours: the device needs a sub-module of that name, and the manifests are not checked", g.Orchestrator)
		if len(g.Images) == 0 && !g.SkipImages {
			return &UsageError{Text: "no images", Hint: fmt.Sprintf("the manifests of %s cannot be read: name the images with --image, or use --skip-images", g.Orchestrator)}
		}
	}
	if g.Software.Name == "" {
		g.Software.Name = g.ApplicationName
	}
	if g.Software.Version == "" {
		g.Software.Version = g.ArtifactName
	}
	if g.Output == "" {
		return &UsageError{Text: "no output path"}
	}
	dir := filepath.Dir(g.Output)
	if info, err := os.Stat(dir); err != nil {
		return &WriteError{err}
	} else if !info.IsDir() {
		return &WriteError{fmt.Errorf("%s is not a directory", dir)}
	}
	if info, err := os.Stat(g.Output); err == nil && !info.Mode().IsRegular() {
		return &WriteError{fmt.Errorf("%s is not a file", g.Output)}
	}
	if g.TempDir == "" {
		g.TempDir = dir
	}
	if inside(g.ManifestsDir, dir) {
		return &UsageError{Text: fmt.Sprintf("the output %s lies in the manifests directory, which is shipped", g.Output), Hint: "choose another --output-path"}
	}
	if err := manifests.CheckTree(g.ManifestsDir); err != nil {
		return err
	}
	return g.checkPairs()
}

// checkPairs refuses an image that is asked for twice, unless it is with
// another base each time.
func (g *generation) checkPairs() error {
	bases := map[string][]string{}
	based := false
	for _, p := range g.Images {
		key, base := p.New.String()+"="+p.New.URL, ""
		if p.Base != nil {
			base, based = p.Base.String(), true
		}
		if have := bases[key]; have != nil {
			e := &UsageError{Text: p.New.String() + " is given twice"}
			if base != "" && slices.Contains(have, base) {
				e.Text += " with the base " + base
				return e
			}
			if base == "" || slices.Contains(have, "") {
				e.Text += ", with a base and without"
				e.Hint = "--full-fallback adds a copy for devices that have none of the bases"
				return e
			}
		}
		bases[key] = append(bases[key], base)
	}
	if g.Fallback && !based {
		return &UsageError{Text: "--full-fallback without a delta", Hint: "it adds whole images beside deltas: name bases with --image CURRENT,NEW"}
	}
	return nil
}

// inside tells whether dir is tree or below it, links followed.
func inside(tree, dir string) bool {
	t, err1 := filepath.EvalSymlinks(tree)
	d, err2 := filepath.EvalSymlinks(dir)
	if err1 != nil || err2 != nil {
		return false
	}
	t, err1 = filepath.Abs(t)
	d, err2 = filepath.Abs(d)
	if err1 != nil || err2 != nil {
		return false
	}
	rel, err := filepath.Rel(t, d)
	return err == nil && filepath.IsLocal(rel)
}

// readManifests finds the images the manifests use; nil for an orchestrator
// whose manifests nobody here can read.
func (g *generation) readManifests(ctx context.Context) (*manifests.Found, error) {
	var found *manifests.Found
	var err error
	switch g.Orchestrator {
	case Compose:
		found, err = manifests.Compose(ctx, g.ManifestsDir, g.Compose)
	case Kubernetes:
		found, err = manifests.Kubernetes(g.ManifestsDir)
	default:
		return nil, nil
	}
	if err != nil {
		var e *manifests.Error
		if errors.As(err, &e) {
			return nil, &ManifestError{Dir: g.ManifestsDir, Err: e}
		}
		return nil, err
	}
	g.ship = found.Ship
	g.warnings = append(g.warnings, found.Warnings...)
	for _, v := range found.Ship {
		g.warn("%s comes from outside the manifests directory: it is shipped in .env", v.Name)
	}
	return found, nil
}
