package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mender-app/mender-app/artifact/clip"
)

// Hook is a program of the application that runs at a point of its life cycle: the
// file hooks/NAME of the manifests. A file that the policy does not name never runs.
type Hook struct {
	Name string `toml:"name" json:"name"`
	// Timeout limits one attempt; "" is DefaultHookTimeout.
	Timeout string `toml:"timeout" json:"timeout,omitzero"`
	// Retries is how many times a failed attempt is repeated.
	Retries int `toml:"retries" json:"retries,omitzero"`
	// AllowFailure: if it fails, a warning is logged and the work goes on.
	AllowFailure bool `toml:"allow_failure" json:"allow_failure,omitzero"`
}

// HooksDir is the directory of the manifests that has the hooks.
const HooksDir = "hooks"

// Bounds and defaults of a hook.
const (
	DefaultHookTimeout = time.Minute
	MaxHookTimeout     = time.Hour
	MaxHookRetries     = 10
)

// The hooks. "pre-" hooks run before a step, "post-" hooks after it.
const (
	HookCheck        = "check"   // may the release be rolled out here?
	HookEnabled      = "enabled" // should the application run at all?
	HookStatus       = "status"  // is the release that was rolled out ready?
	HookMigrate      = "migrate" // convert the old release's data for the new one
	HookPreLoad      = "pre-load"
	HookPostLoad     = "post-load"
	HookPreRollout   = "pre-rollout"
	HookPostRollout  = "post-rollout"
	HookPreRollback  = "pre-rollback"
	HookPostRollback = "post-rollback"
	HookPreStop      = "pre-stop"
	HookPostStop     = "post-stop"
	HookPreStart     = "pre-start"
	HookPostStart    = "post-start"
	HookPrePurge     = "pre-purge"
	HookPostPurge    = "post-purge"
	HookPreReboot    = "pre-reboot"
	HookPostReboot   = "post-reboot"
	HookPreAbort     = "pre-abort"
	HookPostAbort    = "post-abort"
	HookPreBackup    = "pre-backup"
	HookPostBackup   = "post-backup"
	HookPreRestore   = "pre-restore"
	HookPostRestore  = "post-restore"
)

// The hooks around the device's automatic work. They belong to no application, so only the
// device has them.
const (
	HookOnStartup = "on-startup"
	HookBeforeAll = "before-all"
	HookAfterAll  = "after-all"
)

// HookNames are the valid names of hooks, sorted.
var HookNames = []string{
	HookCheck, HookEnabled, HookMigrate, HookPostAbort, HookPostBackup, HookPostLoad, HookPostPurge, HookPostReboot, HookPostRestore, HookPostRollback, HookPostRollout, HookPostStart, HookPostStop,
	HookPreAbort, HookPreBackup, HookPreLoad, HookPrePurge, HookPreReboot, HookPreRestore, HookPreRollback, HookPreRollout, HookPreStart, HookPreStop, HookStatus,
}

// Hook returns the hook with the given name, and whether the policy has it.
func (p *Policy) Hook(name string) (Hook, bool) {
	if p == nil {
		return Hook{}, false
	}
	i := slices.IndexFunc(p.Hooks, func(h Hook) bool { return h.Name == name })
	if i < 0 {
		return Hook{}, false
	}
	return p.Hooks[i], true
}

// Limit returns how long one attempt may take.
func (h Hook) Limit() time.Duration {
	if h.Timeout == "" {
		return DefaultHookTimeout
	}
	d, _ := time.ParseDuration(h.Timeout) // checked when the policy was read
	return d
}

func (p *Policy) checkHooks() error {
	if err := checkLength("hooks", len(p.Hooks)); err != nil {
		return err
	}
	seen := map[string]bool{}
	for i, h := range p.Hooks {
		key := fmt.Sprintf("hooks[%d]", i)
		switch {
		case !slices.Contains(HookNames, h.Name):
			return bad(key+".name", "%q is not %s", clip.Text(h.Name), strings.Join(HookNames, ", "))
		case seen[h.Name]:
			return bad(key+".name", "%s occurs twice", h.Name)
		}
		seen[h.Name] = true
		if h.Name == HookEnabled && !p.Managed {
			return bad(key+".name", "only a managed application can be enabled or disabled: set managed = true")
		}
		if err := checkTimeout(key+".timeout", h.Timeout); err != nil {
			return err
		}
		if h.Retries < 0 || h.Retries > MaxHookRetries {
			return bad(key+".retries", "%d is not from 0 to %d", h.Retries, MaxHookRetries)
		}
	}
	return nil
}

func checkTimeout(key, s string) error {
	if s == "" {
		return nil
	}
	if d, err := time.ParseDuration(s); err != nil || d < time.Second || d > MaxHookTimeout {
		return bad(key, "%q is not a time from 1s to 1h, such as 90s", clip.Text(s))
	}
	return nil
}
