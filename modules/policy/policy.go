// Package policy decides whether a release may be installed on a device, and in which
// order automatic work is done. A policy is the file app.toml that an application
// ships; docs/POLICY.md describes every key.
//
// The package has no effects: it reads no file, calls no engine and uses no clock.
// The caller collects the facts (Request), the package answers (Decision), and the
// caller acts on the answer. The package does not know how releases are stored or
// loaded.
package policy

import "slices"

// Policy is the content of app.toml. The zero value is the policy of an application
// that ships none: it allows everything. The metadata of an artifact has the policy
// as JSON with the same keys.
type Policy struct {
	// Version is the application's version. The JSON in metadata does not have it:
	// it is in application_version there.
	Version      string       `toml:"version" json:"version,omitzero"`
	Managed      bool         `toml:"managed" json:"managed,omitzero"`
	Class        Class        `toml:"class" json:"class,omitzero"`
	DesiredState string       `toml:"desired_state" json:"desired_state,omitzero"`
	Enabled      *bool        `toml:"enabled" json:"enabled,omitzero"` // nil is true
	Upgrades     Upgrades     `toml:"upgrades" json:"upgrades,omitzero"`
	Downgrades   Downgrades   `toml:"downgrades" json:"downgrades,omitzero"`
	Orchestrator Orchestrator `toml:"orchestrator" json:"orchestrator,omitzero"`
	Platform     PlatformRule `toml:"platform" json:"platform,omitzero"`
	Services     Services     `toml:"services" json:"services,omitzero"`
	Depends      []Dependency `toml:"depends" json:"depends,omitzero"`
	Exceptions   []Exception  `toml:"dependent_parent_exceptions" json:"dependent_parent_exceptions,omitzero"`

	Hooks          []Hook         `toml:"hooks" json:"hooks,omitzero"`
	Keep           Keep           `toml:"keep" json:"keep,omitzero"`
	Data           Data           `toml:"data" json:"data,omitzero"`
	Resources      Resources      `toml:"resources" json:"resources,omitzero"`
	Reapply        []Reapply      `toml:"reapply" json:"reapply,omitzero"`
	EngineUpgrades EngineUpgrades `toml:"engine_upgrades" json:"engine_upgrades,omitzero"`
}

// Upgrades says over which versions a release may be installed, and how.
type Upgrades struct {
	// Automatic: the device installs the release automatically once it is staged.
	Automatic bool `toml:"automatic" json:"automatic,omitzero"`
	// FromUnhealthy: the release may replace one that is not healthy.
	FromUnhealthy bool `toml:"from_unhealthy" json:"from_unhealthy,omitzero"`
	// RollbackOnFailure: a failed installation is undone. nil is true.
	RollbackOnFailure *bool `toml:"rollback_on_failure" json:"rollback_on_failure,omitzero"`
	// FromVersions are expressions. One of them must match the whole installed
	// version. nil: any version; empty: none.
	FromVersions []string `toml:"from_versions" json:"from_versions,omitzero"`
	// Windows are the times in which the release may be installed; see ParseWindow. None:
	// at any time.
	Windows []string `toml:"windows" json:"windows,omitzero"`
	// Emergency: the release waits for no window, also not for those of the device.
	Emergency bool `toml:"emergency" json:"emergency,omitzero"`
}

// Downgrades says whether an older release may replace this one.
type Downgrades struct {
	Allow *bool `toml:"allow" json:"allow,omitzero"` // nil is true
	// Automatic: the device may reinstall this release automatically when a newer staged
	// one is withdrawn. nil is true.
	Automatic *bool `toml:"automatic" json:"automatic,omitzero"`
}

// Orchestrator bounds the version of the engine or cluster. Both bounds are
// included; "" is no bound.
type Orchestrator struct {
	Minimum string `toml:"minimum" json:"minimum,omitzero"`
	Maximum string `toml:"maximum" json:"maximum,omitzero"`
}

// PlatformRule says which releases of the operating system are allowed.
type PlatformRule struct {
	Releases []PlatformRelease `toml:"releases" json:"releases,omitzero"` // nil: all
}

// PlatformRelease is a release of the operating system and its required patches.
type PlatformRelease struct {
	Version  string            `toml:"version" json:"version"`            // expression
	Files    []string          `toml:"files" json:"files,omitzero"`       // absolute paths
	Provides map[string]string `toml:"provides" json:"provides,omitzero"` // name and expression
}

// Services says how the services of the application are shipped.
type Services struct {
	Disabled []string `toml:"disabled" json:"disabled,omitzero"`
}

// Dependency is another application this one needs.
type Dependency struct {
	Name    string `toml:"name" json:"name"`
	Version string `toml:"version" json:"version,omitzero"` // expression; "" is any version
	Action  Action `toml:"action" json:"action,omitzero"`   // "" is ActionError
}

// Exception lets an update break the dependency of another application.
type Exception struct {
	Name    string `toml:"name" json:"name"`       // the application that depends on this one
	Version string `toml:"version" json:"version"` // expression: its versions
}

// Action is what happens if a dependency is not met.
type Action string

// The values of Action.
const (
	ActionError  Action = "error"  // refuse
	ActionWarn   Action = "warn"   // log, and go on
	ActionIgnore Action = "ignore" // do not check, and do not order by it
	ActionApply  Action = "apply"  // install a staged artifact first; without one, refuse
)

// Class determines the place of a managed application in the order of automatic
// work.
type Class string

// The values of Class, in the order of automatic work. A managed application without
// a class is ClassOptional.
const (
	ClassCritical  Class = "critical"
	ClassStorage   Class = "storage"
	ClassDiscovery Class = "discovery"
	ClassOptional  Class = "optional"
	ClassReporting Class = "reporting"
)

var classes = []Class{ClassCritical, ClassStorage, ClassDiscovery, ClassOptional, ClassReporting}

// The values of DesiredState. StateRunning is the default. In the other two states a
// release is loaded, and only a person can start it.
const (
	StateRunning = "running"
	StateLoaded  = "loaded"
	StateStopped = "stopped"
)

// NeedsEngine reports whether the policy depends on the version of the engine.
func (p *Policy) NeedsEngine() bool {
	return p != nil && p.Orchestrator != (Orchestrator{})
}

// NeedsHealth reports whether the policy depends on the health of the installed
// release.
func (p *Policy) NeedsHealth() bool { return p != nil && !p.Upgrades.FromUnhealthy }

// RollsBack reports whether a release that fails to start is undone.
func (p *Policy) RollsBack() bool {
	return p == nil || isTrue(p.Upgrades.RollbackOnFailure)
}

// Starts reports whether an installation starts the release.
func (p *Policy) Starts() bool {
	return p == nil || p.DesiredState == "" || p.DesiredState == StateRunning
}

// NeedsStaged reports whether the policy depends on the staged artifacts.
func (p *Policy) NeedsStaged() bool {
	return slices.ContainsFunc(p.dependencies(), func(d Dependency) bool { return d.action() == ActionApply })
}

// NeedsPlatform reports whether the policy depends on the operating system: its
// version, its patches and what Mender provides.
func (p *Policy) NeedsPlatform() bool { return p != nil && p.Platform.Releases != nil }

// Files lists the files that the policy requires.
func (p *Policy) Files() (list []string) {
	if p == nil {
		return nil
	}
	for _, r := range p.Platform.Releases {
		list = append(list, r.Files...)
	}
	return list
}

// downgrades reports whether an older release may replace this one.
func (p *Policy) downgrades() bool {
	return p == nil || isTrue(p.Downgrades.Allow)
}

func (p *Policy) managed() bool { return p != nil && p.Managed }

// isTrue returns the value of a key whose default is true.
func isTrue(b *bool) bool { return b == nil || *b }

// action returns the dependency's action, or the default.
func (d Dependency) action() Action {
	if d.Action == "" {
		return ActionError
	}
	return d.Action
}

// dependencies returns the dependencies that are not ignored.
func (p *Policy) dependencies() (list []Dependency) {
	if p == nil {
		return nil
	}
	for _, d := range p.Depends {
		if d.action() != ActionIgnore {
			list = append(list, d)
		}
	}
	return list
}
