package cmd

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// programs are all programs, each a directory here.
var programs = []string{"app", "docker-compose", "k8s", "mender-app", "app-gen", "app-conformance"}

// buildDir is where the programs are built, once for all tests.
var buildDir string

func TestMain(m *testing.M) {
	var err error
	if buildDir, err = os.MkdirTemp("", "mender-app-cmd-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(buildDir)
	os.Exit(code)
}

var build = sync.OnceValues(func() ([]byte, error) {
	args := []string{"build", "-o", buildDir + "/"}
	for _, p := range programs {
		args = append(args, "./"+p)
	}
	return exec.Command("go", args...).CombinedOutput()
})

// built returns the path of a program.
func built(t *testing.T, program string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("builds all programs, which takes 20 s; left out of -short")
	}
	out, err := build()
	require.NoError(t, err, "%s", out)
	return filepath.Join(buildDir, program)
}

// Every program tells its version in the same form: its name and the version.
func TestVersion(t *testing.T) {
	want := ""
	for _, p := range programs {
		out, err := exec.Command(built(t, p), "--version").Output()
		require.NoError(t, err, p)
		words := regexp.MustCompile(`^(\S+) (\S+)\n$`).FindStringSubmatch(string(out))
		require.NotNil(t, words, "%s --version: %q", p, out)
		require.Equal(t, p, words[1])
		if want == "" {
			want = words[2]
		}
		require.Equal(t, want, words[2], p)
	}
}

// A released program has no trace of the variable that kills programs in tests.
func TestNoFaultsInPrograms(t *testing.T) {
	for _, p := range programs {
		text, err := os.ReadFile(built(t, p))
		require.NoError(t, err)
		require.NotContains(t, string(text), "MENDER_APP_FAULT", p)
	}
	program := filepath.Join(buildDir, "with-faults")
	out, err := exec.Command("go", "build", "-tags=faults", "-o", program, "./app").CombinedOutput()
	require.NoError(t, err, "%s", out)
	text, err := os.ReadFile(program)
	require.NoError(t, err)
	require.Contains(t, string(text), "MENDER_APP_FAULT", "programs for tests have it")
}
