// Package policy decides about applications: may this release be installed on
// this device, over what is there, and in which order does automatic work go.
// A policy is the file app.toml that an application ships; docs/POLICY.md has
// every key.
//
// The package has no effects: it reads no file, asks no engine and knows no
// clock. The caller collects the facts (Request), the package answers
// (Decision), and the caller acts on the answer. It must not know how releases
// are stored or loaded.
package policy

// Policy is what app.toml says. The zero value is the policy of an application
// that ships none: everything is allowed. The metadata of an artifact has it as
// JSON with the same keys.
type Policy struct {
	// Version is the application's version. In metadata it is absent:
	// application_version says it there.
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
}

// Upgrades says over what a release may be installed.
type Upgrades struct {
	// FromVersions are expressions, of which one must match the whole
	// installed version. nil: any version; empty: none.
	FromVersions []string `toml:"from_versions" json:"from_versions,omitzero"`
}

// Downgrades says whether an older release may replace this one.
type Downgrades struct {
	Allow *bool `toml:"allow" json:"allow,omitzero"` // nil is true
}

// Orchestrator bounds the version of the engine or cluster, both ends
// included; "" is no bound.
type Orchestrator struct {
	Minimum string `toml:"minimum" json:"minimum,omitzero"`
	Maximum string `toml:"maximum" json:"maximum,omitzero"`
}

// PlatformRule says which releases of the operating system will do.
type PlatformRule struct {
	Releases []PlatformRelease `toml:"releases" json:"releases,omitzero"` // nil: all
}

// PlatformRelease is a release of the operating system and the patches that
// must be there.
type PlatformRelease struct {
	Version  string            `toml:"version" json:"version"`            // expression
	Files    []string          `toml:"files" json:"files,omitzero"`       // absolute paths
	Provides map[string]string `toml:"provides" json:"provides,omitzero"` // name and expression
}

// Services says how the services of the application are shipped.
type Services struct {
	Disabled []string `toml:"disabled" json:"disabled,omitzero"`
}

// Dependency is another application that this one needs.
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

// Action is what an unmet dependency does.
type Action string

// The values of Action. ActionApply is known and not built.
const (
	ActionError  Action = "error"  // refuse
	ActionWarn   Action = "warn"   // log, and go on
	ActionIgnore Action = "ignore" // neither check nor order by it
	ActionApply  Action = "apply"
)

// Class is the place of a managed application in automatic work.
type Class string

// The values of Class, the first to come up first. A managed application
// without a class is ClassOptional.
const (
	ClassCritical  Class = "critical"
	ClassStorage   Class = "storage"
	ClassDiscovery Class = "discovery"
	ClassOptional  Class = "optional"
	ClassReporting Class = "reporting"
)

var classes = []Class{ClassCritical, ClassStorage, ClassDiscovery, ClassOptional, ClassReporting}

// The values of DesiredState; StateRunning is the default, the others are
// known and not built.
const (
	StateRunning = "running"
	StateLoaded  = "loaded"
	StateStopped = "stopped"
)

// NeedsEngine tells whether the policy asks for the version of the engine.
func (p *Policy) NeedsEngine() bool {
	return p != nil && p.Orchestrator != (Orchestrator{})
}

// NeedsPlatform tells whether the policy asks for the operating system: its
// version, patches and what Mender provides.
func (p *Policy) NeedsPlatform() bool { return p != nil && p.Platform.Releases != nil }

// Files lists the files whose presence the policy asks for.
func (p *Policy) Files() (list []string) {
	if p == nil {
		return nil
	}
	for _, r := range p.Platform.Releases {
		list = append(list, r.Files...)
	}
	return list
}

// downgrades tells whether an older release may replace this one.
func (p *Policy) downgrades() bool {
	return p == nil || p.Downgrades.Allow == nil || *p.Downgrades.Allow
}

func (p *Policy) managed() bool { return p != nil && p.Managed }

// action is the dependency's, or the default.
func (d Dependency) action() Action {
	if d.Action == "" {
		return ActionError
	}
	return d.Action
}

// dependencies are those that count: not ignored.
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
