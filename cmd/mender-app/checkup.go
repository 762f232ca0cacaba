package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/cmd/internal/version"
	"github.com/mender-app/mender-app/modules/facts"
	"github.com/mender-app/mender-app/modules/hold"
	"github.com/mender-app/mender-app/modules/settings"
	"github.com/mender-app/mender-app/submodules"
)

// checkup collects findings about this device.
type checkup struct {
	ctx      context.Context
	config   *device.Config
	findings []finding
	engines  []submodules.Engine // those that answer
	// readOnly: a service without rights asks. It cannot tell what others can write, nor try
	// the sandbox.
	readOnly bool
}

// patience is how long a sub-module or a program may take to answer.
const patience = time.Minute

func (c *checkup) ok(check, found string, args ...any) {
	c.findings = append(c.findings, finding{Status: statusOK, Check: check, Found: fmt.Sprintf(found, args...)})
}

func (c *checkup) bad(status, check, do, found string, args ...any) {
	c.findings = append(c.findings, finding{Status: status, Check: check, Found: fmt.Sprintf(found, args...), Do: do})
}

func (c *checkup) all(broken error) {
	c.ok("mender-app", "%s", version.String())
	if broken != nil {
		c.bad(statusFail, "configuration", "correct the setting: nothing else can be done or checked before", "%v", broken)
		c.clock()
		return
	}
	c.updateModule()
	dirs := c.submodules()
	c.store()
	if !c.readOnly {
		c.space(append([]string{c.config.Store}, dirs...))
		c.barrier()
	}
	c.clock()
	c.keys()
	c.reserved()
	if !c.readOnly {
		c.sandbox()
	}
}

// reserved checks that what policies want on reserved processors has some.
func (c *checkup) reserved() {
	const check = "reserved processors"
	s := c.config.OpenStore()
	names, err := s.Apps()
	if err != nil {
		return // the check of the store says so
	}
	quiet := slog.New(slog.DiscardHandler)
	bad := false
	for _, a := range facts.Installed(s, quiet, names) {
		if text := settings.MissingCPUs(c.config.CPUs, a.Name, a.Policy); text != "" {
			bad = true
			what, do := lastPart(text)
			c.bad(statusWarn, check, do, "%s", what)
		}
	}
	if text := submodules.MissingCPUs(c.config.CPUs, submodules.OnlineCPUs()); c.config.CPUs != "" && text != "" {
		what, do := lastPart(text)
		c.bad(statusFail, check, do, "%s", what)
	} else if !bad && c.config.CPUs != "" {
		c.ok(check, "%s", c.config.CPUs)
	}
}

// lastPart cuts the next step, which ends a message, from what was found.
func lastPart(text string) (found, do string) {
	i := strings.LastIndex(text, ": ")
	return text[:i], text[i+2:]
}

// Advice that several findings share.
const (
	reinstall = "install mender-app again"
	correctIt = "correct what the message names"
)

// updateModule checks the program app.
func (c *checkup) updateModule() {
	const check = "update module"
	ctx, cancel := context.WithTimeout(c.ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.config.UpdateModule, "--version")
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	said := device.OneLine(string(out))
	switch {
	case err != nil:
		c.bad(statusFail, check, reinstall+", or set update_module", "%s: %v", c.config.UpdateModule, err)
	case !strings.HasSuffix(said, " "+version.String()):
		c.bad(statusWarn, check, reinstall, "%s is %q, this is %s", c.config.UpdateModule, said, version.String())
	default:
		c.ok(check, "%s: %s", c.config.UpdateModule, said)
	}
}

// submodules checks the sub-modules and their engines. It returns the directories
// in which they keep components.
func (c *checkup) submodules() (dirs []string) {
	const check = "sub-modules"
	entries, err := os.ReadDir(c.config.SubmodulesDir)
	if err != nil || len(entries) == 0 {
		if err == nil {
			err = fmt.Errorf("%s is empty", c.config.SubmodulesDir)
		}
		c.bad(statusFail, check, reinstall+", or set app_modules_dir", "%v", err)
		return nil
	}
	used := c.used()
	for _, e := range entries {
		m, err := submodules.Find(c.config.SubmodulesDir, e.Name())
		if err != nil {
			c.bad(statusWarn, "sub-module "+e.Name(), reinstall, "%v", err)
			continue
		}
		m.Config = submodules.Config{Deadline: patience, Log: func(string) {}}
		// An engine that no application needs may be missing, unless it is the only one.
		missing := statusFail
		if len(entries) > 1 && !slices.Contains(used, m.Name) {
			missing = statusWarn
		}
		dirs = append(dirs, c.submodule(m.Client(), missing)...)
	}
	return dirs
}

func (c *checkup) submodule(m submodules.Client, missing string) []string {
	check := "sub-module " + m.Name
	info, err := m.Describe(c.ctx)
	if err != nil {
		c.bad(statusFail, check, reinstall, "%v", err)
		return nil
	}
	c.ok(check, "%s, protocol %s", strings.TrimSpace(info.Name+" "+info.Version), info.Protocol)
	check = "engine of " + m.Name
	if !info.Has(submodules.FeatureEngine) {
		c.ok(check, "the sub-module does not report its engines")
		return nil
	}
	e, err := m.Engine(c.ctx, submodules.Request{})
	if err == nil {
		_, err = m.Reqs(c.ctx, submodules.ReqsRequest{})
	}
	if err != nil {
		do := correctIt
		if missing == statusWarn {
			do = "nothing, unless an application shall run on it"
		}
		c.bad(missing, check, do, "%v", err)
		return nil
	}
	c.engines = append(c.engines, e)
	c.ok(check, "%s %s answers", e.Name, e.Version)
	if !info.Has(submodules.FeatureStorage) {
		return nil
	}
	dirs, err := m.Storage(c.ctx, submodules.Request{App: "doctor"})
	if err != nil {
		c.bad(statusWarn, check, correctIt, "where it keeps its images: %v", err)
	}
	return dirs
}

// used returns the orchestrators of the installed applications.
func (c *checkup) used() (names []string) {
	s := c.config.OpenStore()
	apps, err := s.Apps()
	if err != nil {
		return nil // the check of the store reports this
	}
	for _, name := range apps {
		if o := s.LegacyOrchestrator(name); o != "" {
			names = append(names, o)
			continue
		}
		a, err := s.App(name)
		if err != nil || a.Current == "" {
			continue
		}
		if r, err := a.Release(a.Current); err == nil {
			names = append(names, r.Orchestrator)
		}
	}
	return names
}

// store checks the store's directories: only root may enter them.
func (c *checkup) store() {
	const check = "store"
	s := c.config.OpenStore()
	fi, err := os.Stat(s.Dir())
	if errors.Is(err, fs.ErrNotExist) {
		c.ok(check, "%s does not exist yet; the first installation makes it", s.Dir())
		return
	}
	if err != nil || !fi.IsDir() {
		c.bad(statusFail, check, "set persistent_store to a directory on persistent storage", "%s is not a directory: %v", s.Dir(), err)
		return
	}
	private, err := s.Private()
	if err != nil {
		c.bad(statusFail, check, "run it as root", "%v", err)
		return
	}
	most := map[string]fs.FileMode{s.Dir(): 0o755} // others may have things in it
	for _, dir := range private {
		most[dir] = 0o700
	}
	well := true
	for _, at := range slices.Sorted(maps.Keys(most)) {
		most := most[at]
		fi, err := os.Stat(at)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			c.bad(statusFail, check, "run it as root", "%v", err)
			well = false
			continue
		}
		owner := -1
		if st, ok := fi.Sys().(*syscall.Stat_t); ok {
			owner = int(st.Uid)
		}
		if owner != os.Geteuid() || fi.Mode().Perm()&^most != 0 {
			c.bad(statusFail, check, fmt.Sprintf("chown root %s && chmod %o %s", at, most, at),
				"%s belongs to user %d and has mode %o: other users can read, change or block what is in it", at, owner, fi.Mode().Perm())
			well = false
		}
	}
	apps, err := s.Apps()
	if err != nil {
		c.bad(statusFail, check, correctIt, "%v", err)
	} else if well {
		c.ok(check, "%s, %s", s.Dir(), metered.Count(len(apps), "application"))
	}
}

// Limits of the free space on a file system, in bytes: a load leaves 16 MiB free,
// and an update of usual images needs more.
const (
	spaceFail = 16 << 20
	spaceWarn = 128 << 20
)

// space checks the free space of the file systems that mender-app and the engine
// write to.
func (c *checkup) space(dirs []string) {
	done := map[uint64]bool{}
	for _, dir := range dirs {
		dir = existing(dir)
		fi, err := os.Stat(dir)
		if err != nil {
			continue
		}
		if st, ok := fi.Sys().(*syscall.Stat_t); ok {
			if done[uint64(st.Dev)] { //nolint:unconvert // its type differs by machine
				continue
			}
			done[uint64(st.Dev)] = true //nolint:unconvert // see above
		}
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err != nil {
			c.bad(statusFail, "free space", correctIt, "%s: %v", dir, err)
			continue
		}
		free := uint64(st.Bavail) * uint64(st.Bsize) //nolint:unconvert // see above
		status := statusOK
		switch {
		case st.Flags&unix.ST_RDONLY != 0:
			c.bad(statusFail, "free space", "mount it writable", "the file system of %s is read-only", dir)
			continue
		case free < spaceFail:
			status = statusFail
		case free < spaceWarn:
			status = statusWarn
		}
		if status == statusOK {
			c.ok("free space", "%s on the file system of %s", metered.Human(int64(free)), dir)
		} else {
			c.bad(status, "free space", "remove what is not needed", "%s on the file system of %s", metered.Human(int64(free)), dir)
		}
	}
}

// existing is dir, or the nearest directory above it that exists.
func existing(dir string) string {
	for {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// barrier measures a sync of the store's file system.
func (c *checkup) barrier() {
	const check = "durable writes"
	dir := existing(c.config.Store)
	f, err := os.Open(dir)
	if err == nil {
		defer f.Close()
		started := time.Now()
		if err = unix.Syncfs(int(f.Fd())); err == nil {
			c.ok(check, "syncfs of %s took %v", dir, time.Since(started).Round(time.Millisecond))
			return
		}
	}
	c.bad(statusFail, check, "check the disk and its file system", "syncfs of %s: %v", dir, err)
}

// clock compares the time with that of this program's file.
func (c *checkup) clock() {
	const check = "clock"
	now := time.Now()
	made, before, err := hold.BeforeProgram(now)
	switch {
	case err != nil:
		c.bad(statusWarn, check, correctIt, "%v", err)
	case before:
		c.bad(statusWarn, check, "set the clock, or have it set over the network: checking servers' certificates needs it",
			"%s, before this program was made (%s)", when(now), when(made))
	default:
		c.ok(check, "%s UTC", when(now))
	}
}

// keys checks the keys that mender-app install and the Mender client verify signatures with.
func (c *checkup) keys() {
	c.ownKeys()
	const check = "Mender's signature keys"
	if name, _ := device.MenderClient(); name == "" {
		return
	}
	keys, err := c.config.MenderKeys()
	if err == nil && len(keys) == 0 {
		c.bad(statusWarn, check, "set ArtifactVerifyKey in "+c.config.MenderConf, "none: the Mender client installs anything")
		return
	}
	if err == nil {
		_, err = device.ReadKeys(keys)
	}
	if err != nil {
		c.bad(statusFail, check, "put the key there, or correct the setting", "%v", err)
		return
	}
	c.ok(check, "%d", len(keys))
}

func (c *checkup) ownKeys() {
	const check = "signature keys"
	s := c.config.Signatures
	if s.Err != nil {
		c.bad(statusFail, check, "correct the setting", "%v", s.Err)
		return
	}
	if len(s.Keys) == 0 {
		do := "set artifact_verify_key in mender-app.conf, or ArtifactVerifyKey in mender.conf"
		if s.AllowUnsigned {
			c.bad(statusWarn, check, do, "none, and allow_unsigned is set: every artifact is trusted")
		} else {
			c.bad(statusWarn, check, do, "none: mender-app install asks for --unsigned")
		}
		return
	}
	keys, err := s.Read(s.Keys)
	if err != nil {
		c.bad(statusFail, check, "put the key there, or correct the setting", "%v", err)
		return
	}
	var revoked []string
	for _, k := range keys {
		if k.Revoked {
			revoked = append(revoked, k.File)
		}
	}
	if len(revoked) > 0 {
		c.bad(statusWarn, check, "name its successor in the configuration, which an update of the system brings", "%d, of which %s is revoked", len(keys), strings.Join(revoked, ", "))
		return
	}
	c.ok(check, "%d", len(keys))
}
