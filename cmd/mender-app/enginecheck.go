package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/artifact/version"
	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/modules/client"
	"github.com/mender-app/mender-app/modules/facts"
	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/modules/view"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// engineCheckPatience is how long the engine may take to say its version.
const engineCheckPatience = 10 * time.Second

func (p *program) engineCheckCommand() *cobra.Command {
	var orchestrator string
	cmd := &cobra.Command{
		Use:   "engine-check VERSION",
		Short: "Say whether the applications would run on another version of the engine",
		Long: `Says for each installed application whether it would run on VERSION of the engine, or
of the cluster, by orchestrator.minimum and orchestrator.maximum of its policy:

  allowed   the installed release runs on it, or has no bounds
  post      a staged release runs on it, and is installed after the engine is updated
  pre       a staged release runs on it, and must be installed first
  refused   neither the installed release nor a staged one runs on it

engine_upgrades.timing of the staged release's policy decides between pre and post. The
exit code is 0 if the engine may be updated now, and 9 if an application is pre or
refused. Nothing is changed. An update of the operating system asks it in a state script
(examples/osupdate).

If the device has applications of several orchestrators, --orchestrator says whose
engine is meant.`,
		Example: "  mender-app engine-check 28.5.2\n  mender-app engine-check v1.33.1 --orchestrator k8s",
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, _, err := version.Triple(args[0]); err != nil {
				return fmt.Errorf("%w: %q is not a version such as 28.5.2", device.ErrUsage, args[0])
			}
			return p.engineCheck(cmd.Context(), args[0], orchestrator)
		},
	}
	cmd.Flags().StringVar(&orchestrator, "orchestrator", "", "only the applications of this orchestrator")
	return cmd
}

// engineChecked is what is printed of an application.
type engineChecked struct {
	Application string         `json:"application"`
	Version     string         `json:"application_version,omitempty"`
	Verdict     policy.Verdict `json:"verdict"`
	Why         string         `json:"why,omitempty"`
	// Staged is the artifact's name of the staged release that runs on it.
	Staged string `json:"staged,omitempty"`
}

func (p *program) engineCheck(ctx context.Context, wanted, orchestrator string) error {
	names, orchestrator, err := p.engineApps(orchestrator)
	if err != nil {
		return err
	}
	change := policy.EngineChange{Version: wanted, Installed: facts.Installed(p.config.OpenStore(), p.log, names)}
	change.Now = engineVersion(ctx, p.config, orchestrator)
	if change.Staged, err = p.stagedForEngine(orchestrator); err != nil {
		return err
	}
	var rows [][]string
	var against []string
	list := []engineChecked{}
	for _, a := range policy.DecideEngine(change) {
		c := engineChecked{Application: a.App.Name, Version: a.App.Version, Verdict: a.Verdict, Why: a.Why}
		if a.Next != nil {
			c.Staged = a.Next.Release
		}
		if !a.Permits() {
			against = append(against, c.Application)
		}
		list = append(list, c)
		rows = append(rows, []string{c.Application, c.Version, string(c.Verdict), c.Why})
	}
	switch {
	case p.json:
		err = p.printResult(map[string]any{"engine_version": wanted, "allowed": against == nil, "applications": list}, "")
	case len(rows) == 0:
		err = p.printResult(nil, "no application is installed")
	default:
		err = p.table("APPLICATION\tVERSION\tVERDICT\tWHY", rows)
	}
	if err == nil && against != nil {
		err = fmt.Errorf("%w: version %s of the engine does not suit %s", client.ErrRefused, wanted, strings.Join(against, ", "))
	}
	return err
}

// engineApps lists the installed applications of an orchestrator, which must be named
// if there are several.
func (p *program) engineApps(orchestrator string) (names []string, of string, err error) {
	s := p.config.OpenStore()
	all, err := s.Apps()
	if err != nil {
		return nil, "", err
	}
	found := map[string][]string{}
	for _, name := range all {
		if o := orchestratorOf(s, name); o != "" {
			found[o] = append(found[o], name)
		}
	}
	if orchestrator == "" && len(found) > 1 {
		return nil, "", fmt.Errorf("%w: there are applications of %s: choose one with --orchestrator",
			device.ErrUsage, strings.Join(slices.Sorted(maps.Keys(found)), " and "))
	}
	for o := range found {
		orchestrator = cmp.Or(orchestrator, o)
	}
	return found[orchestrator], orchestrator, nil
}

// orchestratorOf is the orchestrator of an installed application; "" if there is none, or
// if it cannot be read: then its policy cannot be read either.
func orchestratorOf(s *store.Store, name string) string {
	if s.Legacy(name) {
		return s.LegacyOrchestrator(name)
	}
	a, err := view.Read(s, name)
	if err != nil || a.Committed == "" {
		return ""
	}
	r, err := a.Release(a.Committed)
	if err != nil {
		return ""
	}
	return r.Orchestrator
}

// engineVersion is the version that the engine of an orchestrator has; "" if it does not
// say it.
func engineVersion(ctx context.Context, c *device.Config, orchestrator string) string {
	m, err := submodules.Find(c.SubmodulesDir, orchestrator)
	if err != nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, engineCheckPatience)
	defer cancel()
	m.Config = submodules.Config{Deadline: engineCheckPatience, Log: func(string) {}}
	info, err := m.Client().Describe(ctx)
	if err != nil || !info.Has(submodules.FeatureEngine) {
		return ""
	}
	e, err := m.Client().Engine(ctx, submodules.Request{})
	if err != nil {
		return ""
	}
	return e.Version
}

// stagedForEngine lists the staged releases of an orchestrator.
func (p *program) stagedForEngine(orchestrator string) (apps []policy.App, err error) {
	list, err := device.Readable(p.config, p.log)
	for _, x := range list {
		if x.Orchestrator == orchestrator {
			apps = append(apps, x.App())
		}
	}
	return apps, err
}
