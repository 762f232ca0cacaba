// Package appdata keeps the data of an application with its releases: it copies the data
// before a new release is started, has it migrated, and brings it back with the old one.
// docs/POLICY.md describes what an application can rely on. The package must not know
// how releases are started, nor any orchestrator.
//
// The copy of a release's data is in the release's own directory, so it is removed with
// the release. Each step can be repeated after a kill:
//
//  1. The copy counts when it has its name, and for the deployment that its record names.
//     Before that the data is untouched.
//  2. A migration that was begun and not ended begins again with the data of the copy.
//  3. A way back first empties the data, while the copy is whole. Then the copy gets
//     another name, and what it has is moved. It is gone when all of it is in place.
package appdata

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"

	"github.com/mender-app/mender-app/modules/facts"
	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/store/durable/fulltree"
	"github.com/mender-app/mender-app/submodules"
)

// Keeper keeps the data of an application with an open deployment.
type Keeper struct {
	App   *store.App
	Log   *slog.Logger
	Store *store.Store
	// Doing is called when work on the data begins, with a constant of store. nil: nobody is
	// told.
	Doing func(what string) error
	Release
}

func (k *Keeper) doing(what string) error {
	if k.Doing == nil {
		return nil
	}
	return k.Doing(what)
}

// Release is what the Keeper needs done with releases of the application, which id names.
type Release interface {
	// Volumes asks the sub-module for the volumes of a release. With create it makes those
	// that are not there yet.
	Volumes(ctx context.Context, id string, create bool) ([]submodules.Volume, error)
	// Stop stops what runs of the application, so that nothing starts it by itself. id is
	// the release that ran last.
	Stop(ctx context.Context, id string) error
	// Start starts it again.
	Start(ctx context.Context, id string) error
	// Run runs a command in a container of a release.
	Run(ctx context.Context, id string, c Command) error
	// RunMigrate runs the hook migrate of the new release. dir has a link to each volume, at
	// the path that is its name.
	RunMigrate(ctx context.Context, dir string) error
}

// record is the file of a copy that says what is in it.
type record struct {
	Format     int     `json:"format"`
	Deployment int64   `json:"deployment"` // the number of the one that it was made for
	Places     []place `json:"places"`     // the content of each is in the directory of its index
}

// place is a directory with data.
type place struct {
	Volume  string `json:"volume,omitempty"`  // its name, if it is a volume
	Dir     string `json:"dir,omitempty"`     // absent: the volume was not made yet
	Missing bool   `json:"missing,omitempty"` // there was nothing
}

// The files of a copy beside its data, and the suffix of a copy that is moved back.
const (
	recordFile   = "record.json"
	begunFile    = "migration-begun"
	migratedFile = "migrated"
	backSuffix   = "-back"
)

// maxRecord bounds the file of a record, in bytes.
const maxRecord = 1 << 20

// policy is the policy of a release, nil for none.
func (k *Keeper) policy(id string) *policy.Policy {
	r, err := k.App.Release(id)
	if err != nil {
		return nil
	}
	return facts.PolicyOf(k.Log, k.App.Name, r)
}

func (k *Keeper) from() string   { return k.App.DataDir(k.App.Deployment.From) }
func (k *Keeper) backTo() string { return k.from() + backSuffix }

// write writes the record of a copy that is being made in dir.
func (r *record) write(dir string) error {
	r.Format = store.Format
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, recordFile), text, 0o600)
}

// read reads the record of a copy; nil if there is none.
func read(dir string) (*record, error) {
	file := filepath.Join(dir, recordFile)
	st, err := os.Lstat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && (!st.Mode().IsRegular() || st.Size() > maxRecord) {
		err = fmt.Errorf("%s is not a file of at most %d bytes", file, maxRecord)
	}
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var rec record
	if err := json.Unmarshal(text, &rec); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if rec.Format > store.Format {
		return nil, fmt.Errorf("%s: %w", file, store.ErrNewer)
	}
	return &rec, nil
}

// taken is the record of the copy of this deployment; nil if there is none.
func (k *Keeper) taken() (*record, error) {
	if k.App.Deployment.From == "" {
		return nil, nil
	}
	rec, err := read(k.from())
	if err != nil || rec == nil || rec.Deployment != k.App.Deployment.Number {
		return nil, err
	}
	return rec, nil
}

// returns is the record of the data that comes back with the new release: it is a kept
// one then. nil if there is none.
func (k *Keeper) returns() (*record, error) {
	if !k.App.Deployment.Reused {
		return nil, nil
	}
	return read(k.App.DataDir(k.App.Deployment.To))
}

// Copy copies the data, after it has stopped what runs. It does nothing if the new
// release's policy does not ask for it and no data comes back with the release, or if
// that is done already.
func (k *Keeper) Copy(ctx context.Context) error {
	d := k.App.Deployment
	if d.From == "" {
		return nil
	}
	if rec, err := k.taken(); err != nil || rec != nil {
		return err
	}
	if _, err := os.Lstat(k.from()); err == nil {
		// It belongs to an earlier deployment: the release has run since then.
		if err := durable.RemoveAll(k.from()); err != nil {
			return err
		}
	}
	places, err := k.places(ctx)
	if err != nil || len(places) == 0 {
		return err
	}
	if err := k.doing(store.DataCopy); err != nil {
		return err
	}
	k.Log.Info("stopping the application, to copy its data", "app", k.App.Name)
	if err := k.Stop(ctx, d.From); err != nil {
		return err
	}
	temp := filepath.Join(filepath.Dir(k.from()), durable.TempPrefix+filepath.Base(k.from()))
	if err := os.RemoveAll(temp); err != nil {
		return err
	}
	if err := os.Mkdir(temp, 0o700); err != nil {
		return err
	}
	for i, p := range places {
		if p.Missing {
			continue
		}
		to := filepath.Join(temp, strconv.Itoa(i))
		if err := os.Mkdir(to, 0o700); err != nil {
			return err
		}
		if err := keep(ctx, p.Dir, to); err != nil {
			return err
		}
	}
	rec := record{Deployment: d.Number, Places: places}
	if err := rec.write(temp); err != nil {
		return err
	}
	if err := syncStore(temp); err != nil {
		return err
	}
	k.Log.Info("the data is copied", "app", k.App.Name, "release", d.From)
	return durable.Rename(temp, k.from())
}

// keep copies the data of a place into a directory of the store, whose path may have links
// that the operator has made.
func keep(ctx context.Context, from, to string) error {
	to, err := filepath.EvalSymlinks(to)
	if err == nil {
		err = fulltree.Copy(ctx, from, to)
	}
	if err != nil {
		return fmt.Errorf("copy the data in %s: %w", from, err)
	}
	return nil
}

// syncStore makes a directory of the store durable.
func syncStore(dir string) error {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	return fulltree.Sync(dir)
}

// Migrate gives the new release its data: the copy that was kept with it, or the old
// release's data as the hook migrate converts it. The application does not run meanwhile.
func (k *Keeper) Migrate(ctx context.Context) error {
	if k.App.Deployment.From == "" {
		return k.bring(ctx)
	}
	rec, err := k.taken()
	if err != nil || rec == nil || exists(filepath.Join(k.from(), migratedFile)) {
		return err
	}
	d := k.App.Deployment
	kept, err := k.returns()
	if err != nil {
		return err
	}
	p := k.policy(d.To)
	switch {
	case kept != nil:
		if err := k.doing(store.DataRestore); err != nil {
			return err
		}
		k.Log.Info("the data comes back that was kept with the release", "app", k.App.Name, "release", d.To)
		if err := k.replace(ctx, k.App.DataDir(d.To), kept, d.From); err != nil {
			return err
		}
	case p != nil && !p.Data.Migrate.IsZero():
		if err := k.doing(store.DataMigrate); err != nil {
			return err
		}
		k.Log.Info("migrating the data", "app", k.App.Name, "release", d.To)
		if err := k.migrate(ctx, rec, p.Data.Migrate); err != nil {
			return err
		}
		k.Log.Info("the data is migrated", "app", k.App.Name, "release", d.To)
	}
	return durable.WriteFile(filepath.Join(k.from(), migratedFile), nil, 0o600)
}

func (k *Keeper) migrate(ctx context.Context, rec *record, m policy.Migrate) error {
	begun := filepath.Join(k.from(), begunFile)
	if exists(begun) {
		k.Log.Warn("a migration of the data was interrupted: it begins again with the old release's data", "app", k.App.Name)
		// An engine goes on with a command although who asked for it was killed.
		if err := k.Stop(ctx, k.App.Deployment.To); err != nil {
			return err
		}
		if err := k.replace(ctx, k.from(), rec, k.App.Deployment.To); err != nil {
			return err
		}
	}
	if err := durable.WriteFile(begun, nil, 0o600); err != nil {
		return err
	}
	links, err := k.Store.Temp()
	if err != nil {
		return err
	}
	defer os.RemoveAll(links)
	for _, p := range rec.Places {
		if p.Volume == "" || p.Missing {
			continue
		}
		link := filepath.Join(links, p.Volume)
		if err := os.MkdirAll(filepath.Dir(link), 0o700); err != nil {
			return err
		}
		if err := os.Symlink(p.Dir, link); err != nil {
			return err
		}
	}
	if err := k.RunMigrate(ctx, links); err != nil {
		return err
	}
	if m.Service != "" {
		if err := k.run(ctx, m); err != nil {
			return err
		}
	}
	for _, p := range rec.Places {
		if !p.Missing {
			if err := fulltree.Sync(p.Dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// Restore brings the data of the old release back, after it has stopped what runs. It
// does nothing if this deployment has no copy, or if that is done already.
func (k *Keeper) Restore(ctx context.Context) error {
	d := k.App.Deployment
	if d.From == "" {
		return k.takeBack(ctx)
	}
	rec, err := k.taken()
	if err != nil {
		return err
	}
	if rec == nil {
		if rec, err = read(k.backTo()); err != nil || rec == nil {
			return err
		}
	}
	if err := k.doing(store.DataRestore); err != nil {
		return err
	}
	k.Log.Info("bringing the data of the old release back", "app", k.App.Name, "release", d.From)
	if err := k.Stop(ctx, d.To); err != nil {
		return err
	}
	if !exists(k.backTo()) {
		if _, err := k.empty(ctx, rec, d.To); err != nil {
			return err
		}
		if err := durable.Rename(k.from(), k.backTo()); err != nil {
			return err
		}
	}
	if err := fill(ctx, k.backTo(), rec.Places, fulltree.Move); err != nil {
		return err
	}
	k.Log.Info("the data is back", "app", k.App.Name, "release", d.From)
	return durable.RemoveAll(k.backTo())
}

// replace puts the data of a copy in the place of what is there. ran is the release that ran
// last.
func (k *Keeper) replace(ctx context.Context, dir string, rec *record, ran string) error {
	places, err := k.empty(ctx, rec, ran)
	if err != nil {
		return err
	}
	return fill(ctx, dir, places, fulltree.Copy)
}

// fill puts the data of a copy into places, which are empty or were filled in part by a call
// that was interrupted.
func fill(ctx context.Context, dir string, places []place, method func(ctx context.Context, from, to string) error) error {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	for i, p := range places {
		if p.Missing || p.Dir == "" {
			continue
		}
		if err := os.MkdirAll(p.Dir, 0o700); err != nil { // somebody may have removed it
			return err
		}
		if err := method(ctx, filepath.Join(dir, strconv.Itoa(i)), p.Dir); err != nil {
			return fmt.Errorf("bring the data in %s back: %w", p.Dir, err)
		}
		if err := fulltree.Sync(p.Dir); err != nil {
			return err
		}
	}
	return nil
}

// empty removes the data of all places of a record, and returns them as they are now.
func (k *Keeper) empty(ctx context.Context, rec *record, ran string) ([]place, error) {
	places, err := k.known(ctx, rec.Places, ran)
	if err != nil {
		return nil, err
	}
	for _, p := range places {
		if err := reclaim(p.Dir); err != nil {
			return nil, err
		}
		if !exists(p.Dir) {
			continue
		}
		if err := fulltree.Empty(ctx, p.Dir); err != nil {
			return nil, err
		}
		if err := fulltree.Sync(p.Dir); err != nil {
			return nil, err
		}
	}
	return places, nil
}

// reclaim makes sure that a path leads where it did when it was recorded: who wrote to the
// data may have put a link in the place of a directory.
func reclaim(dir string) error {
	if dir == "" {
		return nil
	}
	above := filepath.Dir(dir)
	if real, err := filepath.EvalSymlinks(above); err == nil && real != above {
		return fmt.Errorf("%s leads to %s now: remove that link, and try again", above, real)
	}
	if st, err := os.Lstat(dir); err == nil && !st.IsDir() {
		return os.Remove(dir)
	}
	return nil
}

// Drop removes the copy of the data of a release that is the current one, if there is one.
func Drop(a *store.App, id string) error {
	if id == "" || !exists(a.DataDir(id)) {
		return nil
	}
	return durable.RemoveAll(a.DataDir(id))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return path != "" && err == nil
}
