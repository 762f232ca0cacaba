package generator

import (
	"cmp"
	"crypto"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/artifact/similar"
	"github.com/mender-app/mender-app/delta/budget"
	"github.com/mender-app/mender-app/generator/bases"
	"github.com/mender-app/mender-app/generator/manifests"
	"github.com/mender-app/mender-app/generator/source"
	"github.com/mender-app/mender-app/generator/write"
)

// The orchestrators whose manifests the generator can read. Any other name is that
// of another sub-module.
const (
	Compose    = manifests.DockerCompose
	Kubernetes = manifests.K8s
)

var orchestrators = []string{Compose, Kubernetes}

// Options say what artifact is made.
type Options struct {
	Application Application
	Images      Images
	Artifact    Artifact
	Build       Build
}

// Application says what runs on the device. Name, Orchestrator, Platform and
// ManifestsDir are required.
type Application struct {
	Name         string
	Version      string // "" is the policy's, or none
	PolicyFile   string // "" is app.toml in ManifestsDir, if it is there
	Reboot       bool   // ask for a restart of the machine before the commit
	Orchestrator string
	Platform     image.Platform
	Several      bool // the same images are for artifacts of other platforms too
	ManifestsDir string
	Env          map[string]string // of the metadata; empty values are left out
	Compose      manifests.ComposeOptions
	Values       []string // files of values, if the manifests are a chart; the last one wins
	PlainSecrets []string // files, secrets and variables that may be shipped in plain
	EncryptTo    []string // recipients of the secrets, age1… or files of these; none: they are shipped as they are
}

// Coding says how images without a base are sent.
type Coding int

const (
	// Plain: in gzip.
	Plain Coding = iota
	// Coded: as deltas too, smaller than in gzip, for much more processor time here.
	Coded
	// Fast is for trying things out: in gzip, but for layers that an earlier image of the
	// artifact has. Deltas are searched less for.
	Fast
)

// Images say which images are sent and how.
type Images struct {
	Pairs []Pair // none: those that the manifests use
	// Coding says how images without a base are sent. It is Plain in an artifact for
	// ReaderShellModule, and for versions of mender-app that read no deltas.
	Coding Coding
	// Best searches more, which takes two to three times the time.
	Best      bool
	FilesOnly bool // make deltas that need old files alone, not the headers of layers
	// Releases are older artifacts: each image without a base in Pairs becomes a
	// delta over the images that it replaces in them.
	Releases bases.Options
	// Content are artifacts, directories of them and images, in which the content
	// of images is found that older artifacts have as deltas only.
	Content []string
	// RequireBase fails if no image has a base: devices would get all of them whole.
	RequireBase bool
	Fallback    bool     // add each image that has a base as a whole image too
	Skip        bool     // ship no images: all of them are on the device
	Files       []File   // components that are files
	OnDevice    []string // images that the manifests use and the device has
	// Link is the rate at which an artifact arrives on a device, and Device the class of the
	// device; its zero value is that of the platform, or the slowest. New content is coded in
	// the way of which such a device has it first: in fewer bytes, or so that it is quicker to
	// decode. Only bytes count if Link is 0, and with Best.
	Link   budget.Link
	Device budget.Class
	// Budgets bound what devices take to decode the deltas: at most one for a platform.
	Budgets []budget.Budget
}

// Artifact is what the Mender Artifact says around the application. Name and
// DeviceTypes are required.
type Artifact struct {
	Name          string
	DeviceTypes   []string
	Group         string
	DependsNames  []string
	DependsGroups []string
	Software      Software
	Provides      map[string]string
	Depends       map[string][]string // keys of provides, and the values of each that will do
	Clears        []string
	NoAutoDepends bool // do not depend on the version of the application that the bases are from
	Scripts       []mender.Script
	Signing       Signing
	Expiry        Expiry
	Revocations   []byte // a list as statement.SignRevocations returns it; nil for none
	Compression   mender.Compression
	Reader        string // ReaderShellModule, or "" for mender-app
	// ForVersion is the oldest version of mender-app that devices have, or the features
	// that those have, as their inventory says them; "" for the present version.
	ForVersion string
}

// ReaderShellModule is the shell app-update-module. An artifact for it has whole images
// alone, compressed as well as it can read, and nothing that it would refuse. It installs
// with mender-app too.
const ReaderShellModule = "shell-module"

// Readers are the programs other than mender-app that an artifact can be made for.
var Readers = []string{ReaderShellModule}

// Expiry says until when devices may install a release, if they ask. It is in the
// statement, so somebody has to sign.
type Expiry struct {
	Text            string // as it was asked for: two artifacts with the same are made from the same
	Issued, Expires time.Time
}

// Signing says who signs the artifact and the statement about the application:
// Key, or Sign with a key that is elsewhere;
// neither: nobody. See mender.Options.
type Signing struct {
	Key    crypto.Signer
	Sign   func(digest []byte) ([]byte, error)
	Public crypto.PublicKey // verifies what Sign returns; may be nil
}

// PublicKey is the key that the signature can be verified with; nil if there is
// none or it is not known.
func (s *Signing) PublicKey() crypto.PublicKey {
	if s.Key != nil {
		return s.Key.Public()
	}
	return s.Public
}

// signs reports whether somebody signs.
func (s *Signing) signs() bool { return s.Key != nil || s.Sign != nil }

// options are the options of mender.Write that say who signs.
func (s *Signing) options() mender.Options {
	return mender.Options{Key: s.Key, Sign: s.Sign, Public: s.Public}
}

// Build says how and where to make the artifact. Output is required.
type Build struct {
	Output   string
	Hold     bool      // do not give the files their names: Result.Publish does
	Strict   bool      // warnings are errors
	TempDir  string    // for what is fetched and made; needs room for the images; "" is the output's directory, or that for temporary files if the output is not a file
	ModTime  time.Time // of everything in the artifact that has a time
	Sources  source.Config
	Progress func(source.Event) // may be called from several goroutines; may be nil
	// CacheDir keeps what is fetched and made for the next run, at most CacheLimit
	// bytes of it; "" keeps nothing.
	CacheDir   string
	CacheLimit int64
	// SBOM and Provenance are files to write beside the artifact: what is in its
	// images, as CycloneDX 1.6, and what it was made of, as an in-toto statement
	// with SLSA provenance; "" writes none.
	SBOM       string
	Provenance string
	// Taken are directories of releases. A release there of the artifact's name is kept if
	// it was made from the same, and refused otherwise; nil: those of Images.Releases.
	Taken []string
	// Split: other artifacts of the same name are for devices with other releases.
	Split bool
	// Replace makes an artifact anew whose name is taken, unless others build on it.
	Replace bool
}

// Pair is an image and the base of its delta, if it has one. Several pairs with
// the same image and different bases make one delta for each base. A device
// takes the delta whose base it has.
type Pair struct {
	Base *source.Spec
	New  source.Spec
}

// ParsePair reads [CURRENT,]NEW; each is what source.Parse reads. CURRENT may be
// the same as NEW: then the device has the image and no content travels. A comma may be
// part of a file's name, if there is a file of that name.
func ParsePair(s string) (Pair, error) {
	whole, err := source.Parse(s)
	if err == nil && strings.Contains(whole.Path, ",") && !strings.Contains(whole.Ref+whole.URL, ",") && there(whole) {
		return Pair{New: whole}, nil
	}
	at := strings.IndexByte(s, ',')
	for i, c := range s {
		if c != ',' {
			continue
		}
		old, err1 := source.Parse(s[:i])
		next, err2 := source.Parse(s[i+1:])
		if err1 == nil && err2 == nil && there(old) && there(next) {
			at = i
			break
		}
	}
	if at < 0 {
		return Pair{New: whole}, err
	}
	n, err := source.Parse(s[at+1:])
	if err != nil {
		return Pair{}, err
	}
	c, err := source.Parse(s[:at])
	if err != nil {
		return Pair{}, err
	}
	return Pair{Base: &c, New: n}, nil
}

// there reports whether the file of a source exists; so does what is not a file.
func there(s source.Spec) bool {
	_, err := os.Stat(s.Path)
	return s.Path == "" || err == nil
}

// image identifies the new image of a pair among the pairs.
func (p Pair) image() string { return p.New.String() + "=" + p.New.URL }

// artifactName is what an artifact may be called.
var artifactName = sync.OnceValue(func() *regexp.Regexp { // takes 6 ms
	return regexp.MustCompile(`^[^-./\\\s\pC][^/\\\s\pC]{0,127}$`)
})

// otherWords are what people write for an orchestrator.
var otherWords = map[string]string{
	"compose": Compose, "docker": Compose, "docker_compose": Compose, "dockercompose": Compose,
	"kubernetes": Kubernetes, "kube": Kubernetes, "k3s": Kubernetes,
}

// checked fills in defaults and refuses what can be refused without looking at
// any image or manifest.
func (o Options) checked() (Options, error) {
	app := &o.Application
	var missing []string
	for _, need := range []struct {
		name string
		have bool
	}{
		{"--application-name", app.Name != ""},
		{"--artifact-name", o.Artifact.Name != ""},
		{"--device-type", len(o.Artifact.DeviceTypes) > 0},
		{"--orchestrator", app.Orchestrator != ""},
		{"--platform", app.Platform != image.Platform{}},
		{"--manifests-dir", app.ManifestsDir != ""},
	} {
		if !need.have {
			missing = append(missing, need.name)
		}
	}
	switch {
	case len(missing) > 0:
		return o, &UsageError{Text: "missing " + strings.Join(missing, ", ")}
	case names.CheckNew(app.Name) != nil:
		return o, &UsageError{Text: fmt.Sprintf("bad application name %q", app.Name), Hint: "letters, digits, _, . and -, at most 63, the first a letter or digit"}
	case !artifactName().MatchString(o.Artifact.Name):
		return o, &UsageError{Text: fmt.Sprintf("bad artifact name %q", o.Artifact.Name), Hint: "no spaces, slashes or control characters, no - or . at its start, at most 128 characters: it is part of names of files and of commands"}
	case otherWords[app.Orchestrator] != "":
		return o, &UsageError{Text: fmt.Sprintf("there is no orchestrator %q", app.Orchestrator), Hint: "did you mean " + otherWords[app.Orchestrator] + "?"}
	case names.CheckNew(app.Orchestrator) != nil:
		return o, &UsageError{Text: fmt.Sprintf("bad orchestrator %q", app.Orchestrator), Hint: "it is the name of a sub-module: " + Compose + ", " + Kubernetes + " or your own"}
	case app.Orchestrator != Kubernetes && len(app.Values) > 0:
		return o, &UsageError{Text: "--values is for a chart, with --orchestrator " + Kubernetes}
	case !app.known() && len(app.EncryptTo) > 0:
		return o, &UsageError{Text: "--encrypt-secrets-to: the manifests of " + app.Orchestrator + " cannot be read", Hint: "encrypt its secrets yourself, in the way that its sub-module reads"}
	case o.Artifact.Reader != "" && o.Artifact.ForVersion != "":
		return o, &UsageError{Text: "--for and --for-version exclude each other", Hint: "devices with the shell app-update-module have no mender-app"}
	case o.Artifact.Reader != "" && !slices.Contains(Readers, o.Artifact.Reader):
		return o, &UsageError{Text: fmt.Sprintf("--for: unknown reader %q", o.Artifact.Reader), Hint: "it is " + ReaderShellModule + ", or left out for mender-app"}
	case o.Images.Skip && len(o.Images.Pairs) > 0:
		return o, &UsageError{Text: "--skip-images and --image exclude each other"}
	case !app.known() && len(o.Images.Pairs) == 0 && len(o.Images.Files) == 0 && !o.Images.Skip:
		meant := similar.Meant(app.Orchestrator, orchestrators)
		if meant != "" {
			meant += " "
		}
		return o, &UsageError{Text: "no images", Hint: meant + fmt.Sprintf("the manifests of %s cannot be read: name the images with --image and files with --component, or use --skip-images; %s and %s are those that can", app.Orchestrator, Compose, Kubernetes)}
	}
	if o.Images.Coding == Fast && o.Images.Best {
		return o, &UsageError{Text: "--fast and --best exclude each other", Hint: "leave both out for a release"}
	}
	has, err := o.Artifact.readBy()
	if err != nil {
		return o, err
	}
	if o.Artifact.Reader == ReaderShellModule || !ReadsDeltas(has) {
		o.Images.Coding = Plain
	}
	if o.Artifact.Software.Name == "" {
		o.Artifact.Software.Name = app.Name
	}
	if o.Artifact.Software.Version == "" {
		o.Artifact.Software.Version = o.Artifact.Name
	}
	if o.Build.Output == "" {
		return o, &UsageError{Text: "no output path"}
	}
	if o.Build.Taken == nil {
		o.Build.Taken = o.Images.Releases.Directories()
	}
	dir, err := write.Check(o.Build.Output)
	if err != nil {
		return o, err
	}
	o.Build.TempDir = cmp.Or(o.Build.TempDir, dir)
	if err := o.Build.checkReports(); err != nil {
		return o, err
	}
	if err := shippedOutput(app.ManifestsDir, o.Build.Output); err != nil {
		return o, err
	}
	return o, o.Images.check()
}

// known reports whether the generator can read the orchestrator's manifests.
func (a *Application) known() bool {
	return a.Orchestrator == Compose || a.Orchestrator == Kubernetes
}

// check refuses an image that is given twice, unless each time has another base.
func (o *Images) check() error {
	bases := map[string][]string{}
	based := slices.ContainsFunc(o.Files, func(f File) bool { return len(f.Bases) > 0 })
	if err := checkFiles(o.Files); err != nil {
		return err
	}
	for _, p := range o.Pairs {
		base := ""
		if p.Base != nil {
			base, based = p.Base.String(), true
		}
		if have := bases[p.image()]; have != nil {
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
		bases[p.image()] = append(bases[p.image()], base)
	}
	switch {
	case o.Releases.Last < 0:
		return &UsageError{Text: "--last is a number of releases, 1 or more"}
	case o.Releases.Last > 0 && len(o.Releases.Dirs) == 0:
		return &UsageError{Text: "--last without --bases-from", Hint: "it says how many releases of that directory are bases"}
	case o.Releases.Any() && o.Skip:
		return &UsageError{Text: "--skip-images and --base or --bases-from exclude each other"}
	case o.Fallback && !based && !o.Releases.Any():
		return &UsageError{Text: "--full-fallback without a delta", Hint: "it adds whole images beside deltas: name bases with --base FILE.mender or --image CURRENT,NEW"}
	}
	return nil
}

func (o *Images) onDevice(url string) bool {
	return slices.ContainsFunc(o.OnDevice, func(d string) bool { return source.Normal(d) == source.Normal(url) })
}

// shippedOutput refuses an output in the manifests directory, unless its directory there
// is not shipped.
func shippedOutput(manifestsDir, path string) error {
	rel, ok := inside(manifestsDir, filepath.Dir(path))
	if !ok {
		return nil
	}
	ignore, err := manifests.ReadIgnore(manifestsDir)
	if err == nil && rel != "." && ignore.Ignored(rel) {
		return nil
	}
	return &UsageError{Text: fmt.Sprintf("the output %s lies in the manifests directory, which is shipped", path),
		Hint: "choose another --output-path, or name its directory in " + manifests.IgnoreFile}
}

// inside gives the path of dir in tree, after following links; false if it is neither
// tree nor below it.
func inside(tree, dir string) (string, bool) {
	t, err1 := filepath.EvalSymlinks(tree)
	d, err2 := filepath.EvalSymlinks(dir)
	if err1 != nil || err2 != nil {
		return "", false
	}
	t, err1 = filepath.Abs(t)
	d, err2 = filepath.Abs(d)
	if err1 != nil || err2 != nil {
		return "", false
	}
	rel, err := filepath.Rel(t, d)
	return rel, err == nil && filepath.IsLocal(rel)
}
