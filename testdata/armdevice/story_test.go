package armdevice

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
)

const (
	// MachinesEnv lists the machines to test on. Without it no test runs, because an
	// emulated device takes minutes.
	MachinesEnv = "MENDER_APP_ARM_DEVICES"
	// FromEnv names the step to start with. The run uses the device as an earlier
	// run saved it before that step.
	FromEnv = "MENDER_APP_ARM_FROM"
)

// steps are the story. Before each, the device is saved under its name.
var steps = []struct {
	name string
	tell func(*story)
}{
	{"install", func(s *story) {
		s.keep("install 1", full, s.update("full-1"))
		s.whole("1")
	}},
	{"update", func(s *story) {
		s.keep("update to 2", delta, s.update("delta-2"))
		s.whole("2")
	}},
	{"refusals", (*story).refusals},
	{"failing", func(s *story) {
		s.keep("failing 3, back to 2 by itself", delta, s.failing("delta-3"))
	}},
	{"rollback", func(s *story) {
		s.foretold("4", delta, "2", s.cost("update to 2", delta))
		s.whole("2")
	}},
	{"cuts", (*story).cuts},
	{"after", func(s *story) { // the power cuts, and without a clock
		s.keep("update to 4", delta, s.update("delta-4"))
		s.whole("4")
	}},
	{"full", func(s *story) { // the same with full images
		require.NoError(s, s.vm.Load("update"))
		s.keep("update to 2", full, s.update("full-2"))
		s.at("2")
		s.keep("failing 3, back to 2 by itself", full, s.failing("full-3"))
		s.foretold("4", full, "2", s.cost("update to 2", full))
		s.keep("update to 4", full, s.update("full-4"))
		s.whole("4")
	}},
	{"sandbox", func(s *story) {
		require.NoError(s, s.vm.Load("update"))
		s.sandbox()
	}},
	{"view", func(s *story) {
		require.NoError(s, s.vm.Load("update"))
		s.view()
	}},
}

// story is one device with its measurements.
type story struct {
	*testing.T
	vm      *VM
	machine Machine
	dir     string            // everything that a later run may go on with
	files   map[string]string // artifacts on this machine, by name
	figures []figure
}

// TestOnTheDevice tests the product on a small device with the real Mender client:
// an installation, updates, a failing update, rollbacks, and power cuts. With -short
// it tests only an installation, an update and a rollback.
func TestOnTheDevice(t *testing.T) {
	names := strings.Fields(os.Getenv(MachinesEnv))
	if len(names) == 0 {
		t.Skip("takes minutes: make test-arm")
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			m, ok := Machines[name]
			require.True(t, ok, "no such machine")
			s := &story{T: t, machine: m, files: map[string]string{}, dir: filepath.Join(bed.Repository(), "build", "arm-"+name)}
			s.begin(os.Getenv(FromEnv))
			defer s.vm.Cut()
			if testing.Short() {
				s.short()
				return
			}
			s.tell(os.Getenv(FromEnv))
		})
	}
}

// begin makes the artifacts and the device, or opens those of an earlier run, and
// installs the product on the device.
func (s *story) begin(from string) {
	for _, known := range s.releases() {
		s.files[known] = filepath.Join(s.dir, known+".mender")
	}
	start := time.Now()
	var err error
	if from == "" {
		require.NoError(s, os.RemoveAll(s.dir))
		require.NoError(s, os.MkdirAll(s.dir, 0o755))
		s.artifacts()
		s.took("artifacts made", start)
		start = time.Now()
		s.vm, err = New(s.machine, s.dir)
		from = Booted
	} else {
		s.remember()
		s.vm, err = Open(s.machine, s.dir)
	}
	require.NoError(s, err)
	s.took("device made", start)
	s.Cleanup(func() {
		if s.Failed() && s.vm.qemu != nil {
			r, err := s.vm.Try("tail -n 20 /var/log/dockerd.log; dmesg | tail -n 20; docker ps -a; free -k; df -k /")
			s.Logf("the device at the end: %v\n%s", err, r.Output)
		}
	})

	start = time.Now()
	require.NoError(s, s.vm.Start(from))
	s.took("started from the snapshot", start)
	programs, err := bed.ProgramsFor(s.machine.Programs)
	require.NoError(s, err)
	tree := s.TempDir()
	s.host("make", "-s", "-C", bed.Repository(), "install", "FROM="+programs, "DESTDIR="+tree)
	archive := filepath.Join(s.TempDir(), "programs.tar")
	// The generator runs on build hosts, and k8s on devices with Kubernetes.
	s.host("tar", "-C", tree, "--owner=0", "--group=0", "--exclude=app-gen*", "--exclude=./usr/share/mender/app-modules/v1/k8s", "-cf", archive, ".")
	require.NoError(s, s.vm.Put(archive, "/root/programs.tar"))
	s.run("tar -C / -xf /root/programs.tar && rm /root/programs.tar && mender-app --version && " + updateModule + " --version && " + subModule + " --version")
	if from != Booted {
		return
	}
	for name, file := range s.files {
		require.NoError(s, s.vm.Put(file, "/root/"+name+".mender"))
	}
}

func (s *story) took(what string, start time.Time) {
	s.Logf("%s: %v", what, time.Since(start).Round(time.Second))
}

// tell runs the steps, from the named one on if from is set.
func (s *story) tell(from string) {
	found := from == ""
	for _, step := range steps {
		if found = found || step.name == from; !found {
			continue
		}
		require.NoError(s, s.vm.Save(step.name))
		start := time.Now()
		step.tell(s)
		s.took("step "+step.name, start)
	}
	require.True(s, found, "no step %q", from)
	s.report()
}

// short runs the smallest test of the product: an installation, an update and a
// rollback.
func (s *story) short() {
	start := time.Now()
	s.update("full-1")
	s.at("1")
	s.undo("2", delta, "1")
	s.whole("1")
	s.took("installed, updated and taken back", start)
}
