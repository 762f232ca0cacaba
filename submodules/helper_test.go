package submodules

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The test binary is the sub-module under test: a symbolic link to it, with
// TEST_SUBMODULE set, runs fake through the real frame.
func TestMain(m *testing.M) {
	if path := os.Getenv("TEST_CALLER"); path != "" {
		m := &Module{Name: "fake", Path: path, Config: Config{Env: []string{"TEST_SUBMODULE=" + os.Getenv("TEST_SUBMODULE")}, Log: func(string) {}}}
		_ = m.Rollout(context.Background(), Request{App: "a", Dir: "/slow"})
		os.Exit(0)
	}
	if os.Getenv("TEST_SUBMODULE") != "" {
		os.Exit(Main(fake{}, "fake", "0.1", os.Args[1:]))
	}
	os.Exit(m.Run())
}

// fake keeps what it is told in the directory TEST_SUBMODULE.
type fake struct{}

func dir() string { return os.Getenv("TEST_SUBMODULE") }

func (fake) record(verb string, r Request) error {
	r.Log, r.Stdin, r.Stdout = nil, nil, nil
	b, err := json.Marshal(struct {
		Verb    string
		Environ []string
		Request
	}{verb, os.Environ(), r})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir(), verb), b, 0o600)
}

func (f fake) ExportManifest(_ context.Context, r Request) error {
	return f.record(VerbExportManifest, r)
}

func (f fake) Save(_ context.Context, r Request) error {
	if r.Path == "-" {
		_, err := io.WriteString(r.Stdout, "content")
		return err
	}
	return f.record(VerbSave, r)
}

func (f fake) Load(_ context.Context, r Request) error {
	if r.Path == "-" {
		if r.URL == "early" {
			return Mark(errors.New("no need to read"), ErrContent)
		}
		b, err := io.ReadAll(r.Stdin)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir(), "stdin"), b, 0o600); err != nil {
			return err
		}
	}
	r.Logf("loading %s", r.URL)
	return f.record(VerbLoad, r)
}

func (f fake) List(context.Context, Request) ([]Component, error) {
	return []Component{{Type: "image", URL: "web:1", Digest: "sha256:00", AdditionalData: json.RawMessage(`{"size":1}`)}}, nil
}

func (f fake) Repair(_ context.Context, r Request) ([]string, error) {
	return []string{r.App, "other"}, f.record(VerbRepair, r)
}

func (f fake) Storage(context.Context, Request) ([]string, error) { return []string{dir()}, nil }

func (f fake) Restore(_ context.Context, r Request) error { return f.record(VerbRestore, r) }

func (f fake) Engine(context.Context, Request) (Engine, error) {
	return Engine{"docker", "28.5.2"}, nil
}

func (f fake) Delete(_ context.Context, r Request) error { return f.record(VerbDelete, r) }

// Rollout fails as the directory's name says.
func (f fake) Rollout(ctx context.Context, r Request) error {
	switch filepath.Base(r.Dir) {
	case "unhealthy":
		return Mark(errors.New("web is\nunhealthy"), ErrUnhealthy)
	case "space":
		return fmt.Errorf("write: %w", syscall.ENOSPC)
	case "slow", "stubborn":
		// A child, as docker compose would be.
		c := exec.Command("sleep", "1000")
		if err := c.Start(); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir(), "child"), fmt.Appendln(nil, os.Getpid(), c.Process.Pid), 0o600); err != nil {
			return err
		}
		if filepath.Base(r.Dir) == "stubborn" {
			_ = c.Wait()
		}
		<-ctx.Done()
		return ctx.Err()
	}
	return f.record(VerbRollout, r)
}

func (f fake) Rollback(_ context.Context, r Request) error { return f.record(VerbRollback, r) }
func (f fake) Purge(_ context.Context, r Request) error    { return f.record(VerbPurge, r) }
func (f fake) Stop(_ context.Context, r Request) error     { return f.record(VerbStop, r) }
func (f fake) Start(_ context.Context, r Request) error    { return f.record(VerbStart, r) }
func (f fake) Alive(context.Context, Request) (bool, error) {
	return true, nil
}
func (f fake) Healthy(_ context.Context, r Request) (bool, error) {
	if r.App == "broken" {
		return false, errors.New("no engine")
	}
	return false, nil
}
func (f fake) Reqs(context.Context, Request) ([]Requirement, error) {
	return []Requirement{{Command: "docker"}, {Command: "xz", Warning: true}}, nil
}
func (f fake) Verify(_ context.Context, r Request) ([]string, error) {
	if len(r.Components) > 0 {
		return []string{r.Components[0].URL + " is missing"}, nil
	}
	return nil, nil
}
func (f fake) Sync(_ context.Context, r Request) error { return f.record(VerbSync, r) }
func (f fake) Features() []string                      { return []string{FeatureStream, "from-the-future"} }

// module returns the fake sub-module, and the directory it records into.
func module(t *testing.T) (*Module, string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin, rec := t.TempDir(), t.TempDir()
	if err := os.Symlink(self, filepath.Join(bin, "fake")); err != nil {
		t.Fatal(err)
	}
	m, err := Find(bin, "fake")
	if err != nil {
		t.Fatal(err)
	}
	m.Config.Env = []string{"TEST_SUBMODULE=" + rec}
	return m, rec
}

// script returns a sub-module written as a shell script.
func script(t *testing.T, text string) *Module {
	t.Helper()
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "sh"), []byte("#!/bin/sh\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
	m, err := Find(bin, "sh")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

type recorded struct {
	Verb    string
	Environ []string
	Request
}

func read(t *testing.T, rec, verb string) recorded {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(rec, verb))
	if err != nil {
		t.Fatal(err)
	}
	var r recorded
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// gone waits until none of the processes is there any more.
func gone(t *testing.T, pids string) {
	t.Helper()
	for _, p := range strings.Fields(pids) {
		for i := 0; ; i++ {
			b, err := os.ReadFile("/proc/" + p + "/stat")
			if err != nil || strings.Contains(string(b), ") Z ") {
				break
			}
			if i == 500 {
				t.Fatalf("process %s stayed behind", p)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}
