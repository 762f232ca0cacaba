package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/BurntSushi/toml"

	"github.com/mender-app/mender-app/artifact/clip"
	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/artifact/version"
)

// Bounds of a policy.
const (
	MaxBytes = 64 << 10 // of app.toml, and of the JSON
	maxList  = 256      // entries of a list
	maxText  = 512      // bytes of a text that is not an expression
)

// ParseTOML reads and checks app.toml for the application named app. The error is an
// ErrPolicy.
func ParseTOML(data []byte, app string) (*Policy, error) {
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("%w: larger than %d bytes", ErrPolicy, MaxBytes)
	}
	var raw map[string]any
	if _, err := toml.Decode(string(data), &raw); err != nil {
		return nil, notTOML(err)
	}
	if err := checkKeys(raw, "", ""); err != nil {
		return nil, err
	}
	p := new(Policy)
	if _, err := toml.Decode(string(data), p); err != nil {
		return nil, notTOML(err)
	}
	if err := p.check(app); err != nil {
		return nil, err
	}
	return p, nil
}

// notTOML turns a parser error into one line, with the line number and the last key.
func notTOML(err error) error {
	return fmt.Errorf("%w: %s", ErrPolicy, clip.Line(strings.TrimPrefix(err.Error(), "toml: "), 120))
}

// ParseJSON reads and checks the policy in the metadata, for the application named
// app at the version applicationVersion, which becomes the policy's Version. The
// errors are those of ParseTOML.
func ParseJSON(data []byte, app, applicationVersion string) (*Policy, error) {
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("%w: larger than %d bytes", ErrPolicy, MaxBytes)
	}
	var raw map[string]any
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&raw); err != nil || raw == nil {
		return nil, fmt.Errorf("%w: not a JSON object", ErrPolicy)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: more than a JSON object", ErrPolicy)
	}
	if err := checkKeys(raw, "", ""); err != nil {
		return nil, err
	}
	p := new(Policy)
	if err := json.Unmarshal(data, p); err != nil {
		return nil, fmt.Errorf("%w: %s", ErrPolicy, clip.Line(strings.TrimPrefix(err.Error(), "json: "), 120))
	}
	if p.Version != "" && p.Version != applicationVersion {
		return nil, bad("version", "%q, and the artifact's application_version is %q", clip.Text(p.Version), clip.Text(applicationVersion))
	}
	p.Version = applicationVersion
	if err := p.check(app); err != nil {
		return nil, err
	}
	return p, nil
}

// Encode returns the policy in its form in the metadata: JSON in one line, without
// the version, which is in application_version. The same policy gives the same bytes.
func (p *Policy) Encode() ([]byte, error) {
	out := *p
	out.Version = ""
	data, err := json.Marshal(out)
	if err == nil && len(data) > MaxBytes {
		err = fmt.Errorf("%w: larger than %d bytes", ErrPolicy, MaxBytes)
	}
	return data, err
}

// check refuses values that are not allowed in a policy.
func (p *Policy) check(app string) error {
	if err := checkText("version", p.Version); err != nil {
		return err
	}
	checks := []func() error{
		p.checkBehaviour, p.checkUpgrades, p.checkOrchestrator, p.checkPlatform, p.checkHooks, p.checkWork,
		func() error { return p.checkDepends(app) },
		func() error { return p.checkExceptions(app) },
	}
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (p *Policy) checkBehaviour() error {
	if p.Class != "" {
		if !slices.Contains(classes, p.Class) {
			return bad("class", "%q is not critical, storage, discovery, optional or reporting", clip.Text(string(p.Class)))
		}
		if !p.Managed {
			return bad("class", "only a managed application has a class: set managed = true")
		}
	}
	switch p.DesiredState {
	case "", StateRunning, StateLoaded, StateStopped:
	default:
		return bad("desired_state", "%q is not loaded, running or stopped", clip.Text(p.DesiredState))
	}
	if p.Enabled != nil && !p.Managed {
		return bad("enabled", "only a managed application can be enabled or disabled: set managed = true")
	}
	if err := checkNames("services.disabled", p.Services.Disabled, checkService); err != nil {
		return err
	}
	return nil
}

func (p *Policy) checkUpgrades() error {
	if err := checkLength("upgrades.from_versions", len(p.Upgrades.FromVersions)); err != nil {
		return err
	}
	for i, s := range p.Upgrades.FromVersions {
		if err := checkExpression(fmt.Sprintf("upgrades.from_versions[%d]", i), s); err != nil {
			return err
		}
	}
	return p.checkWindows()
}

func (p *Policy) checkOrchestrator() error {
	bounds := map[string]string{"orchestrator.minimum": p.Orchestrator.Minimum, "orchestrator.maximum": p.Orchestrator.Maximum}
	for _, key := range []string{"orchestrator.minimum", "orchestrator.maximum"} {
		s := bounds[key]
		if s == "" {
			continue
		}
		if strings.Trim(s, "v.0123456789") != "" {
			return bad(key, "%q is not major.minor or major.minor.patch", clip.Text(s))
		}
		if _, _, err := version.Triple(s); err != nil {
			return bad(key, "%q is not major.minor or major.minor.patch", clip.Text(s))
		}
	}
	low, high := p.Orchestrator.Minimum, p.Orchestrator.Maximum
	if low != "" && high != "" && above(low, high) {
		return bad("orchestrator", "no version is at least %s and at most %s", low, high)
	}
	return nil
}

func (p *Policy) checkPlatform() error {
	releases := p.Platform.Releases
	if releases != nil && len(releases) == 0 {
		return bad("platform.releases", "an empty list fits no device: remove the key, or name a release")
	}
	if err := checkLength("platform.releases", len(releases)); err != nil {
		return err
	}
	for i, r := range releases {
		key := fmt.Sprintf("platform.releases[%d]", i)
		if r.Version == "" {
			return bad(key+".version", "it is missing; '.*' is every release")
		}
		if err := checkExpression(key+".version", r.Version); err != nil {
			return err
		}
		if err := checkLength(key+".files", len(r.Files)); err != nil {
			return err
		}
		for n, file := range r.Files {
			if err := checkPath(fmt.Sprintf("%s.files[%d]", key, n), file); err != nil {
				return err
			}
		}
		if err := checkLength(key+".provides", len(r.Provides)); err != nil {
			return err
		}
		for name, expression := range r.Provides {
			if name == "" || len(name) > maxText || !printable(name) {
				return bad(key+".provides", "%q is not a name", clip.Text(name))
			}
			if err := checkExpression(fmt.Sprintf("%s.provides[%q]", key, clip.Text(name)), expression); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *Policy) checkDepends(app string) error {
	if err := checkLength("depends", len(p.Depends)); err != nil {
		return err
	}
	seen := map[string]bool{}
	for i, d := range p.Depends {
		key := fmt.Sprintf("depends[%d]", i)
		if err := checkApplication(key+".name", d.Name); err != nil {
			return err
		}
		if d.Name == app {
			return bad(key+".name", "%s depends on itself", app)
		}
		if seen[d.Name] {
			return bad(key+".name", "%s occurs twice: write one expression for its versions", d.Name)
		}
		seen[d.Name] = true
		if err := checkExpression(key+".version", d.Version); err != nil {
			return err
		}
		switch d.Action {
		case "", ActionError, ActionWarn, ActionIgnore, ActionApply:
		default:
			return bad(key+".action", "%q is not error, warn, ignore or apply", clip.Text(string(d.Action)))
		}
	}
	return nil
}

func (p *Policy) checkExceptions(app string) error {
	if err := checkLength("dependent_parent_exceptions", len(p.Exceptions)); err != nil {
		return err
	}
	for i, e := range p.Exceptions {
		key := fmt.Sprintf("dependent_parent_exceptions[%d]", i)
		if err := checkApplication(key+".name", e.Name); err != nil {
			return err
		}
		if e.Name == app {
			return bad(key+".name", "%s cannot depend on itself", app)
		}
		if e.Version == "" {
			return bad(key+".version", "it is missing; '.*' is every version")
		}
		if err := checkExpression(key+".version", e.Version); err != nil {
			return err
		}
	}
	return nil
}

func checkApplication(key, application string) error {
	if err := names.CheckNew(application); err != nil {
		return bad(key, "not the name of an application: %v", err)
	}
	return nil
}

func checkExpression(key, s string) error {
	if !printable(s) {
		return bad(key, "a character that cannot be printed")
	}
	if _, err := compile(s); err != nil {
		return bad(key, "%s", clip.Line(err.Error(), 120))
	}
	return nil
}

func checkText(key, s string) error {
	if len(s) > maxText || !printable(s) {
		return bad(key, "longer than %d bytes, or a character that cannot be printed", maxText)
	}
	return nil
}

func checkLength(key string, n int) error {
	if n > maxList {
		return bad(key, "%d entries, the maximum is %d", n, maxList)
	}
	return nil
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}
