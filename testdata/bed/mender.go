package bed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// menderCommand is the Mender client's command: the Go client's, or the C++ client's.
func (d *Device) menderCommand() []string {
	if _, err := exec.LookPath("mender"); err != nil || d.cpp {
		return []string{"mender-update"}
	}
	return []string{"mender", "--no-syslog"}
}

// UseCppMender replaces the device's Mender client by the C++ one from ../shared. It
// skips the test if that is missing or lacks libraries that it needs.
func (d *Device) UseCppMender(t testing.TB) {
	t.Helper()
	program := filepath.Join(Repository(), "../shared/upstream/mender-update")
	if text, err := exec.Command(program, "--version").CombinedOutput(); err != nil {
		t.Skipf("needs ../shared/upstream/mender-update, the C++ Mender client: %v %s", err, text)
	}
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	shared := d.Share("mender-update")
	if err := os.WriteFile(shared, data, 0o755); err != nil {
		t.Fatal(err)
	}
	d.MustRun(t, "bash", "-ec", `rm -f "$(command -v mender)"; install -m 755 `+shared+` /usr/bin/mender-update`)
	d.cpp = true
}

// IsCppMender reports whether the device's Mender client is the C++ one.
func (d *Device) IsCppMender() bool { return d.menderCommand()[0] == "mender-update" }

// WithoutMender removes the Mender client from the device, so that only mender-app
// can install.
func (d *Device) WithoutMender() error {
	r, err := d.Run("bash", "-c", `rm -f "$(command -v mender)" "$(command -v mender-update)"`)
	if err == nil && r.Code != 0 {
		err = errors.New(r.Output())
	}
	d.noMender = err == nil
	return err
}

// Mender runs the Mender client in the device: Mender("install", file),
// Mender("commit"), Mender("rollback").
func (d *Device) Mender(args ...string) (Result, error) {
	args = append(d.menderCommand(), args...)
	return d.Run(args[0], args[1:]...)
}

// MenderCommand is Mender's command, for one that is to be interrupted.
func (d *Device) MenderCommand(ctx context.Context, args ...string) *exec.Cmd {
	args = append(d.menderCommand(), args...)
	return d.Command(ctx, args[0], args[1:]...)
}

// Provides returns what the Mender client believes to be installed. It returns
// nothing if there is no client.
func (d *Device) Provides() (map[string]string, error) {
	if d.noMender {
		return nil, nil
	}
	r, err := d.Mender("show-provides")
	if err != nil {
		return nil, err
	}
	if r.Code != 0 {
		return nil, fmt.Errorf("show-provides: %s", r.Output())
	}
	provides := map[string]string{}
	for line := range strings.Lines(r.Stdout) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			provides[key] = value
		}
	}
	return provides, nil
}

// MustProvide asserts everything that the client reports as installed, and that it
// does not report any of it as inconsistent.
func (d *Device) MustProvide(t testing.TB, want map[string]string) {
	t.Helper()
	got, err := d.Provides()
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) { // fmt sorts maps
		t.Errorf("the client provides %v, not %v", got, want)
	}
	if name := got["artifact_name"]; strings.HasSuffix(name, "_INCONSISTENT") {
		t.Errorf("the client calls %s", name)
	}
}

// Eventually waits until ok returns true, for at most limit.
func Eventually(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}
