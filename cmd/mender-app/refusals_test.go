package main

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/cmd/internal/devicetest"
)

// wholeTree is everything that a device has in its directory, but for what only says that a
// command was refused: the history of refused deployments, and lock files with the
// directories that they are made in.
func wholeTree(t *testing.T, d *devicetest.Device) map[string]string {
	t.Helper()
	tree := map[string]string{}
	require.NoError(t, filepath.WalkDir(d.Dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(d.Dir, path)
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		switch {
		case strings.HasPrefix(rel, "store/.mender-app/history"), rel == "fake/calls", filepath.Base(rel) == "lock",
			e.IsDir() && filepath.Dir(rel) == "store/.mender-app":
		case e.IsDir():
			tree[rel] = info.Mode().String()
		case e.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			tree[rel] = "link " + target
			return err
		case e.Type().IsRegular():
			text, err := os.ReadFile(path)
			sum := sha256.Sum256(text)
			tree[rel] = info.Mode().String() + string(sum[:])
			return err
		}
		return nil
	}))
	return tree
}

// TestRefusalsChangeNothing: a command of the operator that exits with 9 leaves the device as it
// was, file by file.
func TestRefusalsChangeNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("calls many programs; left out of -short")
	}
	d := newDevice(t)
	features := "stream stage components verify sync repair engine secrets status logs/1 check/1 services/1 overrides/1 values/1 data/1\n"
	require.NoError(t, os.WriteFile(filepath.Join(d.Dir, "fake/features"), []byte(features), 0o644))
	write := func(file string, a devicetest.Artifact) {
		t.Helper()
		a.Images = []string{"web:1=web-" + a.Name}
		require.NoError(t, a.Write(filepath.Join(d.Dir, file)))
	}
	write("till.mender", devicetest.Artifact{Name: "till-1", App: "till", Compose: "till", Type: "binary"})
	write("shop.mender", devicetest.Artifact{Name: "shop-1", App: "shop", Compose: "one", Type: "binary"})
	write("elsewhere.mender", devicetest.Artifact{Name: "shop-3", App: "shop", Compose: "three", DeviceType: "another"})
	write("platform.mender", devicetest.Artifact{Name: "shop-3", App: "shop", Compose: "three", Platform: "linux/riscv64"})
	write("needs.mender", devicetest.Artifact{Name: "shop-3", App: "shop", Compose: "three", Policy: "[[depends]]\nname = \"db\"\n"})
	write("provides.mender", devicetest.Artifact{Name: "shop-3", App: "shop", Compose: "three", Depends: map[string][]string{"rootfs-image.version": {"9"}}})
	write("submodule.mender", devicetest.Artifact{Name: "shop-3", App: "shop", Compose: "three", Orchestrator: "absent"})

	// A backup of another device, where the type is another one.
	mustRun(t, d, "install", "--commit", "shop.mender")
	mustRun(t, d, "install", "--commit", "till.mender")
	write("kiosk.mender", devicetest.Artifact{Name: "kiosk-1", App: "kiosk", Compose: "kiosk", Type: "binary", Policy: "[[depends]]\nname = \"till\"\n"})
	mustRun(t, d, "install", "--commit", "kiosk.mender")
	mustRun(t, d, "values", "set", "LANGUAGE=evil", "PATH_X=/evil")
	mustRun(t, d, "values", "set", "--app", "shop", "SHOPV=1")
	mustRun(t, d, "backup", "all.backup")
	mustRun(t, d, "values", "unset", "--app", "shop", "SHOPV")
	mustRun(t, d, "purge", "--force", "shop")
	for _, name := range []string{"LANGUAGE", "PATH_X"} {
		mustRun(t, d, "values", "unset", name)
	}
	mustRun(t, d, "stop", "till")
	types := filepath.Join(d.Dir, "device_type")
	conf := filepath.Join(d.Dir, "app.conf")
	settings, err := os.ReadFile(conf)
	require.NoError(t, err)
	strict := strings.ReplaceAll(string(settings), "allow_unsigned = true\n", "")

	for _, c := range []struct {
		about, deviceType, conf string
		args                    []string
	}{
		{"the type of the device", "", "", []string{"install", "elsewhere.mender"}},
		{"the type of the device", "", "", []string{"stage", "elsewhere.mender"}},
		{"the type of the device", "", "", []string{"check", "elsewhere.mender"}},
		{"the platform", "", "", []string{"install", "platform.mender"}},
		{"an application that is missing", "", "", []string{"install", "needs.mender"}},
		{"what is not provided", "", "", []string{"install", "provides.mender"}},
		{"the platform", "", "", []string{"check", "platform.mender"}},
		{"an application that is missing", "", "", []string{"check", "needs.mender"}},
		{"what is not provided", "", "", []string{"check", "provides.mender"}},
		{"an application that is needed", "", "", []string{"purge", "till"}},
		{"an application that is needed, with its data", "", "", []string{"purge", "--data", "till"}},
		{"the signature", "", strict, []string{"install", "v1.mender"}},
		{"the signature", "", strict, []string{"stage", "v1.mender"}},
		{"the signature", "", strict, []string{"restore", "all.backup", "shop"}},
		{"an installed application", "", "", []string{"restore", "all.backup"}},
		{"a backup of another type of device", "another", "", []string{"restore", "all.backup", "shop"}},
		{"a backup of another type of device, with values", "another", "", []string{"restore", "--values", "all.backup", "shop"}},
	} {
		require.NoError(t, os.WriteFile(conf, settings, 0o644))
		if c.conf != "" {
			require.NoError(t, os.WriteFile(conf, []byte(c.conf), 0o644))
		}
		require.NoError(t, os.WriteFile(types, []byte("device_type="+cmp.Or(c.deviceType, "board")+"\n"), 0o644))
		before := wholeTree(t, d)
		_, said, err := d.Run(nil, "mender-app", c.args...)
		var exit *exec.ExitError
		require.True(t, errors.As(err, &exit), "%s: %v: %s", c.about, c.args, said)
		require.Equal(t, device.ExitRefused, exit.ExitCode(), "%s: %v: %s", c.about, c.args, said)
		require.Equal(t, before, wholeTree(t, d), "%s: %v: %s", c.about, c.args, said)
	}
}
