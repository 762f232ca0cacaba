package main

import (
	"os"
	"testing"

	"github.com/mender-app/mender-app/cmd/internal/devicetest"
)

func TestMain(m *testing.M) {
	devicetest.Main(m, map[string]func(){"mender-app": main, "hold-lock": holdLock})
}

func TestScripts(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Setenv("HOME", t.TempDir())
	}
	devicetest.Run(t, "testdata/script")
}
