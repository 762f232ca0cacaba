package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/cmd/internal/devicetest"
	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/store"
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

// refusal is a command that exits with 9.
type refusal struct {
	about   string
	args    []string
	prepare func(*testing.T, *devicetest.Device) (undo func()) // what makes the device refuse; nil: nothing
}

// contract is what TestRefusalsChangeNothing knows about a command: how it is refused, or
// why it never is. The command of a contract with reads never changes anything.
type contract struct {
	refused []refusal
	never   string     // why the command is never refused
	reads   [][]string // calls that must leave the device as it is, whatever their exit code
}

// file replaces a file of the device, in a directory that it may lack; edit gets the text of
// before.
func file(name string, mode os.FileMode, edit func(string) string) func(*testing.T, *devicetest.Device) func() {
	return func(t *testing.T, d *devicetest.Device) func() {
		t.Helper()
		path := filepath.Join(d.Dir, name)
		before, err := os.ReadFile(path)
		if err != nil {
			require.ErrorIs(t, err, fs.ErrNotExist)
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		}
		missing := err != nil
		require.NoError(t, os.WriteFile(path, []byte(edit(string(before))), mode))
		return func() {
			if missing {
				require.NoError(t, os.Remove(path))
				return
			}
			require.NoError(t, os.WriteFile(path, before, mode))
		}
	}
}

// hook is a hook of the device that refuses an event.
func hook(event string) func(*testing.T, *devicetest.Device) func() {
	return file("hooks.d/"+event+"/10-no", 0o755, func(string) string { return "#!/bin/sh\necho not now >&2\nexit 1\n" })
}

// setting adds a line to the configuration.
func setting(line string) func(*testing.T, *devicetest.Device) func() {
	return file("app.conf", 0o644, func(s string) string { return line + "\n" + s })
}

// without is a sub-module that lacks a feature.
func without(feature string) func(*testing.T, *devicetest.Device) func() {
	return file("fake/features", 0o644, func(s string) string { return strings.ReplaceAll(s, feature, "") })
}

// open installs an update of cafe and changes what the store knows of it.
func open(change func(*store.Deployment)) func(*testing.T, *devicetest.Device) func() {
	return func(t *testing.T, d *devicetest.Device) func() {
		t.Helper()
		mustRun(t, d, "install", "cafe-3.mender")
		a, err := store.At(filepath.Join(d.Dir, "store")).App("cafe")
		require.NoError(t, err)
		before := *a.Deployment
		change(a.Deployment)
		require.NoError(t, a.Save())
		return func() {
			a.Deployment = &before
			require.NoError(t, a.Save())
			mustRun(t, d, "rollback")
		}
	}
}

// onDevice is a device of another type.
func onDevice(kind string) func(*testing.T, *devicetest.Device) func() {
	return file("device_type", 0o644, func(string) string { return "device_type=" + kind + "\n" })
}

// signed is a device that asks for signatures.
var signed = file("app.conf", 0o644, func(s string) string { return strings.ReplaceAll(s, "allow_unsigned = true\n", "") })

// damaged is a kept release of cafe with other content.
func damaged(t *testing.T, d *devicetest.Device) func() {
	t.Helper()
	return file("fake/images/cafe-"+digest.Of([]byte("web-cafe-1")).Hex(), 0o644, func(string) string { return "damaged" })(t, d)
}

const decidesNothing = "it has no say over an artifact: what it meets leaves the task in the queue, with 1 or 75"

// contracts has every command of mender-app, by its words; former names are not in it.
var contracts = map[string]contract{
	"status":  {never: "it only reads", reads: [][]string{{"status"}, {"status", "cafe"}, {"status", "--health"}}},
	"logs":    {never: "it only reads", reads: [][]string{{"logs", "cafe"}}},
	"history": {never: "it only reads", reads: [][]string{{"history"}, {"history", "cafe"}}},
	"check": {refused: []refusal{
		{"the type of the device", []string{"check", "elsewhere.mender"}, nil},
		{"the platform", []string{"check", "platform.mender"}, nil},
		{"an application that is missing", []string{"check", "needs.mender"}, nil},
		{"what is not provided", []string{"check", "provides.mender"}, nil},
		{"the signature", []string{"check", "v1.mender"}, signed},
		{"its manifests", []string{"check", "invalid.mender"}, nil},
	}, reads: [][]string{{"check", "cafe-3.mender"}, {"check", "submodule.mender"}}},
	"install": {refused: []refusal{
		{"the type of the device", []string{"install", "elsewhere.mender"}, nil},
		{"the platform", []string{"install", "platform.mender"}, nil},
		{"an application that is missing", []string{"install", "needs.mender"}, nil},
		{"what is not provided", []string{"install", "provides.mender"}, nil},
		{"the signature", []string{"install", "v1.mender"}, signed},
		{"an older version", []string{"install", "cafe-1.mender"}, setting("refuse_older = true")},
		{"a hook before it is loaded", []string{"install", "cafe-3.mender"}, hook("pre-load")},
		{"a hook after it is loaded", []string{"install", "cafe-3.mender"}, hook("post-load")},
		{"a hook that checks it", []string{"install", "cafe-3.mender"}, hook("check")},
		{"a hook before it is rolled out", []string{"install", "cafe-3.mender"}, hook("pre-rollout")},
	}},
	"commit": {never: "an update that may not be committed is rolled back, with the code of what failed", reads: [][]string{{"commit"}}},
	"rollback": {refused: []refusal{
		{"a kept release that is not whole", []string{"rollback", "cafe"}, damaged},
	}, reads: [][]string{{"rollback"}}},
	"abort": {refused: []refusal{
		{"an update of the Mender client that does not run", []string{"abort"}, open(func(d *store.Deployment) { d.Driver = "mender" })},
		{"an update that is committed", []string{"abort", "cafe"}, open(func(d *store.Deployment) { d.Phase = journal.Committed })},
	}},
	"doctor": {never: "it only reads", reads: [][]string{{"doctor"}}},
	"report": {never: "it reads, and writes the report", reads: [][]string{{"report", "/dev/null"}}},
	"verify": {never: "a repair takes what has the digest, whoever signed it", reads: [][]string{{"verify"}}},
	"backup": {refused: []refusal{
		{"a hook", []string{"backup", "cafe.backup", "cafe"}, hook("pre-backup")},
		{"a sub-module that does not give data out", []string{"backup", "cafe.backup", "cafe"}, without("data/1")},
	}},
	"restore": {refused: []refusal{
		{"the signature", []string{"restore", "all.backup", "shop"}, signed},
		{"an installed application", []string{"restore", "all.backup"}, nil},
		{"a backup of another type of device", []string{"restore", "all.backup", "shop"}, onDevice("another")},
		{"a backup of another type of device, with values", []string{"restore", "--values", "all.backup", "shop"}, onDevice("another")},
		{"a hook", []string{"restore", "--values", "all.backup", "shop"}, hook("pre-restore")},
	}},
	"stop": {refused: []refusal{{"a hook", []string{"stop", "cafe"}, hook("pre-stop")}}},
	"start": {refused: []refusal{
		{"a hook", []string{"start", "till"}, hook("pre-start")},
		{"a hook, of what runs", []string{"start", "cafe"}, hook("pre-start")},
	}},
	"restart": {refused: []refusal{
		{"a hook", []string{"restart", "cafe"}, hook("pre-stop")},
		{"an application that is stopped", []string{"restart", "till"}, nil},
		{"a sub-module that cannot switch services", []string{"restart", "cafe", "web"}, without("services/1")},
	}},
	"purge": {refused: []refusal{
		{"an application that is needed", []string{"purge", "till"}, nil},
		{"an application that is needed, with its data", []string{"purge", "--data", "till"}, nil},
		{"a hook", []string{"purge", "bar"}, hook("pre-purge")},
	}},
	"releases":     {never: "it only reads", reads: [][]string{{"releases", "cafe"}}},
	"events":       {never: "it only reads", reads: [][]string{{"events", "cafe"}}},
	"values":       {never: "it is help", reads: [][]string{{"values"}}},
	"values set":   {never: "a sub-module without values is 3, a bad value is 2", reads: [][]string{{"values", "set", "1=2"}}},
	"values unset": {never: "a value may always be removed: 4 if it is not there", reads: [][]string{{"values", "unset", "NOTHING"}}},
	"values show":  {never: "it only reads", reads: [][]string{{"values", "show", "--app", "cafe"}}},
	"overrides":    {never: "it is help", reads: [][]string{{"overrides"}}},
	"overrides set": {refused: []refusal{
		{"an override that does not fit", []string{"overrides", "set", "cafe", "unfit.yaml"}, nil},
		{"a sub-module without overrides", []string{"overrides", "set", "cafe", "fits.yaml"}, without("overrides/1")},
	}},
	"overrides show":  {never: "it only reads", reads: [][]string{{"overrides", "show", "cafe"}, {"overrides", "show", "--combined", "cafe"}}},
	"overrides clear": {never: "an override may always be removed"},
	"service":         {never: "it is help", reads: [][]string{{"service"}}},
	"service enable":  {refused: []refusal{{"a sub-module that cannot switch services", []string{"service", "enable", "cafe", "web"}, without("services/1")}}},
	"service disable": {refused: []refusal{{"a sub-module that cannot switch services", []string{"service", "disable", "cafe", "web"}, without("services/1")}}},
	"hold":            {never: "updates may always be held"},
	"hold set":        {never: "updates may always be held"},
	"hold show":       {never: "it only reads", reads: [][]string{{"hold", "show"}}},
	"hold release":    {never: "a hold may always be ended"},
	"windows":         {never: "it only reads", reads: [][]string{{"windows"}}},
	"secrets":         {never: "it decrypts what was accepted", reads: [][]string{{"secrets"}}},
	"stage":           {never: "it is stage add, or help", reads: [][]string{{"stage"}}},
	"stage add": {refused: []refusal{
		{"the type of the device", []string{"stage", "elsewhere.mender"}, nil},
		{"the type of the device", []string{"stage", "add", "elsewhere.mender"}, nil},
		{"the signature", []string{"stage", "add", "v1.mender"}, signed},
	}},
	"stage list": {never: "it only reads", reads: [][]string{{"stage", "list"}}},
	"stage rm":   {never: "what is staged may always be removed: 4 if it is not there, 75 if it is in use", reads: [][]string{{"stage", "rm", "nothing"}}},
	"reconcile":  {never: decidesNothing},
	"resume":     {never: "it ends what is open: 75 if something waits"},
	"trigger":    {never: decidesNothing},
	"queue":      {never: "it only reads", reads: [][]string{{"queue"}}},
	"engine-check": {refused: []refusal{
		{"an application that would not run", []string{"engine-check", "99.0"}, nil},
	}},
	"inventory":     {never: "it only reads", reads: [][]string{{"inventory"}}},
	"metrics":       {never: "it only reads", reads: [][]string{{"metrics"}}},
	"serve":         {never: "it answers; what it is asked to do are these commands"},
	"version":       {never: "it only reads", reads: [][]string{{"version"}}},
	"conformance":   {never: "it tries a sub-module in a directory of its own", reads: [][]string{{"conformance"}}},
	"probe-sandbox": {never: "it tries what the kernel can do", reads: [][]string{{"probe-sandbox"}}},
	"fetch":         {never: "the update module calls it, and decides", reads: [][]string{{"fetch"}}},
}

// TestRefusalsChangeNothing: a command of the operator that exits with 9 leaves the device as it
// was, file by file. Each command has a refusal here, or a reason why it has none.
func TestRefusalsChangeNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("calls many programs; left out of -short")
	}
	d := newDevice(t)
	conf := filepath.Join(d.Dir, "app.conf")
	settings, err := os.ReadFile(conf)
	require.NoError(t, err)
	for _, name := range []string{"hooks_dir", "overrides_dir", "values_dir"} {
		settings = fmt.Appendf(nil, "%s = %q\n%s", name, filepath.Join(d.Dir, strings.Replace(name, "_dir", ".d", 1)), settings)
	}
	require.NoError(t, os.WriteFile(conf, settings, 0o644))
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
	write("invalid.mender", devicetest.Artifact{Name: "shop-3", App: "shop", Compose: "invalid"})
	for _, name := range []string{"unfit", "fits"} {
		require.NoError(t, os.WriteFile(filepath.Join(d.Dir, name+".yaml"), []byte(name+"\n"), 0o644))
	}

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

	// An application with a kept release, and one that is stopped and that nothing needs.
	for i := 1; i <= 3; i++ {
		name := fmt.Sprint("cafe-", i)
		write(name+".mender", devicetest.Artifact{Name: name, App: "cafe", Compose: name, Type: "binary", Policy: "[orchestrator]\nmaximum = \"30.0\"\n"})
	}
	write("bar.mender", devicetest.Artifact{Name: "bar-1", App: "bar", Compose: "bar", Type: "binary"})
	for _, name := range []string{"cafe-1", "cafe-2", "bar"} {
		mustRun(t, d, "install", "--commit", name+".mender")
	}
	mustRun(t, d, "stop", "bar")
	_, _, _ = d.Run(nil, "mender-app", "commit") // the record catches up with what runs

	for _, words := range commandsOf(t) {
		c, known := contracts[words]
		require.True(t, known, "mender-app %s: say in contracts how it is refused, or why it never is", words)
		require.NotEqual(t, c.never == "", c.refused == nil, "mender-app %s", words)
		for _, args := range c.reads {
			t.Run(strings.Join(args, " "), func(t *testing.T) {
				before := wholeTree(t, d)
				_, said, err := d.Run(nil, "mender-app", args...)
				require.NotContains(t, said, "panic")
				require.Equal(t, before, wholeTree(t, d), "%v: %s", err, said)
			})
		}
		for _, r := range c.refused {
			t.Run(strings.Join(r.args, " ")+" for "+r.about, func(t *testing.T) {
				require.Equal(t, strings.Fields(words)[0], r.args[0])
				if r.prepare != nil {
					defer r.prepare(t, d)()
				}
				before := wholeTree(t, d)
				_, said, err := d.Run(nil, "mender-app", r.args...)
				var exit *exec.ExitError
				require.True(t, errors.As(err, &exit), said)
				require.Equal(t, device.ExitRefused, exit.ExitCode(), said)
				require.Equal(t, before, wholeTree(t, d), said)
			})
		}
	}

	// What is staged and cannot be loaded stays staged, so that is no refusal.
	defer without("stage")(t, d)()
	_, said, err := d.Run(nil, "mender-app", "stage", "add", "--load", "cafe-3.mender")
	var exit *exec.ExitError
	require.True(t, errors.As(err, &exit), said)
	require.Equal(t, device.ExitFailed, exit.ExitCode(), said)
	require.Contains(t, said, "cafe-3 is staged, and its images are not loaded: refused: sub-module fake cannot load")
}

// commandsOf are the words of every command but those with a former name, and cobra's own.
func commandsOf(t *testing.T) (list []string) {
	t.Helper()
	others := map[string]bool{"help": true, "completion": true}
	for _, f := range former {
		others[strings.Fields(f.use)[0]] = true
	}
	var walk func(c *cobra.Command, words string)
	walk = func(c *cobra.Command, words string) {
		for _, s := range c.Commands() {
			if words == "" && others[s.Name()] {
				continue
			}
			name := strings.TrimSpace(words + " " + s.Name())
			list = append(list, name)
			walk(s, name)
		}
	}
	walk((&program{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard}).root(), "")
	for words := range contracts {
		require.Contains(t, list, words, "contracts has a command that is gone")
	}
	return list
}
