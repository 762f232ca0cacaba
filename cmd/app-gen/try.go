package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/generator/machine"
)

func tryCommand() *cobra.Command {
	var programs string
	c := &cobra.Command{
		Use:   "try",
		Short: "install, update, break and roll back the project of this directory on a private machine",
		Long: `try shows what the project of app-gen.toml does on a device. It starts a private machine
inside this one, with a Docker engine of its own, and there it installs a release of the
project, updates it, installs one whose first service is broken on purpose, so that the
machine goes back by itself, and rolls back to the first release. Then it removes the machine.

It does not touch this machine's Docker engine, its network or the project's releases, and
the private machine has no network to the outside. It needs root, the programs of a Docker
engine with Compose v2 (dockerd need not run), and the device's programs of mender-app, but
no Mender client. The images must be for this machine's platform.

` + exitText,
		Example: "  app-gen init --application-name shop\n  sudo app-gen try",
		RunE: func(c *cobra.Command, _ []string) error {
			// The machine ends with the thread that started it.
			runtime.LockOSThread()
			return (&trial{out: c.OutOrStdout()}).run(c.Context(), programs)
		},
	}
	c.Flags().StringVar(&programs, "programs", "", "directory with the programs app, docker-compose and mender-app (default: app-gen's, else what is installed here)")
	return c
}

// tryError is why a trial cannot be made, or what it found.
type tryError struct{ text, hint string }

func (e *tryError) Error() string  { return e.text }
func (e *tryError) Advice() string { return e.hint }

// trialType is the device type of the machine.
const trialType = "app-gen-try"

// trial is one run of app-gen try.
type trial struct {
	out     io.Writer
	dir     string // for everything
	device  *machine.Machine
	app     string
	compose string // the Compose file in the manifests
	step    int
}

func (t *trial) run(ctx context.Context, programs string) (err error) {
	begun := time.Now()
	if missing := machine.Missing(); missing != "" {
		return &tryError{"a private machine needs " + missing, "run it as root, on Linux with dockerd, docker with Compose v2, nsenter, ip and bash"}
	}
	files, err := devicePrograms(programs)
	if err != nil {
		return err
	}
	if _, err := os.Stat(configFile); err != nil {
		return &tryError{"there is no " + configFile + " in this directory", "app-gen init writes it"}
	}
	parent := os.Getenv("TMPDIR")
	if parent == "" {
		parent = "/var/tmp" // images may be too large for a /tmp in memory
	}
	if t.dir, err = os.MkdirTemp(parent, "app-gen-try-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(t.dir)) }()

	fmt.Fprintln(t.out, "Three releases of the project are made: as it is, with a label more, and broken.")
	if err := t.makeReleases(ctx); err != nil {
		return err
	}
	if t.device, err = machine.Start(machine.Options{Dir: filepath.Join(t.dir, "machine"), Type: trialType}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.device.Kill()) }()
	for path, file := range files {
		if err := copyProgram(file, t.device.Path(path)); err != nil {
			return err
		}
	}
	// A Mender client of this machine does not manage that one.
	if _, err := t.device.Run("bash", "-c", `rm -f "$(command -v mender)" "$(command -v mender-update)"`); err != nil {
		return err
	}
	if err := t.device.StartEngine(machine.Engine{}); err != nil {
		return err
	}
	if err := t.tell(ctx); err != nil {
		return err
	}
	fmt.Fprintf(t.out, "\nThe machine is removed. All of it took %s.\n", time.Since(begun).Round(time.Second))
	return nil
}

// tell runs the steps on the machine. A promise that does not hold is an error.
func (t *trial) tell(ctx context.Context) error {
	for _, s := range []struct {
		text    string
		command []string
		fails   bool
		runs    string // the artifact that runs afterwards
	}{
		{"The project is installed.", t.install(1), false, "try-1"},
		{"It is updated. What did not change is not sent.", t.install(2), false, "try-2"},
		{"An update is broken on purpose: the machine goes back by itself.", t.install(3), true, "try-2"},
		{"The operator goes back to the first release.", []string{"mender-app", "rollback", t.app}, false, "try-1"},
	} {
		t.step++
		fmt.Fprintf(t.out, "\n%d. %s\n", t.step, s.text)
		r, err := t.say(ctx, s.command)
		if err != nil {
			return err
		}
		switch {
		case s.fails && r.Code == 0:
			return &tryError{"the broken release was installed", "report this: it is a fault of mender-app"}
		case s.fails:
			fmt.Fprintln(t.out, indented(machine.LastLines(r.Stderr, 1)))
		case r.Code != 0:
			return &tryError{fmt.Sprintf("%s: exit code %d\n%s", strings.Join(s.command, " "), r.Code, indented(machine.LastLines(r.Output(), 5))), ""}
		}
		if r, err = t.say(ctx, []string{"mender-app", "status", t.app}); err != nil {
			return err
		}
		fmt.Fprintln(t.out, indented(r.Output()))
		if r.Code != 0 || !strings.Contains(r.Stdout, " "+s.runs+"\n") {
			return &tryError{fmt.Sprintf("%s does not run, or is not healthy", s.runs), ""}
		}
	}
	return nil
}

func (t *trial) install(n int) []string {
	return []string{"mender-app", "install", "--unsigned", "--commit", t.file(n)}
}

// file is the path of a release, here and on the machine.
func (t *trial) file(n int) string {
	return filepath.Join(t.dir, "machine/share", fmt.Sprintf("try-%d.mender", n))
}

// say runs a command on the machine, and shows it with its time.
func (t *trial) say(ctx context.Context, command []string) (machine.Result, error) {
	shown := append([]string{}, command...)
	sent := ""
	last := len(shown) - 1
	if info, err := os.Stat(shown[last]); err == nil && filepath.IsAbs(shown[last]) {
		shown[last], sent = filepath.Base(shown[last]), ", "+metered.Human(info.Size())
	}
	fmt.Fprintf(t.out, "    $ %s\n", strings.Join(shown, " "))
	begun := time.Now()
	r, err := t.device.RunContext(ctx, command[0], command[1:]...)
	if err == nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	if sent != "" && err == nil {
		fmt.Fprintf(t.out, "    (%.1f s%s)\n", time.Since(begun).Seconds(), sent)
	}
	return r, err
}

// makeReleases makes try-1, the project as it is, try-2 with a label more, and try-3 that is
// broken.
func (t *trial) makeReleases(ctx context.Context) error {
	share := filepath.Join(t.dir, "machine/share")
	if err := os.MkdirAll(share, 0o755); err != nil {
		return err
	}
	if err := t.generate(ctx, 1); err != nil {
		return err
	}
	manifests := filepath.Join(t.dir, "manifests")
	if err := t.read(t.file(1), manifests); err != nil {
		return err
	}
	for n, change := range map[int]func([]byte) ([]byte, error){2: labelled, 3: broken} {
		text, err := os.ReadFile(filepath.Join(manifests, t.compose))
		if err != nil {
			return err
		}
		if text, err = change(text); err != nil {
			return &tryError{t.compose + ": " + err.Error(), ""}
		}
		dir := filepath.Join(t.dir, fmt.Sprintf("manifests-%d", n))
		if err := os.CopyFS(dir, os.DirFS(manifests)); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, t.compose), text, 0o644); err != nil {
			return err
		}
		if err := t.generate(ctx, n, append(policyOption(), "--manifests-dir", dir, "--base", t.file(1))...); err != nil {
			return err
		}
	}
	return nil
}

// generate makes a release for the machine, with the options of app-gen.toml.
func (t *trial) generate(ctx context.Context, n int, options ...string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	args := []string{
		"--artifact-name", fmt.Sprintf("try-%d", n), "--device-type", trialType, "--platform", "linux/" + runtime.GOARCH,
		"--output-path", t.file(n), "--fast", "--quiet",
		// None of what app-gen.toml says of releases.
		"--bases-from", filepath.Join(t.dir, "none"), "--require-base=false", "--split=false", "--strict=false", "--no-depends", "--sbom=", "--provenance=",
	}
	if err := os.MkdirAll(filepath.Join(t.dir, "none"), 0o755); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, append(args, options...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && ctx.Err() == nil {
		return &tryError{"the release cannot be made:\n" + strings.TrimSpace(string(out)), ""}
	}
	return err
}

// read reads a release: its application, and its manifests into a new directory.
func (t *trial) read(path, dir string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := mender.NewReader(f, mender.ReadOptions{})
	if err != nil {
		return err
	}
	meta, _, err := artifact.ParseMetadata(r.Header().MetaData)
	if err != nil {
		return err
	}
	if meta.Orchestrator != "docker-compose" {
		return &tryError{"the project is for " + meta.Orchestrator, "app-gen try runs projects of Docker Compose"}
	}
	t.app = meta.ApplicationName
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for {
		file, err := r.Next()
		if err != nil {
			return err // there are manifests in every release
		}
		if file.Name != artifact.ManifestsPayload {
			continue
		}
		if _, err := artifact.ReadManifests(r, root, artifact.ManifestLimits{}); err != nil {
			return err
		}
		t.compose, err = composeFile(dir)
		return err
	}
}

// devicePrograms are the programs of a device, by where it has them.
func devicePrograms(dir string) (map[string]string, error) {
	const app, compose, cli = "/usr/share/mender/modules/v3/app", "/usr/share/mender/app-modules/v1/docker-compose", "/usr/bin/mender-app"
	places := []map[string]string{{app: app, compose: compose, cli: cli}}
	if self, err := os.Executable(); dir == "" && err == nil {
		dir = filepath.Dir(self)
	} else {
		places = nil // they are named
	}
	beside := map[string]string{app: filepath.Join(dir, "app"), compose: filepath.Join(dir, "docker-compose"), cli: filepath.Join(dir, "mender-app")}
	missing := ""
	for _, files := range append([]map[string]string{beside}, places...) {
		missing = ""
		for _, f := range files {
			if info, err := os.Stat(f); err != nil || !info.Mode().IsRegular() {
				missing = f
			}
		}
		if missing == "" {
			return files, nil
		}
	}
	return nil, &tryError{"a private machine needs the device's programs of mender-app for linux/" + runtime.GOARCH + ": there is no " + missing,
		"install the package mender-app, or name a directory with app, docker-compose and mender-app with --programs"}
}

// copyProgram copies a program to a place whose directories it makes.
func copyProgram(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o755)
}

func indented(text string) string { return "    " + strings.ReplaceAll(text, "\n", "\n    ") }
