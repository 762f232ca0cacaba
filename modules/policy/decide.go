package policy

import (
	"fmt"
	"strings"

	"github.com/mender-app/mender-app/artifact/clip"
	"github.com/mender-app/mender-app/artifact/version"
)

// Operation is what a caller wants to do with an application.
type Operation string

// The operations.
const (
	Install Operation = "install" // of an artifact: first, newer or older
	Remove  Operation = "remove"  // of the application as a whole
)

// Mode says who asked for the operation.
type Mode string

// The modes.
const (
	ByClient  Mode = "client"    // a Mender client
	ByHand    Mode = "hand"      // a person
	Automatic Mode = "automatic" // the device itself
	Force     Mode = "force"     // a person who insists
)

// Status is the state of an installed application. The zero value says that its
// current release is committed.
type Status string

// Open: a deployment of the application has not ended.
const Open Status = "open"

// App is an application at one version.
type App struct {
	Name    string
	Version string // application_version; "" if it has none
	Release string // in the device's store; "" for an incoming one
	Status  Status
	Sick    bool    // its health was checked, and it is not healthy
	Policy  *Policy // nil if it ships none
}

// Engine is what runs the containers.
type Engine struct {
	Name    string // such as "docker"; without a Version the orchestrator's, such as "docker-compose"
	Version string // "" if the sub-module does not announce it
}

// Platform describes the operating system.
type Platform struct {
	Version  string            // "" if it is not known
	Provides map[string]string // what the device provides, according to Mender
	Files    map[string]bool   // the files of Policy.Files that exist
}

// Request has the facts for a decision.
type Request struct {
	Operation Operation
	Mode      Mode
	// App is the application: for Install the new one, for Remove the installed
	// one.
	App App
	// Installed are the applications of the device that have a current
	// release, App's among them.
	Installed []App
	// Staged are the artifacts that may be installed first if a dependency has the
	// action apply, the newest of each application first. Only policies with such a
	// dependency need it.
	Staged []Staged
	// Only some policies need Engine and Platform; see NeedsEngine and
	// NeedsPlatform.
	Engine   Engine
	Platform Platform
}

// Finding is a rule that is not met.
type Finding struct {
	Rule   string // the policy's key, see docs/POLICY.md
	App    string // the application that the policy belongs to
	Reason string // what is wrong
	Remedy string // what would satisfy the rule
}

// String returns the finding in one line.
func (f Finding) String() string {
	return fmt.Sprintf("%s of %s: %s: %s", f.Rule, f.App, f.Reason, f.Remedy)
}

// Decision is the answer to a Request.
type Decision struct {
	Refused  *Finding  // the first rule that forbids the operation; nil: it is allowed
	Warnings []Finding // rules that only warn
	// First are the staged artifacts that must be installed first, in this order, and
	// undone together with the application. Their own policies have not been checked yet.
	First []Staged

	work int // number of expressions and dependencies that were evaluated
}

// Decide answers a request. The same request gives the same answer. The time is
// linear in the number of applications and dependencies.
func Decide(r Request) Decision {
	d := decider{Request: r, installed: make(map[string]*App, len(r.Installed))}
	for i := range r.Installed {
		d.installed[r.Installed[i].Name] = &r.Installed[i]
	}
	rules := []func() *Finding{d.managed, d.fromVersions, d.downgrade, d.orchestrator, d.platform, d.cycle, d.depends, d.dependents, d.healthy}
	if r.Operation == Remove {
		rules = []func() *Finding{d.managed, d.dependents}
	}
	for _, rule := range rules {
		if f := rule(); f != nil {
			return Decision{Refused: f, Warnings: d.warnings, work: d.work}
		}
	}
	return Decision{Warnings: d.warnings, First: d.first, work: d.work}
}

type decider struct {
	Request
	installed map[string]*App
	warnings  []Finding
	first     []Staged
	work      int
}

func (d *decider) matches(expression, text string) bool {
	d.work++
	return matches(expression, text)
}

// here returns the installed version of the application; nil if not installed.
func (d *decider) here() *App { return d.installed[d.App.Name] }

func (d *decider) finding(rule, reason, remedy string) *Finding {
	return &Finding{Rule: rule, App: d.App.Name, Reason: reason, Remedy: remedy}
}

// managed refuses automatic work on an application that did not opt in.
func (d *decider) managed() *Finding {
	if d.Mode != Automatic || d.App.Policy.managed() {
		return nil
	}
	return d.finding("managed", "it is not managed, so the device changes nothing automatically",
		"set managed = true in its app.toml, or do it by hand")
}

func (d *decider) fromVersions() *Finding {
	here := d.here()
	if here == nil || d.App.Policy == nil || d.App.Policy.Upgrades.FromVersions == nil {
		return nil
	}
	if d.App.Version != "" && d.App.Version == here.Version {
		return nil // the same version is not an update
	}
	from := d.App.Policy.Upgrades.FromVersions
	for _, expression := range from {
		if d.matches(expression, here.Version) {
			return nil
		}
	}
	reason := fmt.Sprintf("%s cannot be installed over %s", named(d.App.Version), named(here.Version))
	if len(from) == 0 {
		return d.finding("upgrades.from_versions", reason, "it cannot update any version: remove the application first")
	}
	return d.finding("upgrades.from_versions", reason, "first install a version that matches "+alternatives(from))
}

// downgrade checks that neither the installed release nor the new one forbids a
// downgrade.
func (d *decider) downgrade() *Finding {
	here := d.here()
	if here == nil || d.Mode == Force || here.Version == d.App.Version && here.Version != "" {
		return nil
	}
	forbids := ""
	switch {
	case !here.Policy.downgrades():
		forbids = "the installed release"
	case !d.App.Policy.downgrades():
		forbids = "the artifact"
	default:
		return nil
	}
	order, err := version.Compare(d.App.Version, here.Version)
	switch {
	case err != nil:
		return d.finding("downgrades.allow",
			fmt.Sprintf("%s forbids downgrades, and it is not known whether %s is older than %s", forbids, named(d.App.Version), named(here.Version)),
			"give the artifact a version such as 1.2.3, or install it with mender-app install --force")
	case order < 0:
		return d.finding("downgrades.allow",
			fmt.Sprintf("%s forbids downgrades, and %s is older than %s", forbids, named(d.App.Version), named(here.Version)),
			"install a newer version, or this one with mender-app install --force")
	}
	return nil
}

// healthy refuses to replace a release that is not healthy: the cause may lie outside
// the release, and an update would hide it.
func (d *decider) healthy() *Finding {
	here := d.here()
	if here == nil || !here.Sick || d.Mode == Force || !d.App.Policy.NeedsHealth() {
		return nil
	}
	return d.finding("upgrades.from_unhealthy", "the installed release is not healthy",
		"see mender-app status "+d.App.Name+", and repair it, or install this one with mender-app install --force, or a release with upgrades.from_unhealthy = true")
}

func (d *decider) orchestrator() *Finding {
	if !d.App.Policy.NeedsEngine() {
		return nil
	}
	rule, want := d.App.Policy.Orchestrator, d.Engine.Name
	if d.Engine.Version == "" {
		return d.finding("orchestrator", fmt.Sprintf("the sub-module %s does not say which version its engine has", want),
			"update the sub-module, or remove the rule")
	}
	if _, _, err := version.Triple(d.Engine.Version); err != nil {
		return d.finding("orchestrator", fmt.Sprintf("%s calls its version %q", want, clip.Text(d.Engine.Version)),
			"use a version that begins with major.minor")
	}
	have := fmt.Sprintf("%s has version %s", want, clip.Text(d.Engine.Version))
	if rule.Minimum != "" && above(rule.Minimum, d.Engine.Version) {
		return d.finding("orchestrator.minimum", have, "update it to "+rule.Minimum+" or later")
	}
	if rule.Maximum != "" && above(d.Engine.Version, rule.Maximum) {
		return d.finding("orchestrator.maximum", have, "use "+rule.Maximum+" or earlier, or a newer release of the application")
	}
	return nil
}

// above reports whether an engine's version a exceeds the bound b. A bound without a
// patch number includes all patches.
func above(a, b string) bool {
	ta, _, err := version.Triple(a)
	if err != nil {
		return false
	}
	tb, parts, err := version.Triple(b)
	if err != nil {
		return false
	}
	if parts == 2 {
		ta, tb = ta[:strings.LastIndexByte(ta, '.')]+".0", tb[:strings.LastIndexByte(tb, '.')]+".0"
	}
	order, err := version.Compare(ta, tb)
	return err == nil && order > 0
}

func (d *decider) platform() *Finding {
	if !d.App.Policy.NeedsPlatform() {
		return nil
	}
	const rule = "platform.releases"
	if d.Platform.Version == "" {
		return d.finding(rule, "the version of the operating system is not known",
			"use a device that provides rootfs-image.version, or has /etc/mender/artifact_info or VERSION_ID in /etc/os-release")
	}
	var known, missing []string
	for _, r := range d.App.Policy.Platform.Releases {
		known = append(known, r.Version)
		if !d.matches(r.Version, d.Platform.Version) {
			continue
		}
		lacks := d.lacks(r)
		if len(lacks) == 0 {
			return nil
		}
		if missing == nil {
			missing = lacks
		}
	}
	if missing != nil {
		return d.finding(rule, fmt.Sprintf("release %s of the operating system lacks a patch", clip.Text(d.Platform.Version)),
			"install an update that brings "+strings.Join(missing, " and "))
	}
	return d.finding(rule, fmt.Sprintf("release %s of the operating system is not supported", clip.Text(d.Platform.Version)),
		"use one that matches "+alternatives(known))
}

// lacks lists the missing patches of a platform release.
func (d *decider) lacks(r PlatformRelease) (list []string) {
	for _, file := range r.Files {
		if d.work++; !d.Platform.Files[file] {
			list = append(list, "the file "+file)
		}
	}
	for _, name := range sortedKeys(r.Provides) {
		if value, ok := d.Platform.Provides[name]; !ok || !d.matches(r.Provides[name], value) {
			list = append(list, fmt.Sprintf("%s matching %s among Mender's provides", name, r.Provides[name]))
		}
	}
	return list
}

// named returns a version for a sentence.
func named(version string) string {
	if version == "" {
		return "a release without a version"
	}
	return "version " + clip.Text(version)
}

func alternatives(list []string) string { return clip.Text(strings.Join(list, " or ")) }
