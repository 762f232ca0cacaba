// Package backing has the commands that write what is installed into one file, and install
// it from there.
package backing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/modules/backup"
	"github.com/mender-app/mender-app/modules/client"
	"github.com/mender-app/mender-app/modules/deploy"
	"github.com/mender-app/mender-app/modules/settings"
	"github.com/mender-app/mender-app/output"
	"github.com/mender-app/mender-app/store"
)

// Program is what the commands need of mender-app.
type Program struct {
	Engine func() *deploy.Engine
	Config func() *device.Config
	Log    func() *slog.Logger
	// Client is mender-app's own client, locked.
	Client func() (c *client.Client, release func(), err error)
	// DeviceType is this device's.
	DeviceType func() (string, error)
	// Permits refuses a device that a Mender client manages.
	Permits func() error
	Stdout  io.Writer
	// Print prints a result, as JSON or as a line.
	Print        func(doc any, format string, args ...any) error
	CompleteApps cobra.CompletionFunc
}

// Commands are backup and restore.
func Commands(p Program) []*cobra.Command { return []*cobra.Command{p.backup(), p.restore()} }

// app is what both commands print of an application.
type app struct {
	Application  string `json:"application"`
	ArtifactName string `json:"artifact_name"`
	Version      string `json:"application_version,omitempty"`
	// Data are the volumes and directories whose content is in the backup.
	Data []string `json:"data"`
}

func describe(s *backup.Settings) app {
	a := app{Application: s.Application, ArtifactName: s.ArtifactName, Version: s.Version, Data: []string{}}
	for _, p := range s.Places {
		a.Data = append(a.Data, p.Volume+p.Dir)
	}
	return a
}

// list names applications for people.
func list(apps []app) string {
	var names []string
	for _, a := range apps {
		names = append(names, a.Application)
	}
	return strings.Join(names, ", ")
}

func (p Program) backup() *cobra.Command {
	withoutData := false
	cmd := &cobra.Command{
		Use:   "backup FILE|- [APP…]",
		Short: "Write applications with their images, settings and data to a file",
		Long: `Writes the applications APP, or all that are installed, to FILE, from which
"mender-app restore" installs them on a fresh device of the same type: the current
release with its images and manifests, its history, the data, and what an operator has
set (overrides, values, services that are switched). FILE appears when it is whole and
durable, and only its owner can read it. It is not encrypted. - is standard output.

An application is stopped while its data is copied: all volumes that its manifests
declare, and the directories that its policy names. --without-data leaves data out, and
stops nothing. The data is copied to the store first, which must have the space.

Older releases, what is staged, configuration, and keys of the device are not in it.
While an update is open or held, the exit code is 75. Nothing else can be changed
meanwhile.`,
		Example:           "  mender-app backup /mnt/usb/shop.backup\n  mender-app backup shop.backup shop db\n  mender-app backup - --without-data | ssh build 'cat >shop.backup'",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: p.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.write(cmd.Context(), args[0], args[1:], withoutData)
		},
	}
	cmd.Flags().BoolVar(&withoutData, "without-data", false, "leave out what the applications have stored")
	return cmd
}

// complete completes a file, and then applications.
func (p Program) complete(cmd *cobra.Command, args []string, to string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return p.CompleteApps(cmd, nil, to)
}

func (p Program) write(ctx context.Context, file string, names []string, withoutData bool) error {
	e := p.Engine()
	if len(names) == 0 {
		var err error
		if names, err = installed(e.Store); err != nil {
			return err
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if output.IsStandard(file) {
		if f, ok := p.Stdout.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
			return fmt.Errorf("%w: standard output is a terminal", device.ErrUsage)
		}
		_, err := p.writeTo(ctx, e, p.Stdout, names, withoutData)
		return err
	}
	out, err := output.Create(ctx, file, 0o600)
	if err != nil {
		return err
	}
	defer out.Abort()
	apps, err := p.writeTo(ctx, e, out, names, withoutData)
	if err != nil {
		return err
	}
	info, err := out.Stat()
	if err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 { // vfat has the same permissions for all files
		p.Log().Warn("the file system keeps no permissions: others may be able to read the backup", "file", file)
	}
	if err := errors.Join(err, out.Commit()); err != nil {
		return err
	}
	return p.Print(map[string]any{"file": file, "applications": apps}, "%s has %s", file, list(apps))
}

// installed are the applications that have a current release.
func installed(s *store.Store) (names []string, err error) {
	all, err := s.Apps()
	if err != nil {
		return nil, err
	}
	for _, name := range all {
		if a, err := s.App(name); err != nil || a.Current != "" || a.Deployment != nil {
			names = append(names, name) // one that cannot be read is named by an error
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%w is installed: there is nothing to back up", store.ErrNoApp)
	}
	return names, nil
}

func (p Program) writeTo(ctx context.Context, e *deploy.Engine, out io.Writer, names []string, withoutData bool) (apps []app, err error) {
	typ, err := p.DeviceType()
	if err != nil {
		return nil, err
	}
	w, err := backup.NewWriter(metered.Writer(ctx, out, nil), time.Now().UTC())
	if err != nil {
		return nil, err
	}
	defer w.Abort()
	err = e.Backup(ctx, names, func(i *deploy.Installed) error {
		if len(apps) == 0 { // under the lock
			all, err := e.Values.List("")
			if err != nil {
				return err
			}
			if err := w.AddJSON(backup.NameValues, operators(all, "")); err != nil {
				return err
			}
		}
		p.Log().Info("backing up", "app", i.App.Name, "release", i.Release.ID)
		s, err := p.add(ctx, w, e, i, typ, withoutData)
		if err != nil {
			return err
		}
		apps = append(apps, describe(s))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return apps, w.Close()
}

// operators are the values that an operator has set for an application, "" for all.
func operators(all []settings.Value, app string) map[string]string {
	return settings.ByName(slices.DeleteFunc(all, func(v settings.Value) bool { return v.Of != settings.Operator || v.For != app }))
}

// add adds an application.
func (p Program) add(ctx context.Context, w *backup.Writer, e *deploy.Engine, i *deploy.Installed, deviceType string, withoutData bool) (*backup.Settings, error) {
	a := i.App
	s := &backup.Settings{Application: a.Name, ArtifactName: i.Release.ArtifactName, Version: i.Release.Version, Stopped: a.Stopped, Services: map[string]bool{}}
	for name, choice := range a.Services {
		s.Services[name] = choice.Enabled
	}
	if a.Overrides != nil {
		s.Overrides = a.Overrides.Text
	}
	all, err := e.Values.List(a.Name)
	if err != nil {
		return nil, err
	}
	s.Values = operators(all, a.Name)
	history, err := os.ReadFile(e.Store.HistoryFile(a.Name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	s.History = string(history)
	files, content := filepath.Join(i.Temp, "artifact"), filepath.Join(i.Temp, "data")
	for _, dir := range []string{files, content} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
	}
	m := &backup.Maker{App: a, Release: i.Release, DeviceType: deviceType, Dir: files, Save: i.Save, Warn: func(line string) { p.Log().Warn(line) }}
	spec, err := m.Make(ctx)
	if err != nil {
		return nil, err
	}
	if !withoutData {
		places, err := i.CopyData(ctx, content)
		if errors.Is(err, deploy.ErrUnfit) {
			err = fmt.Errorf("%w; --without-data leaves data out", err)
		}
		if err != nil {
			return nil, err
		}
		for _, place := range places {
			s.Places = append(s.Places, backup.Place(place))
		}
	}
	name := a.Name + "/"
	if err := w.AddJSON(name+backup.NameSettings, s); err != nil {
		return nil, err
	}
	var size metered.Counter
	if err := mender.Write(&size, *spec, mender.Options{}); err != nil {
		return nil, err
	}
	if err := w.Add(name+backup.NameArtifact, int64(size), func(out io.Writer) error { return mender.Write(out, *spec, mender.Options{}) }); err != nil {
		return nil, err
	}
	if len(s.Places) == 0 {
		return s, nil
	}
	n, err := backup.TreeSize(content)
	if err != nil {
		return nil, err
	}
	return s, w.Add(name+backup.NameData, n, func(out io.Writer) error { return backup.WriteTree(out, content, false) })
}
