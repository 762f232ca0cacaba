package policy

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact/clip"
)

// This file has the parts of a policy about work: what an update keeps, what happens
// to data, and what the device does automatically.

// Keep says which of an operator's changes an update keeps. A device has nobody to
// make them again, so both default to true.
type Keep struct {
	Services  *bool `toml:"services" json:"services,omitzero"`   // nil is true
	Overrides *bool `toml:"overrides" json:"overrides,omitzero"` // nil is true
}

// Data names what the application stores, and says what an update does with it.
type Data struct {
	Volumes     []string `toml:"volumes" json:"volumes,omitzero"`
	Directories []string `toml:"directories" json:"directories,omitzero"` // absolute paths
	Snapshot    bool     `toml:"snapshot" json:"snapshot,omitzero"`
	// Migrate converts the data for the new release.
	Migrate Migrate `toml:"migrate" json:"migrate,omitzero"`
}

// Resources are the device's reservations for services.
type Resources struct {
	// CPUSet are the services that run on the device's reserved processors.
	CPUSet []string `toml:"cpuset" json:"cpuset,omitzero"`
}

// Reapply is an event after which the device checks whether the application must be
// rolled out again.
type Reapply struct {
	On string `toml:"on" json:"on"`
	// Filter has fields of the event and their values; all must be equal.
	Filter map[string]string `toml:"filter" json:"filter,omitzero"`
	// FilterField names the field that contains the fields of Filter; "" is the event itself.
	FilterField string `toml:"filter_field" json:"filter_field,omitzero"`
	// Calendar is the time of the event schedule, as systemd.time(7) defines it.
	Calendar string `toml:"calendar" json:"calendar,omitzero"`
}

// EngineUpgrades says what to do if the engine's version changes.
type EngineUpgrades struct {
	Automatic *bool  `toml:"automatic" json:"automatic,omitzero"` // nil is true
	Timing    string `toml:"timing" json:"timing,omitzero"`       // "" is TimingPost
}

// The values of EngineUpgrades.Timing.
const (
	TimingPre  = "pre"  // update the application before the engine
	TimingPost = "post" // and after it
)

// CheckEvent refuses a text that is not the name of an event: lower-case letters,
// digits and hyphens, at most 63, beginning with a letter.
func CheckEvent(name string) error {
	if name == "" || len(name) > 63 || name[0] < 'a' || name[0] > 'z' || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return fmt.Errorf("%q is not the name of an event: lower-case letters, digits and hyphens, at most 63", clip.Text(name))
	}
	return nil
}

func (p *Policy) checkWork() error {
	if err := p.checkData(); err != nil {
		return err
	}
	if err := checkNames("resources.cpuset", p.Resources.CPUSet, checkService); err != nil {
		return err
	}
	switch p.EngineUpgrades.Timing {
	case "", TimingPre, TimingPost:
	default:
		return bad("engine_upgrades.timing", "%q is not pre or post", clip.Text(p.EngineUpgrades.Timing))
	}
	return p.checkReapply()
}

// Copies reports whether the data is copied before the release is started.
func (p *Policy) Copies() bool { return p != nil && p.Data.Snapshot }

func (p *Policy) checkData() error {
	d := p.Data
	if err := checkNames("data.volumes", d.Volumes, checkVolume); err != nil {
		return err
	}
	if err := checkLength("data.directories", len(d.Directories)); err != nil {
		return err
	}
	for i, dir := range d.Directories {
		key := fmt.Sprintf("data.directories[%d]", i)
		if err := checkPath(key, dir); err != nil {
			return err
		}
		if dir == "/" || slices.Contains(d.Directories[:i], dir) {
			return bad(key, "%q is the whole machine, or occurs twice", clip.Text(dir))
		}
	}
	named := len(d.Volumes) > 0 || len(d.Directories) > 0
	if d.Snapshot && !named {
		return bad("data.snapshot", "nothing to copy: name volumes or directories")
	}
	if err := p.checkMigrate(); err != nil {
		return err
	}
	if named && !d.Snapshot {
		return bad("data.snapshot", "the named data is not copied: set it to true")
	}
	return nil
}

func (p *Policy) checkReapply() error {
	if err := checkLength("reapply", len(p.Reapply)); err != nil {
		return err
	}
	if len(p.Reapply) > 0 && !p.Managed {
		return bad("reapply", "only a managed application can be rolled out again: set managed = true")
	}
	for i, r := range p.Reapply {
		key := fmt.Sprintf("reapply[%d]", i)
		if err := CheckEvent(r.On); err != nil {
			return bad(key+".on", "%v", err)
		}
		if err := checkLength(key+".filter", len(r.Filter)); err != nil {
			return err
		}
		for _, field := range slices.Sorted(maps.Keys(r.Filter)) {
			if err := checkName(key+".filter", field); err != nil {
				return err
			}
			if err := checkText(fmt.Sprintf("%s.filter[%q]", key, clip.Text(field)), r.Filter[field]); err != nil {
				return err
			}
		}
		if err := checkText(key+".filter_field", r.FilterField); err != nil {
			return err
		}
		if r.FilterField != "" && len(r.Filter) == 0 {
			return bad(key+".filter_field", "without a filter it has no meaning")
		}
		if err := checkText(key+".calendar", r.Calendar); err != nil {
			return err
		}
		if (r.Calendar != "") != (r.On == EventSchedule) {
			return bad(key+".calendar", "the event schedule needs it, and no other event may have it")
		}
		if r.Calendar != "" {
			if _, err := ParseCalendar(r.Calendar); err != nil {
				return bad(key+".calendar", "%q is not a calendar expression: %v", clip.Text(r.Calendar), err)
			}
		}
	}
	return nil
}

func checkNames(key string, list []string, check func(key, name string) error) error {
	if err := checkLength(key, len(list)); err != nil {
		return err
	}
	for i, name := range list {
		at := fmt.Sprintf("%s[%d]", key, i)
		if err := check(at, name); err != nil {
			return err
		}
		if slices.Contains(list[:i], name) {
			return bad(at, "%s occurs twice", clip.Text(name))
		}
	}
	return nil
}

func checkName(key, name string) error {
	if name == "" || len(name) > maxText || !printable(name) || strings.ContainsAny(name, "/ ") {
		return bad(key, "%q is not a name", clip.Text(name))
	}
	return nil
}

// checkService checks the name of a service. In Kubernetes it is a workload's name after
// its kind, such as deployment/web.
func checkService(key, name string) error {
	kind, workload, found := strings.Cut(name, "/")
	if !found {
		return checkName(key, name)
	}
	return cmp.Or(checkName(key, kind), checkName(key, workload))
}

// checkVolume checks the name of a volume: a key of the manifests, or ./ and the path of a
// directory that services mount and the release does not bring.
func checkVolume(key, name string) error {
	dir, found := strings.CutPrefix(name, "./")
	if !found {
		return checkName(key, name)
	}
	if len(name) > maxText || path.Clean(dir) != dir || !fs.ValidPath(dir) || dir == "." || !printable(name) {
		return bad(key, "%q is not a path in its shortest form, after ./", clip.Text(name))
	}
	return nil
}

func checkPath(key, file string) error {
	if len(file) > maxText || !path.IsAbs(file) || path.Clean(file) != file || !printable(file) {
		return bad(key, "%q is not an absolute path in its shortest form", clip.Text(file))
	}
	return nil
}
