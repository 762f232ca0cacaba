package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/input"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/modules/appdata"
	"github.com/mender-app/mender-app/modules/backup"
	"github.com/mender-app/mender-app/modules/client"
	"github.com/mender-app/mender-app/modules/deploy"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules"
)

func (p *program) restoreCommand() *cobra.Command {
	var unsigned, force, values bool
	cmd := &cobra.Command{
		Use:   "restore FILE [APP…]",
		Short: "Install applications from a backup, with their data",
		Long: `Reads FILE, written by "mender-app backup", to its end and checks all of it. Then it
installs the applications APP, or all in FILE, one after the other, with their data and
the operator's settings, and commits each when it is healthy. FILE is read twice, so it
cannot be standard input.

Refusals come with exit code 9 before anything changes: an installed application (purge
it first), an artifact for another device, one that a policy forbids. Values for all
applications are restored only with --values, because other applications of this device
use them too. The data is put in place before the application starts, and never over
existing data. If an application cannot be restored, it is removed again with its data,
and those restored before it stay.

A backup is not signed: whoever can write FILE decides what runs as root. --unsigned
restores it anyway; without the option, only a device without configured keys and with
allow_unsigned = true does. On a device with a Mender client, which does not learn of
this, --force is needed.`,
		Example:           "  mender-app restore --unsigned /mnt/usb/shop.backup\n  mender-app restore --unsigned shop.backup db",
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !force {
				if err := p.unmanaged(); err != nil {
					return err
				}
			}
			if err := p.trustsBackup(unsigned); err != nil {
				return err
			}
			err := p.restore(cmd.Context(), args[0], args[1:], values)
			if errors.Is(err, backup.ErrFormat) {
				err = submodules.Mark(err, submodules.ErrContent)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&unsigned, "unsigned", false, "restore it without a signature")
	cmd.Flags().BoolVar(&values, "values", false, "also set the values for all applications that are not set here")
	cmd.Flags().BoolVar(&force, "force", false, "restore even if a Mender client manages this device")
	return cmd
}

// trustsBackup refuses a backup, which nobody has signed, where signatures are demanded.
func (p *program) trustsBackup(unsigned bool) error {
	s := p.config.Signatures
	if s.Err != nil {
		return fmt.Errorf("%w: %w", device.ErrUsage, s.Err)
	}
	if unsigned || s.AllowUnsigned && len(s.Keys) == 0 {
		return nil
	}
	return fmt.Errorf("%w: backups are not signed: use --unsigned to restore one", client.ErrRefused)
}

func (p *program) restore(ctx context.Context, file string, names []string, values bool) error {
	f, err := input.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	contents, err := backup.Verify(interruptible(ctx, f))
	if err != nil {
		return err
	}
	e := p.engine()
	if names, err = p.chooseRestored(e.Store, contents, names); err != nil {
		return err
	}
	for i, h := range contents.Headers {
		if slices.Contains(names, contents.Apps[i]) {
			if err := p.fits(h); err != nil {
				return fmt.Errorf("%s: %w", contents.Apps[i], err)
			}
		}
	}
	if err := p.checkRestored(ctx, e, f, contents, names); err != nil {
		return err
	}
	forAll, err := valuesForAll(e, contents.Values)
	if err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	r, err := backup.NewReader(interruptible(ctx, f), contents)
	if err != nil {
		return err
	}
	defer r.Close()
	if len(forAll) > 0 && !values {
		p.log.Warn("the backup has values for all applications that are not set here, and they are not restored: --values does so", "values", strings.Join(slices.Sorted(maps.Keys(forAll)), ", "))
		forAll = nil
	}
	apps, err := p.restoreApps(ctx, &restoring{p, e, r, forAll}, names)
	if err != nil {
		if len(apps) > 0 {
			err = fmt.Errorf("%w; restored before: %s", err, appNames(apps))
		}
		return err
	}
	return p.printResult(map[string]any{"file": file, "applications": apps}, "restored %s", appNames(apps))
}

// chooseRestored returns the applications to restore, none of which may be installed.
func (p *program) chooseRestored(s *store.Store, c *backup.Contents, names []string) ([]string, error) {
	if len(names) == 0 {
		names = c.Apps
	}
	for _, name := range names {
		if !slices.Contains(c.Apps, name) {
			return nil, fmt.Errorf("%w in the backup: %s; it has %s", store.ErrNoApp, name, strings.Join(c.Apps, ", "))
		}
		a, err := s.App(name)
		switch {
		case s.Legacy(name) || err == nil && a.Current != "":
			return nil, fmt.Errorf("%w: %s is installed: mender-app purge %s first, or name the applications to restore", client.ErrRefused, name, name)
		case err == nil && a.Deployment != nil:
			return nil, fmt.Errorf("%w of %s: mender-app resume ends one that was interrupted", deploy.ErrOpen, name)
		case err != nil && !errors.Is(err, store.ErrNoApp):
			return nil, err
		}
	}
	return names, nil
}

// checkRestored refuses a restore, before anything is loaded, that finds data in its way.
func (p *program) checkRestored(ctx context.Context, e *deploy.Engine, f io.ReadSeeker, contents *backup.Contents, names []string) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	r, err := backup.NewReader(interruptible(ctx, f), contents)
	if err != nil {
		return err
	}
	defer r.Close()
	var s backup.Settings
	var wrong error
	for {
		name, err := r.Next()
		if errors.Is(err, io.EOF) {
			return wrong
		}
		if err != nil {
			return err
		}
		of, part, _ := strings.Cut(name, "/")
		switch {
		case !slices.Contains(names, of):
		case part == backup.NameSettings:
			s = backup.Settings{}
			if err := r.JSON(&s); err != nil {
				return err
			}
		case part == backup.NameArtifact && len(s.Places) > 0:
			in, err := mender.NewReader(r, mender.ReadOptions{})
			if err != nil {
				return err
			}
			meta, _, err := artifact.ParseMetadata(in.Header().MetaData)
			if err != nil {
				return err
			}
			places := []appdata.Place{}
			for _, place := range s.Places {
				places = append(places, appdata.Place(place))
			}
			wrong = errors.Join(wrong, e.CheckRestore(ctx, meta, func() (io.Reader, error) { return manifestsOf(in) }, places))
		}
	}
}

// valuesForAll are those values for all applications that are not set on this device.
func valuesForAll(e *deploy.Engine, set map[string]string) (map[string]string, error) {
	there, err := e.Values.List("")
	if err != nil {
		return nil, err
	}
	set = maps.Clone(set)
	for name := range operatorValues(there, "") {
		delete(set, name)
	}
	return set, nil
}

// restoring is a backup whose applications are installed one after the other.
type restoring struct {
	p      *program
	e      *deploy.Engine
	r      *backup.Reader
	forAll map[string]string // values for all applications that are still to be set
}

// restoreApps installs the applications in the order of the backup. It returns those that are
// restored also with an error.
func (p *program) restoreApps(ctx context.Context, from *restoring, names []string) (apps []appInBackup, err error) {
	var s backup.Settings
	for {
		name, err := from.r.Next()
		if errors.Is(err, io.EOF) {
			return apps, nil
		}
		if err != nil {
			return apps, err
		}
		of, part, _ := strings.Cut(name, "/")
		if !slices.Contains(names, of) {
			continue
		}
		switch part {
		case backup.NameSettings:
			s = backup.Settings{}
			if err := from.r.JSON(&s); err != nil {
				return apps, err
			}
		case backup.NameArtifact:
			p.log.Info("restoring", "app", of)
			if err := from.app(ctx, &s); err != nil {
				return apps, fmt.Errorf("%s: %w", of, err)
			}
			apps = append(apps, describeBackup(&s))
		}
	}
}

// app restores the application whose artifact is the current member. What is set before the
// installation is taken back if that fails, after a kill too.
func (from *restoring) app(ctx context.Context, s *backup.Settings) (err error) {
	reader, err := mender.NewReader(from.r, mender.ReadOptions{})
	if err != nil {
		return err
	}
	if err := from.check(ctx, reader.Header()); err != nil {
		return err
	}
	if err := endPreset(ctx, from.e); err != nil { // of one that was killed
		return err
	}
	set := &preset{Application: s.Application, Values: map[string]valuesBefore{}}
	defer func() { err = errors.Join(err, endPreset(context.WithoutCancel(ctx), from.e)) }()
	values := map[string]map[string]string{"": from.forAll, s.Application: s.Values}
	for app, list := range values {
		if set.Values[app], err = before(from.e, app, list); err != nil {
			return err
		}
	}
	if _, err := os.Lstat(from.e.Store.HistoryFile(s.Application)); errors.Is(err, fs.ErrNotExist) {
		set.History = len(s.History)
	}
	if err := set.record(from.e.Store); err != nil {
		return err
	}
	for _, app := range []string{"", s.Application} {
		if len(values[app]) == 0 {
			continue
		}
		if err := from.e.Values.Change(ctx, app, values[app], nil); err != nil {
			return err
		}
	}
	if set.History > 0 {
		if err := from.setHistory(ctx, s); err != nil {
			return err
		}
	}
	if err := from.install(ctx, reader, s); err != nil {
		return err
	}
	from.forAll = nil
	return nil
}

// check makes the checks of an artifact that are possible before anything is changed. The
// sub-module's are made later, with the values that the manifests need.
func (from *restoring) check(ctx context.Context, h *mender.Header) error {
	meta, _, err := artifact.ParseMetadata(h.MetaData)
	if err != nil {
		return err
	}
	e := from.p.engine()
	e.Trust = from.p.config.Signatures.TrustWithin("", device.ReachSeen(h, nil))
	found, err := e.Check(ctx, h.Name, meta, deploy.Manifests{Lacking: "they come with the data"})
	if err != nil {
		return err
	}
	for _, f := range found.Findings {
		if f.Result == deploy.ResultFail {
			return fmt.Errorf("%w: %s", deploy.ErrUnfit, strings.TrimPrefix(f.Detail, "refused: "))
		}
	}
	return nil
}

// install installs an application, commits it, and leaves it as it was.
func (from *restoring) install(ctx context.Context, reader *mender.Reader, s *backup.Settings) error {
	e, r := from.e, from.r
	c, release, err := from.p.lockedClient()
	if err != nil {
		return err
	}
	defer release()
	c.Restores = true
	c.Loaded = func(ctx context.Context) error {
		if err := r.End(); err != nil { // it is what was verified
			return err
		}
		return e.Restore(ctx, s.Application, func(a *store.App) error { return putBack(a, r, s, e.Log) })
	}
	if err := c.Install(ctx, reader); err != nil {
		return err
	}
	if rec, err := c.Read(); err != nil {
		return err
	} else if rec.Open != nil {
		if err := c.Commit(ctx); err != nil {
			return err
		}
	}
	if err := e.Restored(ctx, s.Application); err != nil {
		return err
	}
	if a, err := e.Store.App(s.Application); err != nil || !s.Stopped || a.Stopped {
		return err
	}
	return e.Stop(ctx, s.Application)
}

// setHistory gives an application without a history the one of the backup.
func (from *restoring) setHistory(ctx context.Context, s *backup.Settings) error {
	release, err := from.e.Store.Lock(ctx, "restore of "+s.Application)
	if err != nil {
		return err
	}
	defer release()
	file := from.e.Store.HistoryFile(s.Application)
	if err := durable.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return durable.WriteFile(file, []byte(s.History), 0o600)
}

// putBack gives an application that is loaded what an operator had set, and its data.
func putBack(a *store.App, r *backup.Reader, s *backup.Settings, log *slog.Logger) error {
	id := a.Deployment.To
	for name, on := range s.Services {
		if a.Services == nil {
			a.Services = map[string]store.ServiceChoice{}
		}
		a.Services[name] = store.ServiceChoice{Enabled: on, Release: id}
	}
	if s.Overrides != "" {
		a.Overrides = &store.Overrides{Text: s.Overrides, Release: id}
	}
	if len(s.Places) == 0 {
		return nil
	}
	if name, err := r.Next(); err != nil || name != s.Application+"/"+backup.NameData {
		return errors.Join(err, fmt.Errorf("%w: the data of %s is missing", backup.ErrFormat, s.Application))
	}
	var places []appdata.Place
	for _, p := range s.Places {
		places = append(places, appdata.Place(p))
	}
	return appdata.Put(a, places, func(dir string) error {
		root, err := os.OpenRoot(dir)
		if err != nil {
			return err
		}
		defer root.Close()
		weakened, err := backup.ReadTree(r, root, s.Places)
		if err != nil {
			return err
		}
		if weakened > 0 {
			log.Warn("files of the data have no setuid, setgid and capabilities any more, because every user of the device may run them", "app", s.Application, "files", weakened)
		}
		return r.End()
	})
}
