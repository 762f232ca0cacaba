package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/modules/deploy"
	"github.com/mender-app/mender-app/modules/facts"
	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/modules/policy"
)

// windowReport is the output of windows --json.
type windowReport struct {
	Open  bool      `json:"open"`
	Until time.Time `json:"until,omitzero"` // of what Open says; missing if it has no end
	// ClockSet: the machine knows what time it is, or need not.
	ClockSet bool     `json:"clock_set"`
	Windows  []string `json:"windows"` // of the device
	// Release is a release that is loaded and waits for its installation. Then Open is about
	// it: its own windows count too.
	Release string `json:"release,omitempty"`
}

func (p *program) windowsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "windows",
		Short: "Say whether updates may be installed now; exit with 75 outside of the maintenance windows",
		Long: `Shows the maintenance windows of the device (windows in mender-app.conf), and whether
one is open. Outside of them an update is refused with exit code 75. If a release is
loaded and waits for its installation, its own windows count too (upgrades.windows of its
policy), and an emergency that a key of the device signed does not wait.

State scripts of Mender call it, so that the client tries again later:
mender-app-windows in /usr/share/mender-app/state-scripts.`,
		Example: "  mender-app windows\n  mender-app windows || exit 21    # in a state script: try again later",
		RunE: func(*cobra.Command, []string) error {
			e := p.engine()
			rules, signed, release, err := loadedRelease(e)
			if err != nil {
				return err
			}
			w, waits := e.WindowOf(rules, signed)
			report := windowReport{Open: !waits, Until: w.Until, ClockSet: e.KnowsTime(), Windows: p.config.Windows.Texts, Release: release}
			if waits {
				if p.json {
					err = p.printJSON(report)
				}
				return errors.Join(err, deploy.WaitForWindow(w, waits))
			}
			if report.Until = e.WindowEnd(rules, signed); report.Until.IsZero() {
				return p.printResult(report, "updates may be installed")
			}
			return p.printResult(report, "updates may be installed until %s", report.Until.Format(deploy.WindowTime))
		},
	}
}

// loadedRelease finds a release that waits for its installation.
func loadedRelease(e *deploy.Engine) (rules *policy.Policy, signed bool, artifact string, err error) {
	names, err := e.Store.Apps()
	if err != nil {
		return nil, false, "", err
	}
	for _, name := range names {
		if e.Store.Legacy(name) {
			continue
		}
		a, err := e.Store.App(name)
		if err != nil || a.Deployment == nil || a.Deployment.Phase != journal.Loaded {
			continue // what is damaged does not wait
		}
		r, err := a.Release(a.Deployment.To)
		if err != nil {
			return nil, false, "", err
		}
		return facts.PolicyOf(e.Log, name, r), e.VerifiedRelease(r), r.ArtifactName, nil
	}
	return nil, false, "", nil
}
