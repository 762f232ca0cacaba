package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mender-app/mender-app/artifact/clip"
)

// Hook is a program of the application's that is run at a moment of its life: the
// file hooks/NAME of the manifests. A file that the policy does not name is not run.
type Hook struct {
	Name string `toml:"name" json:"name"`
	// Timeout limits one attempt; "" is DefaultHookTimeout.
	Timeout string `toml:"timeout" json:"timeout,omitzero"`
	// Retries is how often a failed attempt is repeated.
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

// The hooks. Before a moment there is "pre-", after it "post-".
const (
	HookCheck        = "check"   // may the release be rolled out here?
	HookEnabled      = "enabled" // is the application to run at all?
	HookStatus       = "status"  // is the release that was rolled out ready?
	HookMigrate      = "migrate" // make the data of the old release that of the new one
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

// The hooks around the automatic work of the device. They belong to no application, so only
// the device has them.
const (
	HookOnStartup = "on-startup"
	HookBeforeAll = "before-all"
	HookAfterAll  = "after-all"
)

// HookNames are the names that a hook may have, sorted.
var HookNames = []string{
	HookCheck, HookEnabled, HookMigrate, HookPostAbort, HookPostBackup, HookPostLoad, HookPostPurge, HookPostReboot, HookPostRestore, HookPostRollback, HookPostRollout, HookPostStart, HookPostStop,
	HookPreAbort, HookPreBackup, HookPreLoad, HookPrePurge, HookPreReboot, HookPreRestore, HookPreRollback, HookPreRollout, HookPreStart, HookPreStop, HookStatus,
}

// Hook returns the hook of a name, and whether the policy has it.
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

// Limit is how long one attempt may take.
func (h Hook) Limit() time.Duration {
	if h.Timeout == "" {
		return DefaultHookTimeout
	}
	d, _ := time.ParseDuration(h.Timeout) // it was checked when the policy was read
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
			return bad(key+".name", "%s is there twice", h.Name)
		}
		seen[h.Name] = true
		if h.Name == HookEnabled && !p.Managed {
			return bad(key+".name", "only a managed application is enabled and disabled: set managed = true")
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
