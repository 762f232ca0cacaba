package appdata

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/mender-app/mender-app/modules/diskspace"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/store/durable/fulltree"
)

// This file takes the data of an application for a backup, and puts the data of a backup in
// place before the first release of an application is started. That data waits where the
// copy of a release's data is, so it is removed with the release.

// Place is a volume or a directory with data.
type Place struct {
	Volume string // its name in the manifests
	Dir    string // without Volume: the path
}

// Snapshot copies the data of the current release into dir, in a directory for each place,
// named by its index: the volumes that the manifests declare and the directories that the
// policy names, as far as they are there. If there is data, the application is stopped until
// it is copied. GoOn starts it again if this call is killed.
func (k *Keeper) Snapshot(ctx context.Context, dir string) (list []Place, err error) {
	id := k.App.Current
	volumes, err := k.Volumes(ctx, id, false)
	if err != nil {
		return nil, err
	}
	var named, directories []string
	for _, v := range volumes {
		named = append(named, v.Name)
	}
	if p := k.policy(id); p != nil {
		directories = p.Data.Directories
	}
	all, err := k.find(named, directories, volumes)
	if err != nil {
		return nil, err
	}
	var places []place
	for _, p := range all {
		if !p.Missing {
			places = append(places, p)
		}
	}
	if len(places) == 0 {
		return nil, nil
	}
	needs, err := k.needs(ctx, places)
	if err != nil {
		return nil, err
	}
	if err := diskspace.Check(needs, diskspace.Free); err != nil {
		return nil, err
	}
	if !k.App.Stopped {
		k.App.Copying = true
		if err := k.App.Save(); err != nil {
			return nil, err
		}
		k.Log.Info("stopping the application, to copy its data", "app", k.App.Name)
		defer func() { err = errors.Join(err, k.GoOn(context.WithoutCancel(ctx))) }()
		if err := k.Stop(ctx, id); err != nil {
			return nil, err
		}
	}
	for i, p := range places {
		to := filepath.Join(dir, strconv.Itoa(i))
		if err := os.Mkdir(to, 0o700); err != nil {
			return nil, err
		}
		if err := keep(ctx, p.Dir, to); err != nil {
			return nil, err
		}
		if p.Volume != "" {
			p.Dir = ""
		}
		list = append(list, Place{p.Volume, p.Dir})
	}
	return list, nil
}

// GoOn starts an application again that was stopped for a backup, unless an operator has
// stopped it since.
func (k *Keeper) GoOn(ctx context.Context) error {
	if !k.App.Copying {
		return nil
	}
	if err := k.Start(ctx, k.App.Current); err != nil {
		return err
	}
	k.App.Copying = false
	return k.App.Save()
}

// Put gives the release of an open deployment data from a backup: unpack writes it into a
// directory, with a directory for each place, named by its index.
func Put(a *store.App, list []Place, unpack func(dir string) error) error {
	dir := a.DataDir(a.Deployment.To)
	temp := filepath.Join(filepath.Dir(dir), durable.TempPrefix+filepath.Base(dir))
	if err := os.RemoveAll(temp); err != nil {
		return err
	}
	if err := os.Mkdir(temp, 0o700); err != nil {
		return err
	}
	if err := unpack(temp); err != nil {
		return errors.Join(err, os.RemoveAll(temp))
	}
	rec := record{Deployment: a.Deployment.Number}
	for _, p := range list {
		rec.Places = append(rec.Places, place{Volume: p.Volume, Dir: p.Dir})
	}
	if err := rec.write(temp); err != nil {
		return err
	}
	if err := syncStore(temp); err != nil {
		return err
	}
	return durable.Rename(temp, dir)
}

// bring puts the data of a backup in place. It does nothing without.
func (k *Keeper) bring(ctx context.Context) error {
	dir := k.App.DataDir(k.App.Deployment.To)
	rec, err := read(dir)
	if err != nil || rec == nil {
		return err
	}
	places, err := k.brought(ctx, rec)
	if err != nil {
		return err
	}
	begun := filepath.Join(dir, begunFile)
	if !exists(begun) {
		for _, p := range places {
			if err := checkEmpty(p.Dir); err != nil {
				return err
			}
		}
		if err := durable.WriteFile(begun, nil, 0o600); err != nil {
			return err
		}
	}
	k.Log.Info("putting the data of the backup in place", "app", k.App.Name)
	return fill(ctx, dir, places, fulltree.Move)
}

// takeBack removes the data of a backup from where bring has put it: what was there before
// was nothing.
func (k *Keeper) takeBack(ctx context.Context) error {
	id := k.App.Deployment.To
	rec, err := read(k.App.DataDir(id))
	if err != nil || rec == nil || !exists(filepath.Join(k.App.DataDir(id), begunFile)) {
		return err
	}
	// A sub-module finds the application by this path, which is not there before ROLLOUT.
	if err = k.App.Point(id); err == nil {
		err = k.Stop(ctx, id)
	}
	if err == nil {
		var places []place
		if places, err = k.brought(ctx, rec); err == nil {
			for _, p := range places {
				err = errors.Join(err, clean(ctx, p.Dir))
			}
		}
	}
	if err != nil && ctx.Err() == nil {
		k.Log.Error("data of the backup stays where it was put", "app", k.App.Name, "error", err)
		return nil
	}
	return err
}

func clean(ctx context.Context, dir string) error {
	if err := reclaim(dir); err != nil || !exists(dir) {
		return err
	}
	if err := fulltree.Empty(ctx, dir); err != nil {
		return err
	}
	return fulltree.Sync(dir)
}

// brought finds the places of data from a backup. Only those of the release count: its
// volumes, which are made, and the directories that its policy names.
func (k *Keeper) brought(ctx context.Context, rec *record) (places []place, err error) {
	id := k.App.Deployment.To
	volumes, err := k.Volumes(ctx, id, true)
	if err != nil {
		return nil, err
	}
	p := k.policy(id)
	for _, b := range rec.Places {
		var found []place
		switch {
		case b.Volume != "":
			found, err = k.find([]string{b.Volume}, nil, volumes)
			if err == nil && found[0].Missing {
				err = fmt.Errorf("volume %s of %s: its sub-module cannot make it before the application is started: update it", b.Volume, k.App.Name)
			}
		case p != nil && slices.Contains(p.Data.Directories, b.Dir):
			found, err = k.find(nil, []string{b.Dir}, volumes)
		default:
			err = fmt.Errorf("the backup has data of %s, which data.directories of %s does not name", b.Dir, k.App.Name)
		}
		if err != nil {
			return nil, err
		}
		found[0].Missing = false // it is made
		places = append(places, found[0])
	}
	return places, k.allowed(places)
}

// checkEmpty refuses a place that has data: only a purge removes any.
func checkEmpty(dir string) error {
	empty, err := IsEmpty(dir)
	if err == nil && !empty {
		err = fmt.Errorf("%s is not empty, and nothing is overwritten: remove what is in it", dir)
	}
	return err
}

// IsEmpty reports whether there is nothing in a directory, or no directory.
func IsEmpty(dir string) (bool, error) {
	if dir == "" || !exists(dir) {
		return true, nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return false, err
	}
	defer d.Close()
	_, err = d.Readdirnames(1)
	if errors.Is(err, io.EOF) {
		return true, nil
	}
	return false, err
}
