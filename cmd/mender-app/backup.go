package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/artifact/output"
	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/modules/backup"
	"github.com/mender-app/mender-app/modules/deploy"
	"github.com/mender-app/mender-app/modules/diskspace"
	"github.com/mender-app/mender-app/modules/settings"
	"github.com/mender-app/mender-app/store"
)

// appInBackup is what both commands print of an application.
type appInBackup struct {
	Application  string `json:"application"`
	ArtifactName string `json:"artifact_name"`
	Version      string `json:"application_version,omitempty"`
	// Data are the volumes and directories whose content is in the backup.
	Data []string `json:"data"`
}

func describeBackup(s *backup.Settings) appInBackup {
	a := appInBackup{Application: s.Application, ArtifactName: s.ArtifactName, Version: s.Version, Data: []string{}}
	for _, p := range s.Places {
		a.Data = append(a.Data, p.Volume+p.Dir)
	}
	return a
}

// appNames names applications for people.
func appNames(apps []appInBackup) string {
	var names []string
	for _, a := range apps {
		names = append(names, a.Application)
	}
	return strings.Join(names, ", ")
}

func (p *program) backupCommand() *cobra.Command {
	withoutData := false
	cmd := &cobra.Command{
		Use:   "backup FILE|- [APP…]",
		Short: "Write applications with their images, settings and data to a file",
		Long: `Writes the applications APP, or all installed ones, to FILE, from which "mender-app
restore" installs them on a fresh device of the same type: the current release with its
images and manifests, its history, the data, and the operator's settings (overrides,
values, switched services). FILE appears when it is complete and durable, and only its
owner can read it. It is not encrypted. - is standard output.

An application is stopped while its data is copied: all volumes that its manifests
declare, and the directories that its policy names. --without-data leaves data out and
stops nothing. The data is first copied to the store, which needs the space.

It has no older releases, staged artifacts, configuration, or keys of the device. While
an update is open or held, the exit code is 75. Nothing else can change meanwhile.`,
		Example:           "  mender-app backup /mnt/usb/shop.backup\n  mender-app backup shop.backup shop db\n  mender-app backup - --without-data | ssh build 'cat >shop.backup'",
		ValidArgsFunction: p.completeBackup,
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.backup(cmd.Context(), args[0], args[1:], withoutData)
		},
	}
	cmd.Flags().BoolVar(&withoutData, "without-data", false, "leave out the applications' data")
	return cmd
}

// completeBackup completes a file, and then applications.
func (p *program) completeBackup(cmd *cobra.Command, args []string, to string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return completeApps(cmd, nil, to)
}

func (p *program) backup(ctx context.Context, file string, names []string, withoutData bool) error {
	e := p.engine()
	if len(names) == 0 {
		var err error
		if names, err = appsToBackUp(e.Store); err != nil {
			return err
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if output.IsStandard(file) {
		if f, ok := p.stdout.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
			return fmt.Errorf("%w: standard output is a terminal", device.ErrUsage)
		}
		_, err := p.writeBackup(ctx, e, p.stdout, names, withoutData)
		return err
	}
	out, err := output.Create(ctx, file, 0o600)
	if err != nil {
		return err
	}
	defer out.Abort()
	apps, err := p.writeBackup(ctx, e, out, names, withoutData)
	if err != nil {
		return err
	}
	info, err := out.Stat()
	if err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 { // vfat has the same permissions for all files
		p.log.Warn("the file system keeps no permissions: others may be able to read the backup", "file", file)
	}
	if err := errors.Join(err, out.Commit()); err != nil {
		return err
	}
	return p.printResult(map[string]any{"file": file, "applications": apps}, "%s has %s", file, appNames(apps))
}

// appsToBackUp are the applications that have a current release.
func appsToBackUp(s *store.Store) (names []string, err error) {
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

func (p *program) writeBackup(ctx context.Context, e *deploy.Engine, out io.Writer, names []string, withoutData bool) (apps []appInBackup, err error) {
	typ, err := readDeviceType(p.config.DeviceType)
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
			if err := w.AddJSON(backup.NameValues, operatorValues(all, "")); err != nil {
				return err
			}
		}
		p.log.Info("backing up", "app", i.App.Name, "release", i.Release.ID)
		s, err := p.addToBackup(ctx, w, e, i, typ, withoutData)
		if err != nil {
			return err
		}
		apps = append(apps, describeBackup(s))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return apps, w.Close()
}

// operatorValues are the values that an operator has set for an application, "" for all.
func operatorValues(all []settings.Value, app string) map[string]string {
	return settings.ByName(slices.DeleteFunc(all, func(v settings.Value) bool { return v.Of != settings.Operator || v.For != app }))
}

// mostHoles is how many times larger than its file system an application's data may be, so
// that none can keep the store locked for days. A file system may compress what it has.
const mostHoles = 16

// addToBackup adds an application.
func (p *program) addToBackup(ctx context.Context, w *backup.Writer, e *deploy.Engine, i *deploy.Installed, deviceType string, withoutData bool) (*backup.Settings, error) {
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
	s.Values = operatorValues(all, a.Name)
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
	m := &backup.Maker{App: a, Release: i.Release, DeviceType: deviceType, Dir: files, Save: i.Save, Warn: func(line string) { p.log.Warn(line) }}
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
	total, err := diskspace.Total(content)
	if err != nil {
		return nil, err
	}
	n, err := backup.TreeSize(content, total*mostHoles)
	if errors.Is(err, backup.ErrHoles) {
		err = fmt.Errorf("%w: the data of %s: %w; --without-data leaves data out", deploy.ErrUnfit, a.Name, err)
	}
	if err != nil {
		return nil, err
	}
	return s, w.Add(name+backup.NameData, n, func(out io.Writer) error { return backup.WriteTree(out, content) })
}
