package bed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mender-app/mender-app/testdata/peers"
)

// menderCommand is the Mender client's command: the Go client's, or the C++ client's.
func (d *Device) menderCommand() []string {
	if _, err := exec.LookPath("mender"); err != nil || d.cpp {
		return []string{"mender-update"}
	}
	return []string{"mender", "--no-syslog"}
}

// cppMender is the C++ Mender client (package peers). The error says that it is missing or
// lacks libraries that it needs.
var cppMender = sync.OnceValues(func() (program []byte, err error) {
	path, err := peers.Find("mender-update")
	if err != nil {
		return nil, fmt.Errorf("the C++ Mender client: %w", err)
	}
	if text, err := exec.Command(path, "--version").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("the C++ Mender client: %s --version: %w %s", path, err, text)
	}
	return os.ReadFile(path)
})

// HasCppMender reports whether this machine has the C++ Mender client, or what is missing.
func HasCppMender() error {
	_, err := cppMender()
	return err
}

// UseCppMender replaces the device's Mender client by the C++ one. It skips the test if
// this machine does not have it.
func (d *Device) UseCppMender(t testing.TB) {
	t.Helper()
	if err := HasCppMender(); err != nil {
		t.Skip(err)
	}
	if err := d.InstallCppMender(); err != nil {
		t.Fatal(err)
	}
}

// InstallCppMender replaces the device's Mender client by the C++ one.
func (d *Device) InstallCppMender() error {
	program, err := cppMender()
	if err != nil {
		return err
	}
	if err := os.WriteFile(d.Path("/usr/bin/mender-update"), program, 0o755); err != nil {
		return err
	}
	r, err := d.Run("bash", "-c", `rm -f "$(command -v mender)"`)
	if err == nil && r.Code != 0 {
		err = errors.New(r.Output())
	}
	d.cpp = err == nil
	return err
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
