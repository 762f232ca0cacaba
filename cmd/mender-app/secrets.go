package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/modules/deploy"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

func (p *program) secretsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "secrets",
		Short: "Decrypt the applications' secrets again after a reboot",
		Long: `Decrypts the encrypted secrets of all applications again. They are on a tmpfs, which is
empty after a reboot, and the engine does not start containers without them.
mender-app-secrets.service runs this at boot before the engine; if that failed, run it,
and then START of the application's sub-module.`,
		Example: "  mender-app secrets",
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.secrets(cmd.Context()) },
	}
}

func (p *program) secrets(ctx context.Context) error {
	var restored []string
	var failed error
	s := p.config.OpenStore()
	// At boot, nothing must be written if the store is not mounted.
	if _, err := os.Stat(s.Meta("")); !errors.Is(err, fs.ErrNotExist) {
		restored, failed = restoreSecrets(ctx, p.engine())
	}
	if p.json {
		if restored == nil {
			restored = []string{}
		}
		if err := p.printJSON(restored); err != nil {
			return err
		}
		return failed
	}
	for _, app := range restored {
		fmt.Fprintf(p.stdout, "%s: its secrets are decrypted\n", app)
	}
	if len(restored) == 0 && failed == nil {
		fmt.Fprintln(p.stdout, "no application has encrypted secrets")
	}
	return failed
}

// restoreSecrets calls the sub-modules of the applications that have encrypted
// secrets, before the engine starts. It continues after a failure, and returns
// the applications whose secrets were decrypted. If no application has encrypted
// secrets, it calls and writes nothing.
func restoreSecrets(ctx context.Context, e *deploy.Engine) (restored []string, err error) {
	names, err := e.Store.Apps()
	if err != nil {
		return nil, err
	}
	var failed []error
	for _, name := range names {
		a, err := e.Store.App(name)
		if err != nil || !a.HasSecrets() {
			continue
		}
		if err := restoreOne(ctx, e, a); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", name, err))
			continue
		}
		restored = append(restored, name)
	}
	return restored, errors.Join(failed...)
}

// lockTime is how long to wait for another call on the store.
const lockTime = 30 * time.Second

func restoreOne(ctx context.Context, e *deploy.Engine, a *store.App) error {
	busy, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	release, err := e.Store.Lock(busy, "secrets of "+a.Name)
	if err != nil {
		return err
	}
	defer release()
	id := a.Current
	if id == "" && a.Deployment != nil {
		id = a.Deployment.To
	}
	r, err := a.Release(id)
	if err != nil {
		return err
	}
	o, err := e.Find(r.Orchestrator)
	if err != nil {
		return err
	}
	info, err := o.Describe(ctx)
	if err != nil {
		return err
	}
	if !info.Has(submodules.FeatureSecrets) {
		return fmt.Errorf("sub-module %s cannot decrypt its secrets: update it", r.Orchestrator)
	}
	return o.Restore(ctx, submodules.Request{App: a.Name, Dir: a.ManifestsDir()})
}
