package bed

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Engine is a Docker engine that a Device can run.
type Engine struct {
	Name string
	// Suite is the Debian suite whose tree holds the engine; testdata/engines/setup
	// makes it. "" is this machine's dockerd.
	Suite string
	// Containerd: images are in containerd's store, not in the classic one.
	Containerd bool
	// Podman: the engine is Podman, which offers Docker's API at Docker's socket.
	Podman bool
	// Rootless: a user without root rights runs it.
	Rootless bool
}

// Podman is not a Docker engine, and so not part of the matrix.
var (
	Podman         = Engine{Name: "podman", Suite: "podman", Podman: true}
	RootlessPodman = Engine{Name: "podman-rootless", Suite: "podman", Podman: true, Rootless: true}
)

// podmanService runs Podman in place of dockerd. Podman does not support control
// groups of versions 1 and 2 mixed, and gets none here. $1 is its data root, and $2
// the user, who may not be root.
const podmanService = `
	umount -l /sys/fs/cgroup/unified 2>/dev/null || true
	mkdir -p /etc/containers
	# As on a machine of its own: networks outlast a power cut, and locks in memory do not.
	printf '[containers]\ncgroups = "disabled"\n[network]\nnetwork_config_dir = "%s/networks"\n' "$1" >/etc/containers/containers.conf
	mount -t tmpfs -o mode=1777 tmpfs /dev/shm
	if [ "$2" = root ]; then
		# Podman itself starts nothing at boot: this is what podman-restart.service does.
		podman --root "$1" --cgroup-manager cgroupfs start --all --filter restart-policy=always || true
		exec podman --root "$1" --cgroup-manager cgroupfs system service --time 0 unix:///run/docker.sock
	fi
	# As udev has it, for the network of containers.
	mount -t tmpfs tmpfs /dev/net
	mknod -m 666 /dev/net/tun c 10 200
	useradd --create-home "$2"
	id=$(id -u "$2")
	mkdir -p "/run/user/$id"
	chown "$2" "/run/user/$id" "$1"
	chmod a+x "$(dirname "$1")"
	ln -s "/run/user/$id/docker.sock" /run/docker.sock
	cd /
	exec su "$2" -c 'XDG_RUNTIME_DIR=/run/user/$(id -u) HOME=~ exec podman --root "$1" --cgroup-manager cgroupfs system service --time 0 "unix:///run/user/$(id -u)/docker.sock"' podman "$1"`

// Engines are the engines that the project is tested on, the oldest first. The
// first is this machine's own, which Debian 12 has as 20.10.24.
var Engines = []Engine{
	{Name: "20.10"},
	{Name: "26.1", Suite: "trixie"},
	{Name: "28", Suite: "sid"},
	{Name: "28-containerd", Suite: "sid", Containerd: true},
}

// EngineNamed returns the engine with this name: one of Engines, or Podman.
func EngineNamed(name string) (Engine, error) {
	all := append(slices.Clone(Engines), Podman, RootlessPodman)
	for _, e := range all {
		if e.Name == name {
			return e, nil
		}
	}
	return Engine{}, fmt.Errorf("no engine %q; there are %v", name, all)
}

func (e Engine) String() string { return e.Name }

// ChosenEngines are the engines of the matrix to test on: those in
// MENDER_APP_ENGINES (names between commas, or all), else the oldest and the
// newest store, which are enough for every change.
func ChosenEngines(t testing.TB) []Engine {
	t.Helper()
	names := os.Getenv("MENDER_APP_ENGINES")
	if names == "" {
		names = "20.10,28-containerd"
	}
	if names == "all" {
		return Engines
	}
	var chosen []Engine
	for name := range strings.SplitSeq(names, ",") {
		e, err := EngineNamed(strings.TrimSpace(name))
		if err != nil {
			t.Fatalf("MENDER_APP_ENGINES: %v", err)
		}
		chosen = append(chosen, e)
	}
	return chosen
}

// machineEngine is what a Device runs by default: this machine's engine, or the one
// that MENDER_APP_ENGINE names.
func machineEngine(t testing.TB) Engine {
	t.Helper()
	name := os.Getenv("MENDER_APP_ENGINE")
	if name == "" {
		return Engines[0]
	}
	e, err := EngineNamed(name)
	if err != nil {
		t.Fatalf("MENDER_APP_ENGINE: %v", err)
	}
	return e
}

// RequireEngine returns the engine that a Device of Start runs. If this machine does
// not have it, the test is skipped (in CI: fails).
func RequireEngine(t testing.TB) Engine {
	t.Helper()
	e := machineEngine(t)
	e.Require(t)
	return e
}

// Require skips the test if this machine does not have the engine. In CI it fails it.
func (e Engine) Require(t testing.TB) {
	t.Helper()
	need(t, e.missing())
}

// Tree is the directory that holds the engine and what it needs; "" if it is
// this machine's.
func (e Engine) Tree() (string, error) {
	if e.Suite == "" {
		return "", nil
	}
	return EngineTree(e.Suite)
}

// EngineTree is where testdata/engines/setup puts the tree of this name. It may not
// exist. Devices have it at the same path.
func EngineTree(name string) (string, error) {
	trees, err := engineTrees()
	return filepath.Join(trees, name), err
}

// engineTrees is where testdata/engines/setup puts the trees.
func engineTrees() (string, error) {
	cache, err := os.UserCacheDir()
	return filepath.Join(cache, "mender-app/engines"), err
}

// missing names what this machine lacks to run the engine, or returns "".
func (e Engine) missing() string {
	tree, err := e.Tree()
	if err != nil {
		return err.Error()
	}
	if tree == "" {
		return ""
	}
	if _, err := os.Stat(tree); err != nil {
		return "the engine of Debian " + e.Suite + ""
	}
	return ""
}

// RestartCommand is the path in the device of a command that restarts the engine, as an
// init system's command does. It asks for that, and waits until RestartIfWanted has done
// it.
const RestartCommand = "/run/restart-engine"

const restartWanted = "/run/restart-wanted"

const restartScript = "#!/bin/sh\ntouch " + restartWanted + "\nwhile [ -e " + restartWanted + " ]; do sleep 0.1; done\n"

// AddRestartCommand puts RestartCommand into the device.
func (d *Device) AddRestartCommand() error {
	return os.WriteFile(d.Path(RestartCommand), []byte(restartScript), 0o755)
}

// RestartIfWanted restarts the engine if RestartCommand waits for it.
func (d *Device) RestartIfWanted() (wanted bool, err error) {
	file := d.Path(restartWanted)
	if _, err := os.Stat(file); err != nil {
		return false, nil
	}
	return true, errors.Join(d.StopEngine(), d.StartEngine(), os.Remove(file))
}

//go:embed engine.sh
var engineScript string

// StartWith is Start with a chosen engine.
func StartWith(t testing.TB, e Engine) *Device {
	t.Helper()
	need(t, e.missing())
	d := start(t)
	d.Engine = e
	if err := d.StartEngine(); err != nil {
		t.Fatal(err)
	}
	return d
}
