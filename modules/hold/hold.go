// Package hold says whether updates have to wait: because something else works on
// the machine, such as an update of its operating system, or because an application
// does not want to be updated now. It must not know what is being held up.
package hold

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact/clip"
	"github.com/mender-app/mender-app/modules"
	"github.com/mender-app/mender-app/store"
)

// ErrHeld: something has to wait. Nothing was changed, and it may succeed later.
var ErrHeld = errors.New("held")

// Bounds of a hold.
const (
	MaxReason   = 200 // bytes
	DefaultTime = 24 * time.Hour
	MaxTime     = 366 * 24 * time.Hour
)

// Clock says when it is.
type Clock struct {
	Now    time.Time
	BootID string        // of this boot of the machine
	Uptime time.Duration // of this boot
}

// Uptime returns how long the machine has been up, with the time that it was suspended.
func Uptime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// BeforeProgram reports whether a time is more than a day before that of this program's
// file, which cannot have been installed in the future. It returns the time of the file.
func BeforeProgram(t time.Time) (made time.Time, before bool, err error) {
	self, err := os.Executable()
	if err != nil {
		return made, false, err
	}
	fi, err := os.Stat(self)
	if err != nil {
		return made, false, err
	}
	return fi.ModTime(), t.Before(fi.ModTime().Add(-24 * time.Hour)), nil
}

// ClockSet reports whether the machine knows what time it is: somebody has set its clock
// since it started, a time server or the kernel from a clock with a battery, and it is not
// before the time of this program's file.
func ClockSet() bool {
	if _, before, err := BeforeProgram(time.Now()); err == nil && before {
		return false
	}
	var t unix.Timex
	if state, err := unix.Adjtimex(&t); err == nil && state != unix.TIME_ERROR {
		return true
	}
	// The kernel says which clock it took the time from when it started (sysfs-class-rtc).
	clocks, _ := filepath.Glob("/sys/class/rtc/*/hctosys")
	return slices.ContainsFunc(clocks, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.TrimSpace(string(text)) == "1"
	})
}

// over reports whether the time of a hold is over. A clock that is before its
// beginning is wrong, and then the hold goes on.
func over(h *store.Hold, c Clock) bool {
	length := time.Duration(h.Seconds) * time.Second
	if h.BootID != "" && h.BootID == c.BootID {
		return c.Uptime-time.Duration(h.Uptime)*time.Second >= length
	}
	return c.Now.Sub(h.Since) >= length
}

// Current returns the hold that is in force; nil without one. A damaged file counts
// as a hold, because nobody knows how long it was to last.
func Current(s *store.Store, c Clock) (*store.Hold, error) {
	h, err := s.Hold()
	var corrupt *store.CorruptError
	if errors.As(err, &corrupt) {
		return &store.Hold{Reason: corrupt.Error(), Since: c.Now, Seconds: int64(DefaultTime / time.Second)}, nil
	}
	if err != nil || h == nil || over(h, c) {
		return nil, err
	}
	return h, nil
}

// Check returns an ErrHeld if a hold is in force.
func Check(s *store.Store, c Clock) error {
	h, err := Current(s, c)
	if err != nil || h == nil {
		return err
	}
	return fmt.Errorf("updates are %w: %s, since %s, until %s: try again later, or run mender-app hold release",
		ErrHeld, Who(h), Stamp(h.Since), Stamp(Until(h)))
}

// Who says why there is a hold, and who asked for it.
func Who(h *store.Hold) string {
	who := h.Reason
	if a := h.Asked; a != nil && a.User != "" {
		who += fmt.Sprintf(" (%s)", a.User)
	}
	return clip.Line(who, 2*MaxReason)
}

// Until is when a hold ends, by the clock of the machine.
func Until(h *store.Hold) time.Time { return h.Since.Add(time.Duration(h.Seconds) * time.Second) }

// Report describes a hold to an operator.
type Report struct {
	Held   bool         `json:"held"`
	Reason string       `json:"reason,omitempty"`
	Asked  *store.Asked `json:"asked,omitempty"`
	Since  time.Time    `json:"since,omitzero"`
	Until  time.Time    `json:"until,omitzero"`
}

// ReportOf reports a hold; nil is none.
func ReportOf(h *store.Hold) Report {
	if h == nil {
		return Report{}
	}
	return Report{Held: true, Reason: h.Reason, Asked: h.Asked, Since: h.Since, Until: Until(h)}
}

// Stamp is a time for a sentence.
func Stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }

// lockTime is how long to wait for another call on the store.
const lockTime = 30 * time.Second

// CheckReason returns an error if a text cannot be the reason of a hold.
func CheckReason(reason string) error {
	if reason == "" || len(reason) > MaxReason || strings.ContainsFunc(reason, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("a reason is one line of 1 to %d bytes", MaxReason)
	}
	return nil
}

// Take begins a hold, or begins it anew if one of the same reason is in force. The
// error is an ErrHeld if another one is in force, or an application's update is open.
func Take(ctx context.Context, s *store.Store, c Clock, h store.Hold) (*store.Hold, error) {
	if err := CheckReason(h.Reason); err != nil {
		return nil, err
	}
	h.Since, h.BootID, h.Uptime = c.Now, c.BootID, int64(c.Uptime/time.Second)
	return &h, locked(ctx, s, "hold", func() error {
		if now, err := Current(s, c); err != nil {
			return err
		} else if now != nil && now.Reason != h.Reason {
			return Check(s, c)
		}
		if err := checkOpen(s); err != nil {
			return err
		}
		return s.SetHold(h)
	})
}

// checkOpen returns an ErrHeld if an application's update is open.
func checkOpen(s *store.Store) error {
	names, err := s.Apps()
	if err != nil {
		return err
	}
	for _, name := range names {
		if s.Legacy(name) {
			continue
		}
		a, err := s.App(name)
		if err != nil {
			return err // an update may be open
		}
		if d := a.Deployment; d != nil {
			return fmt.Errorf("the machine is %w by an update of %s: %s is %s: commit it or roll it back first", ErrHeld, name, d.ArtifactName, d.Phase)
		}
	}
	return nil
}

// Give ends a hold, with a reason only one of this reason. It reports whether it ended
// one, and returns the one that stays.
func Give(ctx context.Context, s *store.Store, c Clock, reason string) (given bool, left *store.Hold, err error) {
	err = locked(ctx, s, "unhold", func() error {
		now, err := Current(s, c)
		if err != nil {
			return err
		}
		if now != nil && reason != "" && now.Reason != reason {
			left = now
			return nil
		}
		given = now != nil
		return s.DropHold()
	})
	return given, left, err
}

func locked(ctx context.Context, s *store.Store, who string, work func() error) error {
	wait, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	release, err := s.Lock(wait, who)
	if err != nil {
		return err
	}
	defer release()
	if err := s.Prepare(); err != nil {
		return err
	}
	return work()
}

// LockName is the file that an application makes in its directory to say "not now".
const LockName = "updates.lock"

// CheckApp returns an ErrHeld if an application says that it must not be updated now:
// if the file LockName is in its directory below dir. The application writes there,
// and may put anything in the file's place.
func CheckApp(dir, app string) error {
	if dir == "" {
		return nil
	}
	path := filepath.Join(dir, app, LockName)
	if _, err := os.Lstat(path); err != nil {
		return nil
	}
	why := ""
	text, err := modules.ReadRegular(path, unix.O_NOFOLLOW|unix.O_NONBLOCK, MaxReason)
	if line := clip.Line(string(text), MaxReason); err == nil && line != "" {
		why = ": " + line
	}
	return fmt.Errorf("updates of %s are %w by the application (%s)%s: try again later, or use mender-app install --force", app, ErrHeld, path, why)
}
