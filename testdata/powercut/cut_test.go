package powercut

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
)

// TestPowerCuts cuts the power of a device during an operation, and right after the
// operation reported success. Every second cut is under the Mender client in C++, if this
// machine has it. MENDER_APP_CUTS is the number of cuts, MENDER_APP_SEED
// is the seed, MENDER_APP_CUT is the number of the only cut to make, and MENDER_APP_STORY
// is the scenario to cut in.
func TestPowerCuts(t *testing.T) {
	if testing.Short() {
		t.Skip("cuts real disks; left out of -short")
	}
	prepared(t)
	seed := number(t, "MENDER_APP_SEED", time.Now().UnixNano()%1e6)
	cuts := number(t, "MENDER_APP_CUTS", 10)
	if faults() {
		cuts = number(t, "MENDER_APP_CUTS", 120)
	}
	only := number(t, "MENDER_APP_CUT", -1)
	t.Logf("MENDER_APP_SEED=%d", seed)
	noCpp := bed.HasCppMender()
	if noCpp != nil {
		t.Logf("every cut is under the client in Go: %v", noCpp)
	}
	var tally tally
	t.Run("cuts", func(t *testing.T) {
		for k := range int(cuts) {
			if only >= 0 && int(only) != k {
				continue
			}
			p := drawn(seed, k)
			if story := os.Getenv("MENDER_APP_STORY"); story != "" && story != p.name {
				continue
			}
			t.Run(fmt.Sprint(k), func(t *testing.T) {
				t.Parallel()
				p.cpp = p.cpp && noCpp == nil
				start := time.Now()
				what, err := one(p)
				t.Logf("%s: %s (%.1f s)", p, what, time.Since(start).Seconds())
				tally.add(p, what, err)
				require.NoError(t, err, "MENDER_APP_SEED=%d MENDER_APP_CUT=%d: %s", seed, k, p)
			})
		}
	})
	database := ""
	if work.ledger != "" {
		database = ", " + work.ledger
	}
	t.Logf("figures: power cuts, Docker %s%s, MENDER_APP_SEED=%d: %s", work.engine, database, seed, &tally)
}

// one makes a cut and returns a description of it. The error says how promise 1 was
// broken.
func one(p plan) (what string, err error) {
	image, records := work.empty, map[string]string(nil)
	if p.old != "" {
		image, records = work.installed, work.records
	}
	m, err := newMachine(image, work.catalogue)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, m.close()) }()
	m.cpp = p.cpp
	if err := m.boot(); err != nil {
		return "", err
	}
	rows := 0
	if work.ledger != "" && p.old != "" {
		if rows, err = ledgerRows(m.Device, p.old); err != nil {
			return "", err
		}
	}
	at, done, err := m.interrupted(p)
	if err != nil {
		return "", err
	}
	what = fmt.Sprintf("step %d", at)
	if done {
		what = fmt.Sprintf("after step %d", at)
	}
	if err := m.cut(p.mode, p.seed); err != nil {
		return what, err
	}
	stat, err := m.disk.ask("stat")
	if err != nil {
		return what, err
	}
	what += " " + stat
	m.losesNetworks = p.networks
	if err := m.boot(); err != nil {
		return what, fmt.Errorf("the device does not start again: %w", err)
	}
	if p.networks {
		what += ", networks lost"
		// The engine starts nothing then. At boot, mender-app-resume.service does.
		if _, err := m.product("resume"); err != nil {
			return what, err
		}
	}
	ended, err := m.goOn(p, at, done, records)
	if err == nil && ended != p.fresh {
		err = m.next(p, records)
	}
	if err == nil && work.ledger != "" {
		now, lerr := ledgerRows(m.Device, p.fresh)
		if err = lerr; err == nil && now < rows {
			err = fmt.Errorf("the ledger has %d rows, and had %d before the update", now, rows)
		}
		what += fmt.Sprintf(", ledger %d rows, then %d", rows, now)
	}
	if err == nil && p.name == setsOverride {
		var has bool
		if has, err = overridden(m.Device); err == nil && !has && (done || p.way == ways[0]) {
			err = errors.New("the override was lost")
		}
	}
	if m.restarts > 0 {
		what += ", " + restarted
	}
	if m.refusals > 0 {
		what += ", " + refused
	}
	return what, err
}

// interrupted runs the scenario until the power is cut. It returns the step of the
// cut; done says that the step had already ended.
func (m *machine) interrupted(p plan) (at int, done bool, err error) {
	for at, s := range p.steps {
		if at == p.from && (p.kind == "write" || p.kind == "flush") {
			if _, err := m.disk.ask("arm %s %d %s %d", p.kind, p.n, p.mode, p.seed); err != nil {
				return at, false, err
			}
		}
		var after time.Duration
		if at == p.from && p.kind == "moment" {
			after = time.Duration(p.n) * time.Millisecond
		}
		var stop *point
		if p.kind == "point" && int64(at) == p.n {
			stop = &p.point
		}
		said, ok, off, err := m.until(p, s, after, stop)
		switch {
		case err != nil:
			return at, false, err
		case off:
			return at, false, nil
		case ok == s.fails():
			return at, false, fmt.Errorf("mender %s, before any cut: %s", s.command, said)
		case (p.kind == "success" || stop != nil) && int64(at) == p.n:
			return at, true, nil
		}
	}
	return len(p.steps) - 1, true, nil
}

// until runs a command of the client until it ends or until the disk loses its
// power. The disk loses its power at an armed write or flush, after a time, or when
// the command waits at stop.
func (m *machine) until(p plan, s step, after time.Duration, stop *point) (said string, succeeded, off bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	c := m.MenderCommand(ctx, m.arguments(s)...)
	if s.own() {
		c = m.Command(ctx, "mender-app", m.arguments(s)...)
	}
	if stop != nil {
		name := stop.name
		if m.cpp || s.own() {
			name = strings.Replace(name, "Download/", "DownloadWithFileSizes/", 1)
		}
		c.Env = append(c.Env, "MENDER_APP_FAULT_TRACE=/run/trace", fmt.Sprintf("MENDER_APP_FAULT=%s:%d:hang", name, stop.nth))
	}
	var out []byte
	done := make(chan error, 1)
	go func() {
		var err error
		out, err = c.CombinedOutput()
		done <- err
	}()
	var moment <-chan time.Time
	if after > 0 {
		moment = time.After(after)
	}
	for tick := time.NewTicker(pace); ; {
		select {
		case err := <-done:
			tick.Stop()
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				return "", false, false, err
			}
			off, offErr := m.disk.off()
			return string(out), err == nil, off, offErr
		case <-moment:
			if _, err := m.disk.ask("cut %s %d", p.mode, p.seed); err != nil {
				return "", false, false, err
			}
		case <-tick.C:
			if stop != nil && m.passed(*stop) {
				if _, err := m.disk.ask("cut %s %d", p.mode, p.seed); err != nil {
					return "", false, false, err
				}
			}
			off, err := m.disk.off()
			if err != nil || off {
				tick.Stop()
				err = errors.Join(err, m.Device.Kill())
				<-done
				return string(out), false, true, err
			}
		}
	}
}

// passed reports whether a command has reached a point, where it waits.
func (m *machine) passed(p point) bool {
	trace, err := os.ReadFile(m.Path("/run/trace"))
	if err != nil {
		return false
	}
	_, name, _ := strings.Cut(p.name, "/")
	passed := 0
	for line := range strings.Lines(string(trace)) {
		if strings.TrimSpace(line) == name {
			passed++
		}
	}
	return passed >= p.all
}

func (m *machine) arguments(s step) []string {
	file := ""
	if s.installs() {
		file = m.Share(filepath.Base(m.catalogue.releases[s.release].file))
	}
	switch s.command {
	case "install":
		return []string{"install", file}
	case "mender-app install": // --force: the device has a Mender client
		return []string{"install", "--force", "--unsigned", file}
	case "mender-app abort":
		return []string{"abort", app}
	case "mender-app overrides":
		return []string{"overrides", "set", app, m.Share(overrideFile)}
	}
	return []string{s.command}
}

// again ends the message of a refusal that the next attempt overcomes: after a power
// cut, a load found damaged data that it needed, and the data was deleted. The old
// release keeps running.
const again = "install the artifact again"

// holds is in the message of an update that fails because Docker holds a port for nobody
// since the power was lost, while it runs other containers. The rollback restarts the
// engine, and the next attempt succeeds. At boot, mender-app-resume.service would have
// done so before the update.
const holds = "the engine holds port"

// client runs the Mender client.
func (m *machine) client(args ...string) (bed.Result, error) {
	return m.attended(func() (bed.Result, error) { return m.Mender(args...) })
}

// product runs mender-app.
func (m *machine) product(args ...string) (bed.Result, error) {
	return m.attended(func() (bed.Result, error) { return m.Run("mender-app", args...) })
}

// command runs a step's command.
func (m *machine) command(s step) (bed.Result, error) {
	if s.own() {
		return m.product(m.arguments(s)...)
	}
	return m.client(m.arguments(s)...)
}

// mender runs a command. The error holds the command's output.
func (m *machine) mender(s step) error {
	r, err := m.command(s)
	if err == nil && r.Code > 0 && s.installs() && strings.Contains(r.Output(), "Update already in progress") {
		if r, err = m.client("resume"); err == nil {
			m.committed = strings.Contains(r.Output(), "Committed.")
			r, err = m.command(s)
		}
	}
	if err == nil && r.Code > 0 && s.own() && s.installs() && strings.Contains(r.Output(), "an update is open") {
		if r, err = m.product("resume"); err == nil {
			r, err = m.command(s)
		}
	}
	if err == nil && r.Code > 0 && s.installs() && (strings.Contains(r.Output(), again) || strings.Contains(r.Output(), holds)) {
		m.refusals++
		r, err = m.command(s)
	}
	if err == nil && r.Code != 0 {
		err = errors.New(r.Output())
	}
	if err != nil {
		return fmt.Errorf("mender %s %s: %w", s.command, s.release, err)
	}
	return nil
}

// notCommitted is what the client in C++ says of an update that waits for its commit.
const notCommitted = "Installed, but not committed"

// goOn continues after a cut or a kill in one of the ways, asserts that the device
// ends in one of the allowed releases, and returns its version.
func (m *machine) goOn(p plan, at int, done bool, records map[string]string) (ended string, err error) {
	switch p.way {
	case "the client's next call":
		// The client in C++ ends by itself what it has stored.
		if m.cpp && !done {
			r, err := m.client("resume")
			if err != nil {
				return "", err
			}
			// A cut between two calls may let the client go on with the installation.
			done = strings.Contains(r.Output(), notCommitted)
			if !done && !strings.Contains(r.Output(), "No update in progress") {
				break
			}
		}
		// Repeat the command, or run the next one, and then the rest. A commit or
		// rollback that was already stored finds nothing to do.
		for n := at; n < len(p.steps); n++ {
			s := p.steps[n]
			if n == at && done {
				continue
			}
			err := m.mender(s)
			if s.fails() {
				if err == nil {
					return "", errors.New("mender installed a release that fails")
				}
				continue
			}
			if err != nil && (n > at || done || s.installs() || p.name == setsOverride) {
				return "", err
			}
		}
	case "mender-app resume":
		r, err := m.product("resume")
		if err != nil || r.Code != 0 {
			return "", fmt.Errorf("mender-app resume: %w %s", err, r.Output())
		}
		s, err := settled(m.Device, m.catalogue, records)
		if err != nil {
			return "", fmt.Errorf("after mender-app resume: %w", err)
		}
		if !slices.Contains(p.ends, s.runs) {
			return "", fmt.Errorf("after mender-app resume %q runs", s.runs)
		}
		if !s.agrees() {
			// The deployment waits for the client. The client repeats the command
			// that ends a deployment it has stored, or else does nothing.
			last := p.steps[len(p.steps)-1]
			if m.cpp && !done && !last.own() {
				last.command = "resume"
			}
			if !last.installs() {
				r, _ := m.command(last)
				if m.cpp && strings.Contains(r.Output(), notCommitted) {
					_, _ = m.client(p.steps[len(p.steps)-1].command)
				}
			}
			if s, err = settled(m.Device, m.catalogue, records); err != nil {
				return "", fmt.Errorf("after mender-app resume and mender %s: %w", last.command, err)
			}
			if s.phase != "" && !m.cpp {
				// The client has forgotten the deployment. Its next installation
				// settles it.
				return p.fresh, m.next(p, records)
			}
		}
	case "a fresh installation":
		return p.fresh, m.next(p, records)
	}
	return becomes(m.Device, m.catalogue, records, p.ends...)
}

// next installs and commits one more release.
func (m *machine) next(p plan, records map[string]string) error {
	for _, s := range []step{{"install", p.fresh}, {"commit", ""}} {
		if err := m.mender(s); err != nil {
			return fmt.Errorf("the next installation: %w", err)
		}
	}
	if _, err := becomes(m.Device, m.catalogue, records, p.fresh); err != nil {
		return fmt.Errorf("after the next installation: %w", err)
	}
	return nil
}
