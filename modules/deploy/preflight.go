package deploy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/version"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// ErrUnfit: the artifact does not fit this device. Nothing was changed. The text
// says what to do.
var ErrUnfit = errors.New("refused")

// unfit makes an ErrUnfit.
func unfit(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrUnfit, fmt.Errorf(format, args...))
}

// preflight makes all checks that need only the metadata, before anything is
// loaded. It returns the resolved header and the target of its calls.
func (e *Engine) preflight(ctx context.Context, h *header) (*header, *target, error) {
	if err := e.checkPlatform(h.meta); err != nil {
		return nil, nil, err
	}
	o, info, err := e.orchestrator(ctx, h.meta.Orchestrator)
	if err != nil {
		return nil, nil, unfit("%w", err)
	}
	t := &target{e: e, app: h.meta.ApplicationName, r: newRelease(h), o: o, info: info}
	if err := e.checkCurrent(h.meta); err != nil {
		return nil, nil, err
	}
	if err := t.checkRequirements(ctx); err != nil {
		return nil, nil, err
	}
	if err := t.checkPolicy(ctx, h); err != nil {
		return nil, nil, err
	}
	resolved, err := t.choose(ctx, h)
	if err != nil {
		return nil, nil, err
	}
	if err := t.checkBases(ctx, resolved.meta); err != nil {
		return nil, nil, err
	}
	if err := t.checkSpace(ctx, resolved.meta); err != nil {
		return nil, nil, err
	}
	return resolved, t, nil
}

func (e *Engine) checkPlatform(m *artifact.Metadata) error {
	if len(e.Platforms) == 0 {
		return nil
	}
	want, err := image.ParsePlatform(m.Platform)
	if err != nil {
		return unfit("%w", err)
	}
	for _, have := range e.Platforms {
		if have.Match(want) != image.NoFit {
			return nil
		}
	}
	return unfit("the artifact is for %s and this machine runs %s: build it with app-gen --platform %s",
		want, e.Platforms[0], e.Platforms[0])
}

// checkCurrent refuses to move an application from one orchestrator to another,
// because nothing would stop it in the old one. With RefuseOlder it also refuses
// an older version.
func (e *Engine) checkCurrent(m *artifact.Metadata) error {
	a, err := e.Store.App(m.ApplicationName)
	if errors.Is(err, store.ErrNoApp) {
		return nil
	}
	if err != nil {
		return err
	}
	if a.Current == "" {
		return nil
	}
	r, err := a.Release(a.Current)
	if err != nil {
		// Go on: a new release may be the only way to repair this.
		e.Log.Error("the current release cannot be read; there will be no way back to it", "app", a.Name, "error", err)
		return nil
	}
	if r.Orchestrator != m.Orchestrator {
		return unfit("%s runs under %s and the artifact is for %s: give the application another name",
			a.Name, r.Orchestrator, m.Orchestrator)
	}
	if e.RefuseOlder {
		return checkNotOlder(m, r)
	}
	return nil
}

// checkNotOlder refuses an artifact whose version is older than the installed
// release's, or cannot be compared with it. Where the installed release has no
// version, as an adopted one, anything is newer.
func checkNotOlder(m *artifact.Metadata, installed *store.Release) error {
	if installed.Version == "" {
		return nil
	}
	order, err := version.Compare(m.ApplicationVersion, installed.Version)
	if err != nil {
		return unfit("version %q of %s cannot be compared with the installed %q, and refuse_older is set: %w",
			m.ApplicationVersion, m.ApplicationName, installed.Version, err)
	}
	if order < 0 {
		return unfit("version %s of %s is older than the installed %s, and refuse_older is set: to go back, use mender-app rollback %s",
			m.ApplicationVersion, m.ApplicationName, installed.Version, m.ApplicationName)
	}
	return nil
}

// checkRequirements makes sure that the commands the sub-module needs are there.
func (t *target) checkRequirements(ctx context.Context) error {
	var reqs []submodules.Requirement
	if err := t.call(ctx, submodules.VerbReqs, t.request(), into(&reqs, t.o.Reqs)); err != nil {
		return unfit("%w", err)
	}
	for _, r := range reqs {
		words := strings.Fields(r.Command)
		if len(words) == 0 {
			continue
		}
		if _, err := exec.LookPath(words[0]); err == nil {
			continue
		}
		if !r.Warning {
			return unfit("%s needs the command %q, which is missing: install it", t.r.Orchestrator, words[0])
		}
		t.e.Log.Warn("a command is missing", "command", words[0], "orchestrator", t.r.Orchestrator)
	}
	return nil
}

// checkBases makes sure that the device has the images that the deltas need.
func (t *target) checkBases(ctx context.Context, m *artifact.Metadata) error {
	missing := map[image.Digest]submodules.Component{}
	for _, c := range m.Components {
		if c.Format != artifact.FormatDelta {
			continue
		}
		if !t.info.Has(submodules.FeatureDelta) {
			return unfit("sub-module %s cannot apply deltas: update it, or install a full artifact", m.Orchestrator)
		}
		for _, b := range c.Bases {
			missing[b.Digest] = submodules.Component{Type: artifact.ComponentImage, URL: b.URL, Digest: b.Digest}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	var list []submodules.Component
	if err := t.call(ctx, submodules.VerbList, t.request(), into(&list, t.o.List)); err != nil {
		return unfit("%w", err)
	}
	for _, c := range list {
		delete(missing, c.Digest)
	}
	if len(missing) == 0 || !t.info.Has(submodules.FeatureVerify) {
		return nil // LOAD finds out
	}
	// The list names the application's own components: the engine may have others.
	req := t.request()
	for _, c := range missing {
		req.Components = append(req.Components, c)
	}
	var problems []string
	if err := t.call(ctx, submodules.VerbVerify, req, into(&problems, t.o.Verify)); err != nil {
		return unfit("%w", err)
	}
	if len(problems) > 0 {
		return unfit("the delta needs an image that this device does not have (%s): install the full artifact", problems[0])
	}
	return nil
}

// The margin of free space beyond what the metadata announces: 5 % and 16 MiB,
// for the journal, logs and rounding by file systems.
const (
	marginPart  = 20
	marginBytes = 16 << 20
)

// need is the space that a file system must have free.
type need struct {
	dir   string
	bytes int64
}

// checkSpace compares the sizes in the metadata with the free space.
func (t *target) checkSpace(ctx context.Context, m *artifact.Metadata) error {
	if m.Sizes == nil {
		return nil // the shell reference's metadata has no sizes
	}
	temp := m.Sizes.Temp
	var largest int64 // of the images that are put into a file for the sub-module
	seen := map[image.Digest]bool{}
	for _, c := range m.Components {
		if spools(t.info, seen[c.Digest]) {
			largest = max(largest, c.PayloadBytes)
		}
		seen[c.Digest] = true
	}
	temp += largest
	needs := []need{{existing(t.e.Store.Dir()), temp + m.Sizes.Manifests}}
	if dir := t.dataRoot(ctx); dir != "" {
		needs = append(needs, need{existing(dir), m.Sizes.Engine})
	}
	return checkFree(needs, freeBytes)
}

// dataRoot is where the engine keeps its images; "" if that is unknown or not on
// this machine. The sub-module is asked, because the engine's configuration file
// may not name the directory.
func (t *target) dataRoot(ctx context.Context) string {
	if !t.info.Has(submodules.FeatureStorage) {
		return t.e.DataRoot
	}
	var dirs []string
	if err := t.call(ctx, submodules.VerbStorage, t.request(), into(&dirs, t.o.Storage)); err != nil {
		t.e.Log.Warn("the sub-module does not say where images are kept", "error", err)
		return t.e.DataRoot
	}
	if len(dirs) == 0 || !filepath.IsAbs(dirs[0]) {
		return ""
	}
	return dirs[0]
}

// freeBytes returns the space that is free for root in a directory's file
// system, and the file system's number.
func freeBytes(dir string) (free int64, dev uint64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	var fi unix.Stat_t
	if err := unix.Stat(dir, &fi); err != nil {
		return 0, 0, &fs.PathError{Op: "stat", Path: dir, Err: err}
	}
	return int64(st.Bavail) * int64(st.Bsize), uint64(fi.Dev), nil // their types depend on the machine
}

// spoolRoom returns how many bytes may be written to a directory where the
// metadata announces no sizes: the free space minus the margin, at least 1.
func spoolRoom(dir string, free func(dir string) (int64, uint64, error)) (int64, error) {
	have, _, err := free(dir)
	if err != nil {
		return 0, err
	}
	room := have - marginBytes
	return max(1, room-room/(marginPart+1)), nil
}

func checkFree(needs []need, free func(dir string) (int64, uint64, error)) error {
	type total struct {
		need
		free int64
	}
	var order []uint64
	totals := map[uint64]*total{}
	for _, n := range needs {
		if n.bytes < 0 {
			return unfit("the metadata announces a negative size")
		}
		have, dev, err := free(n.dir)
		if err != nil {
			return err
		}
		t, ok := totals[dev]
		if !ok {
			t = &total{need: need{dir: n.dir}, free: have}
			totals[dev] = t
			order = append(order, dev)
		}
		if t.bytes += n.bytes; t.bytes < 0 {
			t.bytes = math.MaxInt64
		}
	}
	for _, dev := range order {
		t := totals[dev]
		want := t.bytes + t.bytes/marginPart + marginBytes
		if want < 0 || t.free < want {
			return unfit("not enough space on the file system of %s: %s are needed and %s are free: free some and try again",
				t.dir, human(want), human(t.free))
		}
	}
	return nil
}

// existing returns path if it exists, else its nearest parent that does.
func existing(path string) string {
	for {
		if _, err := os.Stat(path); err == nil || path == filepath.Dir(path) {
			return path
		}
		path = filepath.Dir(path)
	}
}

// human writes a number of bytes with a unit.
func human(n int64) string {
	const unit = 1000
	if n < unit {
		return fmt.Sprintf("%d bytes", n)
	}
	f, exp := float64(n)/unit, 0
	for f >= unit && exp < 4 {
		f /= unit
		exp++
	}
	return fmt.Sprintf("%.1f %cB", f, "kMGTP"[exp])
}
