package appdata

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/mender-app/mender-app/modules/diskspace"
	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/store/durable/fulltree"
	"github.com/mender-app/mender-app/submodules"
	"golang.org/x/sys/unix"
)

// Lacks refuses a policy that has data copied where the sub-module cannot stop what
// writes to it.
func Lacks(p *policy.Policy, app string, info submodules.Info, orchestrator string) error {
	if p.Copies() && !info.Has(submodules.FeatureData) {
		return fmt.Errorf("data.snapshot of %s: the sub-module %s cannot keep data still while it is copied: update it, or remove the key", app, orchestrator)
	}
	if p.Migrates() && !info.Has(submodules.FeatureRun) {
		return fmt.Errorf("data.migrate of %s: the sub-module %s cannot run a command of the new release: update it, or migrate the data with the hook migrate", app, orchestrator)
	}
	return nil
}

// Check refuses a deployment whose data cannot be copied, before anything is stopped.
func (k *Keeper) Check(ctx context.Context) error {
	if k.App.Deployment.From == "" {
		return nil
	}
	if rec, err := k.taken(); err != nil || rec != nil {
		return err
	}
	places, err := k.places(ctx)
	if err != nil {
		return err
	}
	needs, err := k.needs(ctx, places)
	if err != nil {
		return err
	}
	kept, err := k.returns()
	if err != nil {
		return err
	}
	if p := k.policy(k.App.Deployment.To); kept == nil && p.Migrates() {
		c := k.command(p.Data.Migrate)
		c.Probe = k.App.ReleaseManifests(k.App.Deployment.To)
		if err := k.Run(ctx, k.App.Deployment.To, c); err != nil {
			return fmt.Errorf("data.migrate of %s: %w", k.App.Name, err)
		}
	}
	if kept != nil {
		more, err := k.comingBack(ctx, kept)
		if err != nil {
			return err
		}
		needs = append(needs, more...)
	}
	return diskspace.Check(needs, diskspace.Free)
}

// Needs returns the space that the copy takes for a release with a policy, which is not
// on the device yet. A volume that the installed release does not have is not counted.
func (k *Keeper) Needs(ctx context.Context, p *policy.Policy, installed string) ([]diskspace.Need, error) {
	if !p.Copies() || installed == "" {
		return nil, nil
	}
	// Without volumes too: the sub-module refuses what it cannot keep still.
	volumes, err := k.Volumes(ctx, installed, false)
	if err != nil {
		return nil, err
	}
	named := slices.DeleteFunc(slices.Clone(p.Data.Volumes), func(name string) bool { return find(volumes, name) == nil })
	places, err := k.find(named, p.Data.Directories, volumes)
	if err != nil {
		return nil, err
	}
	return k.needs(ctx, places)
}

// needs returns the space that copies of the places take in the store. Where files can be
// cloned, the copies take it when the new release has changed everything.
func (k *Keeper) needs(ctx context.Context, places []place) (list []diskspace.Need, err error) {
	for _, p := range places {
		if p.Missing {
			continue
		}
		bytes, err := fulltree.Measure(ctx, p.Dir)
		if err != nil {
			return nil, fmt.Errorf("the data cannot be copied: %w", err)
		}
		list = append(list, diskspace.Need{Dir: diskspace.Existing(k.Store.Dir()), Bytes: bytes})
	}
	return list, nil
}

// comingBack returns the space that the data of a kept release takes where it was,
// beyond what is there now.
func (k *Keeper) comingBack(ctx context.Context, kept *record) (list []diskspace.Need, err error) {
	for i, p := range kept.Places {
		from := filepath.Join(k.App.DataDir(k.App.Deployment.To), strconv.Itoa(i))
		if p.Missing || !exists(from) {
			continue
		}
		if from, err = filepath.EvalSymlinks(from); err != nil {
			return nil, err
		}
		bytes, err := fulltree.Measure(ctx, from)
		if err != nil {
			return nil, err
		}
		there := int64(0)
		if exists(p.Dir) {
			if there, err = fulltree.Measure(ctx, p.Dir); err != nil {
				return nil, err
			}
		}
		list = append(list, diskspace.Need{Dir: diskspace.Existing(p.Dir), Bytes: max(0, bytes-there)})
	}
	return list, nil
}

// places finds the data that the deployment copies; none if it copies nothing.
func (k *Keeper) places(ctx context.Context) ([]place, error) {
	d := k.App.Deployment
	kept, err := k.returns()
	if err != nil {
		return nil, err
	}
	if kept != nil {
		list, err := k.known(ctx, kept.Places, d.From)
		for i := range list {
			list[i].Missing = !exists(list[i].Dir)
		}
		return list, err
	}
	p := k.policy(d.To)
	if !p.Copies() {
		return nil, nil
	}
	volumes, err := k.Volumes(ctx, d.To, false)
	if err != nil {
		return nil, err
	}
	return k.find(p.Data.Volumes, p.Data.Directories, volumes)
}

// find finds volumes and directories by their names.
func (k *Keeper) find(named, directories []string, volumes []submodules.Volume) (places []place, err error) {
	for _, name := range named {
		v := find(volumes, name)
		if v == nil {
			return nil, fmt.Errorf("data.volumes of %s: the manifests have no volume %s whose content is on this machine and of this application alone", k.App.Name, name)
		}
		p := place{Volume: name, Missing: v.Dir == ""}
		if v.Dir != "" {
			// The engine's own directory may be behind a link.
			if p.Dir, err = filepath.EvalSymlinks(v.Dir); err != nil {
				return nil, fmt.Errorf("volume %s: %w", name, err)
			}
		}
		places = append(places, p)
	}
	for _, dir := range directories {
		p := place{Dir: dir}
		switch st, err := os.Lstat(dir); {
		case errors.Is(err, fs.ErrNotExist):
			p.Missing = true
		case err != nil:
			return nil, err
		case !st.IsDir():
			return nil, fmt.Errorf("data.directories of %s: %s is not a directory", k.App.Name, dir)
		}
		places = append(places, p)
	}
	return places, k.allowed(places)
}

// allowed refuses places that are not the data of an application alone.
func (k *Keeper) allowed(places []place) error {
	root, err := filepath.EvalSymlinks(diskspace.Existing(k.Store.Dir()))
	if err != nil {
		return err
	}
	for i, p := range places {
		if p.Dir == "" {
			continue
		}
		// The application may be able to replace a directory by a link.
		if real, err := filepath.EvalSymlinks(p.Dir); err == nil && real != p.Dir {
			return fmt.Errorf("data.directories of %s: %s leads to %s: name that", k.App.Name, p.Dir, real)
		}
		if p.Volume == "" {
			if err := ownParents(p.Dir); err != nil {
				return fmt.Errorf("data.directories of %s: %w", k.App.Name, err)
			}
		}
		for _, other := range []string{root, "/proc", "/sys", "/etc", "/usr"} {
			// The sub-module keeps data of the application in a directory of the store.
			if other == root && p.Volume != "" && strings.HasPrefix(p.Dir, filepath.Join(root, k.App.Name, store.DataName)+"/") {
				continue
			}
			if overlap(p.Dir, other) {
				return fmt.Errorf("data.directories of %s: %s has what is not the application's: %s", k.App.Name, p.Dir, other)
			}
		}
		for _, other := range places[:i] {
			if other.Dir != "" && overlap(p.Dir, other.Dir) {
				return fmt.Errorf("the data of %s is named twice: %s and %s", k.App.Name, other.Dir, p.Dir)
			}
		}
	}
	return nil
}

// ownParents refuses a directory if somebody else than root, or this user, can put another
// one in its place: whoever can change the directory above it.
func ownParents(dir string) error {
	var below *unix.Stat_t
	for at := dir; ; at = filepath.Dir(at) {
		var st unix.Stat_t
		switch err := unix.Lstat(at, &st); {
		case errors.Is(err, unix.ENOENT):
		case err != nil:
			return &fs.PathError{Op: "lstat", Path: at, Err: err}
		case at == dir:
			below = &st
		case !isOurs(&st):
			return fmt.Errorf("%s belongs to user %d, who can put another directory in the place of %s: use one whose parents belong to root", at, st.Uid, dir)
		case st.Mode&0o022 != 0 && (st.Mode&unix.S_ISVTX == 0 || below != nil && !isOurs(below)):
			return fmt.Errorf("others than root can change %s, and put another directory in the place of %s: use one whose parents belong to root", at, dir)
		default:
			below = &st
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

func isOurs(st *unix.Stat_t) bool { return st.Uid == 0 || int(st.Uid) == os.Geteuid() }

// overlap reports whether one directory is in the other.
func overlap(a, b string) bool {
	return a == b || strings.HasPrefix(a, strings.TrimSuffix(b, "/")+"/") || strings.HasPrefix(b, strings.TrimSuffix(a, "/")+"/")
}

// known returns the places of a record as they are now: what was missing may be there.
// ran is the release that ran last.
func (k *Keeper) known(ctx context.Context, list []place, ran string) ([]place, error) {
	out := slices.Clone(list)
	var volumes []submodules.Volume
	for i, p := range out {
		if p.Dir != "" {
			continue
		}
		if volumes == nil {
			var err error
			if volumes, err = k.Volumes(ctx, ran, false); err != nil {
				return nil, err
			}
		}
		if v := find(volumes, p.Volume); v != nil && v.Dir != "" {
			var err error
			if out[i].Dir, err = filepath.EvalSymlinks(v.Dir); err != nil {
				return nil, fmt.Errorf("volume %s: %w", p.Volume, err)
			}
		}
	}
	return out, nil
}

func find(list []submodules.Volume, name string) *submodules.Volume {
	i := slices.IndexFunc(list, func(v submodules.Volume) bool { return v.Name == name })
	if i < 0 {
		return nil
	}
	return &list[i]
}
