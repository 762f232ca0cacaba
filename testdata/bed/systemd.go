package bed

import (
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

//go:embed systemd.sh
var systemdScript string

// StartSystemd starts systemd in the device, as process 1 of a namespace in which
// later commands run too. Only the journal and what a test enables runs under it.
func (d *Device) StartSystemd(t testing.TB) {
	t.Helper()
	Require(t, "systemctl")
	if err := d.startSystemd(); err != nil {
		t.Fatal(err)
	}
}

func (d *Device) startSystemd() error {
	r, err := d.Run("bash", "-c", systemdScript, "systemd", d.Cgroup)
	if err == nil && r.Code != 0 {
		err = errors.New(r.Output())
	}
	if err != nil {
		return fmt.Errorf("start systemd: %w", err)
	}
	if d.Inside, err = strconv.Atoi(strings.TrimSpace(r.Stdout)); err != nil {
		return fmt.Errorf("start systemd: %w", err)
	}
	for range 600 {
		if r, err = d.Run("systemctl", "is-active", "basic.target"); err == nil && r.Code == 0 {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	log, _ := d.Run("tail", "-n", "20", "/run/systemd.log")
	return fmt.Errorf("systemd does not come up: %v: %s\n%s", err, r.Output(), log.Output())
}
