package generator

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact/version"
	"github.com/mender-app/mender-app/generator/manifests"
	"github.com/mender-app/mender-app/modules/policy"
)

// policyName is the policy's file in the directory of the manifests.
const policyName = "app.toml"

// readPolicy reads and checks the application's policy, if it has one. The
// policy's version becomes the application's where the options give none.
func (r *run) readPolicy() error {
	app := &r.Application
	file := app.PolicyFile
	if file == "" {
		file = filepath.Join(app.ManifestsDir, policyName)
		if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	data, err := readPolicyFile(file)
	if err != nil {
		return err
	}
	p, err := policy.ParseTOML(data, app.Name)
	if err != nil {
		return &PolicyError{file, err}
	}
	if app.Version == "" {
		app.Version = p.Version
	}
	p.Version = app.Version
	if p.Downgrades.Allow != nil && !*p.Downgrades.Allow {
		if err := version.Check(app.Version); err != nil {
			return &UsageError{Text: file + ": downgrades.allow = false, and the application's version cannot be ordered: " + err.Error(),
				Hint: "give it a version such as 1.2.3, in the policy or with --application-version"}
		}
	}
	if err := checkHooks(app.ManifestsDir, p); err != nil {
		return &PolicyError{file, err}
	}
	r.policy, err = p.Encode()
	if err != nil {
		return &PolicyError{file, err}
	}
	return nil
}

// checkHooks makes sure that the hooks of the policy are executables beside the
// manifests, and that none is forgotten in the policy: a file that it does not name is
// never run.
func checkHooks(manifests string, p *policy.Policy) error {
	for i, h := range p.Hooks {
		path := filepath.Join(manifests, policy.HooksDir, h.Name)
		st, err := os.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("%w: hooks[%d].name: %s is missing", policy.ErrPolicy, i, path)
		case err != nil:
			return err
		case !st.Mode().IsRegular() || st.Mode()&0o111 == 0:
			return fmt.Errorf("%w: hooks[%d].name: %s is not an executable file", policy.ErrPolicy, i, path)
		}
	}
	for _, name := range policy.HookNames {
		if _, named := p.Hook(name); named {
			continue
		}
		path := filepath.Join(manifests, policy.HooksDir, name)
		if _, err := os.Lstat(path); err == nil {
			return fmt.Errorf("%w: hooks: %s would never be run: name it, with [[hooks]] and name = %q", policy.ErrPolicy, path, name)
		}
	}
	return nil
}

// checkServices refuses a policy that names a service that is not in the manifests: to
// switch it off, to reserve processors for it, or to have it migrate the data.
func (r *run) checkServices(found *manifests.Found) error {
	if r.policy == nil || found == nil {
		return nil
	}
	p, err := policy.ParseJSON(r.policy, r.Application.Name, r.Application.Version)
	if err != nil {
		return err
	}
	by := r.Application.Orchestrator
	refuse := func(key, name, cannot string, can bool) error {
		what := fmt.Sprintf("%s is not a service of the manifests: they have %s", name, strings.Join(found.Services, ", "))
		if !can {
			what = "the sub-module " + by + " cannot " + cannot
		} else if slices.Contains(found.Services, name) {
			return nil
		}
		return &PolicyError{cmp.Or(r.Application.PolicyFile, policyName), fmt.Errorf("%w: %s: %s", policy.ErrPolicy, key, what)}
	}
	for i, name := range p.Services.Disabled {
		if err := refuse(fmt.Sprintf("services.disabled[%d]", i), name, "switch services off", by == Compose || by == Kubernetes); err != nil {
			return err
		}
	}
	for i, name := range p.Resources.CPUSet {
		if err := refuse(fmt.Sprintf("resources.cpuset[%d]", i), name, "reserve processors for services", by == Compose); err != nil {
			return err
		}
	}
	if !p.Migrates() {
		return nil
	}
	return refuse("data.migrate.service", p.Data.Migrate.Service, "run a command of the new release", by == Compose)
}

// readPolicyFile reads a regular file, up to one byte more than a policy may have.
func readPolicyFile(file string) ([]byte, error) {
	st, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, &UsageError{Text: file + " is not a file"}
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, policy.MaxBytes+1))
}
