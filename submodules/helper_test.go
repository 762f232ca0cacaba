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
		_ = m.Client().Rollout(context.Background(), Request{App: "a", Dir: "/slow"})
		os.Exit(0)
	}
	if os.Getenv("TEST_SUBMODULE") != "" {
		os.Exit(Main(fake{}, "fake", "0.1", os.Args[1:]))
	}
	os.Exit(m.Run())
}

// fake keeps what it is told in the directory TEST_SUBMODULE.
type fake struct{}

func (fake) Features() []string {
	return []string{FeatureStream, FeatureStatus, FeatureLogs, FeatureCheck, FeatureOverrides, FeatureData, "from-the-future"}
}

func (fake) Open(_ context.Context, _ string, r Request) (Session, error) {
	return fakeSession{r}, nil
}

type fakeSession struct{ Request }

func (fakeSession) Close() error { return nil }

// Render prints the overrides, each with its name.
func (f fakeSession) Render(_ context.Context, r Request) (text []byte, err error) {
	for _, o := range f.Overrides {
		text = append(text, o.Name+": "+o.Text+"\n"...)
	}
	return text, nil
}

// Volumes names one volume that is there, and one that is not made yet.
func (f fakeSession) Volumes(_ context.Context, r VolumesRequest) ([]Volume, error) {
	return []Volume{{Name: "db", Dir: f.Dir}, {Name: "new"}}, f.record("VOLUMES", &r)
}

func dir() string { return os.Getenv("TEST_SUBMODULE") }

func (f fakeSession) record(verb string, r AnyRequest) error {
	b, err := json.Marshal(map[string]any{"Verb": verb, "Environ": os.Environ(), "Own": r})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir(), verb), b, 0o600)
}

func (f fakeSession) ExportManifest(_ context.Context, r Request) error {
	return f.record(VerbExportManifest, &r)
}

func (f fakeSession) Save(_ context.Context, r SaveRequest) error {
	if r.Path == "-" {
		_, err := io.WriteString(r.Stdout, "content")
		return err
	}
	return f.record(VerbSave, &r)
}

func (f fakeSession) Load(_ context.Context, r LoadRequest) error {
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
	f.Logf("loading %s", r.URL)
	return f.record(VerbLoad, &r)
}

func (fakeSession) List(_ context.Context, r Request) ([]Component, error) {
	return []Component{{Type: "image", URL: "web:1", Digest: "sha256:00", AdditionalData: json.RawMessage(`{"size":1}`)}}, nil
}

func (f fakeSession) Repair(_ context.Context, r RepairRequest) ([]string, error) {
	return []string{f.App, "other"}, f.record(VerbRepair, &r)
}

func (fakeSession) Storage(_ context.Context, r Request) ([]string, error) {
	return []string{dir()}, nil
}

func (f fakeSession) Restore(_ context.Context, r Request) error { return f.record(VerbRestore, &r) }

func (f fakeSession) Check(_ context.Context, r Request) (Changes, error) {
	return Changes{Starts: []string{"web in " + f.Dir}}, f.record(VerbCheck, &r)
}

func (fakeSession) Status(_ context.Context, r Request) (Status, error) {
	return Status{Alive: true, Services: []Service{{Name: "web", Health: Unhealthy, Restarts: 2, Failure: "is on fire"}}}, nil
}

func (f fakeSession) Logs(_ context.Context, r LogsRequest, each func(LogLine) error) error {
	for i := 0; r.Lines == nil || i < *r.Lines; i++ {
		if err := each(LogLine{Service: "web", Stream: "stderr", Text: "<" + r.Service + "> \x1b[2J \xff"}); err != nil {
			return err
		}
	}
	return nil
}

func (fakeSession) Engine(_ context.Context, r Request) (Engine, error) {
	return Engine{Name: "docker", Version: "28.5.2"}, nil
}

func (f fakeSession) Delete(_ context.Context, r DeleteRequest) error {
	return f.record(VerbDelete, &r)
}

func (f fakeSession) Downtimes(_ context.Context, failed bool) []Downtime {
	d := Downtime{Service: "web", Down: time.Date(2026, 11, 24, 7, 13, 39, 0, time.UTC)}
	if !failed {
		d.Up = d.Down.Add(1500 * time.Millisecond)
	}
	return []Downtime{d}
}

// Rollout fails as the directory's name says.
func (f fakeSession) Rollout(ctx context.Context, r Request) error {
	switch filepath.Base(f.Dir) {
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
		if filepath.Base(f.Dir) == "stubborn" {
			_ = c.Wait()
		}
		<-ctx.Done()
		return ctx.Err()
	}
	return f.record(VerbRollout, &r)
}

func (f fakeSession) Rollback(_ context.Context, r RollbackRequest) error {
	return f.record(VerbRollback, &r)
}
func (f fakeSession) Purge(_ context.Context, r PurgeRequest) error { return f.record(VerbPurge, &r) }
func (f fakeSession) Stop(_ context.Context, r StopRequest) error   { return f.record(VerbStop, &r) }
func (f fakeSession) Start(_ context.Context, r Request) error      { return f.record(VerbStart, &r) }
func (fakeSession) Alive(_ context.Context, r Request) (bool, error) {
	return true, nil
}
func (f fakeSession) Healthy(_ context.Context, r Request) (bool, error) {
	if f.App == "broken" {
		return false, errors.New("no engine")
	}
	return false, nil
}
func (f fakeSession) Reqs(_ context.Context, r ReqsRequest) ([]Requirement, error) {
	return []Requirement{{Command: "docker"}, {Command: "xz", Warning: true}}, f.record(VerbReqs, &r)
}
func (f fakeSession) Verify(_ context.Context, r Request) ([]string, error) {
	if len(f.Components) > 0 {
		return []string{f.Components[0].URL + " is missing"}, nil
	}
	return nil, nil
}
func (f fakeSession) Sync(_ context.Context, r Request) error { return f.record(VerbSync, &r) }

// installed is a sub-module whose verbs a test calls, and whose Config it may change.
type installed struct {
	*Module
	Client
}

// module returns the fake sub-module, and the directory it records into.
func module(t *testing.T) (installed, string) {
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
	// The race detector would let each call wait for a second before it ends.
	m.Config.Env = []string{"TEST_SUBMODULE=" + rec, "GORACE=atexit_sleep_ms=0"}
	return installed{m, m.Client()}, rec
}

// script returns a sub-module written as a shell script.
func script(t *testing.T, text string) installed {
	t.Helper()
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "sh"), []byte("#!/bin/sh\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
	m, err := Find(bin, "sh")
	if err != nil {
		t.Fatal(err)
	}
	return installed{m, m.Client()}
}

// recorded is a call of which the sub-module got the request R.
type recorded[R any] struct {
	Verb    string
	Environ []string
	Own     R
}

// read returns the request that a verb's last call got.
func read[R any](t *testing.T, rec, verb string) R { return readCall[R](t, rec, verb).Own }

func readCall[R any](t *testing.T, rec, verb string) recorded[R] {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(rec, verb))
	if err != nil {
		t.Fatal(err)
	}
	var r recorded[R]
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
