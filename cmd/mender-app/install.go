package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/artifact/input"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/modules"
	"github.com/mender-app/mender-app/modules/client"
	"github.com/mender-app/mender-app/modules/deploy"
	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/modules/staging"
	"github.com/mender-app/mender-app/modules/view"
	"github.com/mender-app/mender-app/store"
)

// errManaged: a Mender client manages this device.
var errManaged = fmt.Errorf("%w: a Mender client manages this device", client.ErrRefused)

func (p *program) installCommand() *cobra.Command {
	var o installOptions
	cmd := &cobra.Command{
		Use:   "install FILE|URL|- | --staged APP [VERSION]",
		Short: "Install an artifact (without a Mender client)",
		Long: `Installs the artifact in FILE, at an https URL, or from standard input, through the
update module, with the calls that the Mender client makes. Then the new release runs
and waits for "mender-app commit" or "mender-app rollback". If anything fails, the
previous release keeps running. Ctrl-C undoes the installation and ends with exit code
130.

A download from a URL is kept beside the store until the installation ends. After a cut
connection it continues where it ended, up to ten times in a row. After Ctrl-C or a
power cut the same command continues it. HTTPS_PROXY, HTTP_PROXY and NO_PROXY are
honoured. An http URL needs a key to check the signature.

The artifact must be signed by one of the public keys that --key gives, else
artifact_verify_key, artifact_verify_keys and [[keys]] of mender-app.conf, else
ArtifactVerifyKey and ArtifactVerifyKeys of mender.conf. If none of these names a
key, --unsigned installs without a check.

--staged installs an artifact that "mender-app stage add" has put onto the device: the
newest of APP, or the one of a version or with an artifact's name.

On a device with a Mender client, use that client, because it does not learn what this
command installs. --force installs anyway.

An update that the application's policy forbids is refused with exit code 9 before
anything is loaded. --force overrides only its downgrades.allow = false.`,
		Example: `  mender-app install shop-2.mender && mender-app commit
  mender-app install https://example.com/shop-2.mender
  ssh build cat shop-2.mender | mender-app install --key artifact.pub -
  mender-app install --staged shop`,
		Args: o.staged.Args(),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, err := o.staged.File(p.config, p.stdin, args)
			if err != nil {
				return err
			}
			return p.install(cmd.Context(), from, o)
		},
	}
	o.keyOptions.Flags(cmd.Flags())
	o.staged.Flag(cmd, "install")
	cmd.Flags().BoolVar(&o.force, "force", false, "install even if a Mender client manages this device, and even an older version that a policy forbids")
	o.reuse.Flags(cmd.Flags())
	cmd.Flags().BoolVar(&o.commit, "commit", false, "commit at once when it is healthy, unless it asks for a restart")
	return cmd
}

// installOptions are the flags of install.
type installOptions struct {
	keyOptions
	staged        stagedChoice
	force, commit bool
	automatic     bool   // the device does it by itself, and prints nothing
	event         string // why
	reuse         reuseFlags
}

func (p *program) opener() *artifactOpener {
	return &artifactOpener{Config: p.config, Log: p.log, Stdin: p.stdin}
}

func (p *program) install(ctx context.Context, from string, o installOptions) (err error) {
	say := p.printResult
	if o.automatic {
		say = func(any, string, ...any) error { return nil }
	}
	if !o.force {
		if err := p.unmanaged(); err != nil {
			return err
		}
	}
	keys, err := p.opener().Trusted(o.keyOptions)
	if err != nil {
		return err
	}
	in, err := p.opener().Open(ctx, from, len(keys) > 0, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.End(err)) }()
	bar := progress(p.stderr, p.json, in)
	defer bar.Done()
	artifact, err := openArtifact(bar, keys) // before anything is written
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("%w: nothing was changed", cause)
	}
	if err != nil {
		return err
	}
	c, release, err := p.lockedClient()
	if err != nil {
		return err
	}
	defer release()
	c.Force, c.Automatic, c.Event, c.Reuse = o.force, o.automatic, o.event, o.reuse.Said()
	if signer := artifact.Header().SignedBy; signer != nil {
		if c.Signer, err = mender.EncodePublicKey(signer); err != nil {
			return err
		}
	}
	if c.Views, err = p.views(ctx, artifact.Header()); err != nil {
		return err
	}
	began := traceInstall(c)
	defer context.AfterFunc(ctx, func() {
		bar.Done()
		p.log.Info("interrupted: ending cleanly; press Ctrl-C again to leave that to mender-app resume")
	})()
	err = c.Install(ctx, artifact)
	bar.Done()
	if err != nil {
		return afterSignal(ctx, c, *began, err)
	}
	name := artifact.Header().Name
	r, err := c.Read()
	if err != nil {
		return err
	}
	if r.Open != nil && r.Open.Reboot {
		return say(map[string]any{"artifact_name": name, "state": view.Waiting, "reboot": true},
			"installed %s; it asks for a restart: restart the machine, then mender-app commit, or mender-app rollback", name)
	}
	if o.commit {
		if err := c.Commit(ctx); err != nil {
			return afterSignal(ctx, c, true, err)
		}
		return say(map[string]string{"artifact_name": name, "state": view.Installed}, "installed and committed %s", name)
	}
	if r.Open == nil { // a module without rollback commits at once
		return say(map[string]string{"artifact_name": name, "state": view.Installed}, "installed %s", name)
	}
	return say(map[string]string{"artifact_name": name, "state": view.Waiting},
		"installed %s; now mender-app commit, or mender-app rollback", name)
}

// installStaged installs and commits a staged artifact by itself. What an earlier call was
// killed in is undone first, or committed if only that was missing.
func (p *program) installStaged(ctx context.Context, a *staging.Artifact, event string) error {
	if done, err := p.finishStaged(ctx, a); err != nil || done {
		return err
	}
	return p.install(ctx, a.Path, installOptions{commit: true, automatic: true, event: event})
}

func (p *program) finishStaged(ctx context.Context, a *staging.Artifact) (done bool, err error) {
	c, release, err := p.lockedClient()
	if err != nil {
		return false, err
	}
	defer release()
	rec, err := c.Read()
	if err != nil || rec.Open == nil {
		return false, err
	}
	if !rec.Open.Waiting {
		return false, c.Resume(ctx)
	}
	app, err := p.config.OpenStore().App(a.Application)
	if err != nil {
		return false, err
	}
	d := app.Deployment
	if rec.Open.ArtifactName != a.ArtifactName || d == nil || d.Asked == nil || d.Asked.How != store.AskedByUnit || d.Asked.Event == "" {
		return false, nil // somebody else's: the installation says so
	}
	return true, c.Commit(ctx)
}

// unmanaged refuses a device that has a Mender client.
func (p *program) unmanaged() error {
	if name, path := device.MenderClient(); name != "" {
		return fmt.Errorf("%w (%s): use `%s install`, or --force", errManaged, path, name)
	}
	return nil
}

// client makes the driver of the update module.
func (p *program) client() (*client.Client, error) {
	deviceType, err := readDeviceType(p.config.DeviceType)
	if err != nil {
		return nil, err
	}
	return &client.Client{
		Module:     p.config.UpdateModule,
		Dir:        p.config.OpenStore().Meta("client"),
		DeviceType: deviceType,
		Driver:     driverName,
		Log:        func(line string) { fmt.Fprintln(p.stderr, device.OneLine(line)) },
		Trace:      func(s modules.State) { p.log.Debug("call", "state", string(s)) },
	}, nil
}

// lockedClient is client with its lock, which keeps other commands out.
func (p *program) lockedClient() (*client.Client, func(), error) {
	c, err := p.client()
	if err != nil {
		return nil, nil, err
	}
	if err := p.config.OpenStore().Protect(); err != nil {
		return nil, nil, err
	}
	release, err := c.Lock()
	if err != nil {
		return nil, nil, err
	}
	running, err := device.Running(p.config.OpenStore())
	if err == nil {
		err = c.Settle(running)
	}
	if err != nil {
		release()
		return nil, nil, err
	}
	return c, release, nil
}

// maxDeviceType bounds the file that names the type, in bytes.
const maxDeviceType = 64 << 10

// readDeviceType reads the file that names this device's type, with
// device_type=NAME in it as the Mender client has it.
func readDeviceType(file string) (string, error) {
	data, err := input.Read(file, maxDeviceType)
	if err != nil {
		return "", fmt.Errorf("the device's type: %w; write device_type=NAME into it", err)
	}
	for line := range strings.Lines(string(data)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "device_type="); ok && name != "" {
			return name, nil
		}
	}
	return "", fmt.Errorf("%s does not say device_type=NAME", file)
}

func (p *program) commitCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "commit",
		Short:   "Make the installed update permanent",
		Long:    `Makes the update of "mender-app install" permanent, if it is still healthy; otherwise starts the previous release again.`,
		Example: "  mender-app commit",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, release, err := p.lockedClient()
			if err != nil {
				return err
			}
			defer release()
			if err := c.Commit(cmd.Context()); err != nil {
				return p.nothingOpen(err, "commit")
			}
			r, err := c.Read()
			if err != nil {
				return err
			}
			return p.printResult(map[string]string{"artifact_name": r.Installed.ArtifactName, "state": view.Installed},
				"committed %s", r.Installed.ArtifactName)
		},
	}
}

func (p *program) rollbackCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rollback [APP [RELEASE]]",
		Short: "Undo the installed update, or go back to a kept release",
		Long: `Without APP, undoes the update of "mender-app install" that has not been committed yet.
With APP, starts the newest kept release of that application again, however long ago it
was replaced, and keeps the current release instead. Only releases installed before the
current one count. RELEASE selects any kept release by its name, its number or its
artifact's name, as "mender-app releases APP" shows them. The Mender client and its
server do not learn of this, and the client then refuses a delta for the current
release.`,
		Example:           "  mender-app rollback\n  mender-app rollback shop\n  mender-app rollback shop 3",
		ValidArgsFunction: completeKept,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				which := ""
				if len(args) == 2 {
					which = args[1]
				}
				return p.goBack(cmd.Context(), args[0], which)
			}
			c, release, err := p.lockedClient()
			if err != nil {
				return err
			}
			defer release()
			if err := c.Rollback(cmd.Context()); err != nil {
				return p.nothingOpen(err, "rollback")
			}
			r, err := c.Read()
			if err != nil {
				return err
			}
			return p.printResult(map[string]string{"artifact_name": r.Installed.ArtifactName, "status": store.StatusRolledBack},
				"rolled back; installed is %s", orNothing(r.Installed.ArtifactName))
		},
	}
}

// goBack starts a kept release of an application again.
func (p *program) goBack(ctx context.Context, app, which string) error {
	from := ""
	var r *store.Release
	err := p.settled(func() (err error) {
		if a, err := p.config.OpenStore().App(app); err == nil {
			from = a.Current
		}
		if r, err = p.engine().GoBack(ctx, app, which); err != nil {
			return err
		}
		return p.settleRecord(r.ArtifactName)
	})
	if err != nil {
		return err
	}
	if name, _ := device.MenderClient(); name != "" {
		p.log.Warn("the Mender client does not learn of this: it takes the artifact that it installed for installed, and refuses a delta for the release that runs now; an artifact with whole images installs",
			"client", name)
	}
	doc := map[string]string{"application": app, "release": r.ID, "artifact_name": r.ArtifactName}
	text := fmt.Sprintf("%s runs release %s (%s) again", app, r.ID, r.ArtifactName)
	if forward := p.forwardCommand(app, from); forward != "" {
		doc["replaced"] = from
		text += "; " + forward + " goes forward again"
	}
	return p.printResult(doc, "%s", text)
}

func orNothing(name string) string {
	if name == "" {
		return "nothing"
	}
	return name
}

func (p *program) resumeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "resume",
		Short: "Finish interrupted deployments, and start what is down",
		Long: `Ends interrupted deployments. A committed deployment is cleaned up; any other is undone,
so that the previous release runs. A deployment that only waits for its commit keeps
waiting.

Then each application that should run and does not is started again, such as one whose
container ended or was lost by the engine. If it waits for its commit, the new release
is started. Applications stopped by mender-app stop, and failed releases, stay down.

mender-app-resume.service runs this at boot.`,
		Example: "  mender-app resume",
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.resume(cmd.Context()) },
	}
}

// settleRecord records that the artifact is back that was there before a failed one.
// This is for the client of mender-app; a Mender client does not learn of it.
func (p *program) settleRecord(artifact string) error {
	c := &client.Client{Dir: p.config.OpenStore().Meta("client"), Driver: driverName}
	rec, err := c.Read()
	if err != nil || rec.Installed.Before == nil || *rec.Installed.Before != artifact {
		return err
	}
	release, err := c.Lock()
	if err != nil {
		return err
	}
	defer release()
	return c.Settled()
}

// leftFailed reports whether the current release of any application has failed.
func (p *program) leftFailed() bool {
	s := p.config.OpenStore()
	names, err := s.Apps()
	return err == nil && slices.ContainsFunc(names, func(name string) bool {
		a, err := s.App(name)
		return err == nil && a.HasFailed(a.Current)
	})
}

func (p *program) resume(ctx context.Context) error {
	s := p.config.OpenStore()
	if _, err := os.Stat(s.Meta("")); errors.Is(err, fs.ErrNotExist) {
		// No update was ever made here, or the store is not mounted yet. Then
		// nothing must be written to its mount point.
		return p.printResumed(nil)
	}
	if err := s.Protect(); err != nil {
		return err
	}
	recorded := &client.Client{Dir: s.Meta("client"), Driver: driverName}
	release, err := recorded.Lock()
	if err != nil {
		return err
	}
	defer release()
	rec, err := recorded.Read()
	if err != nil {
		return err
	}
	var list []resumed
	if rec.Open != nil && !rec.Open.Waiting {
		c, err := p.client()
		if err != nil {
			return err
		}
		if err := c.Resume(ctx); err != nil {
			return err
		}
		now := "undone"
		if rec.Open.State == modules.Cleanup && !rec.Open.Failed {
			now = "cleaned up"
		}
		list = append(list, resumed{Artifact: rec.Open.ArtifactName, Was: string(rec.Open.State), Now: now})
	}
	driver := driverName // for deployments that the client began and has forgotten
	if now, err := recorded.Read(); err != nil {
		return err
	} else if now.Open != nil {
		driver = ""
	}
	found, err := p.engine().Resume(ctx, driver, rec.Installed.ArtifactName)
	if err != nil {
		return err
	}
	var failed error
	ended := false
	for _, r := range found {
		if r.Err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", r.App, r.Err))
		} else if !r.Waiting && r.Phase != journal.None {
			ended = true
		}
		list = append(list, resumedOf(r))
	}
	if err := endPreset(ctx, p.engine()); err != nil {
		failed = errors.Join(failed, fmt.Errorf("what an interrupted restore had set: %w", err))
	}
	if ended && failed == nil && driver != "" && !p.leftFailed() {
		// A rollback that had failed has succeeded now.
		if err := recorded.Settled(); err != nil {
			return err
		}
	}
	if err := p.printResumed(list); err != nil {
		return err
	}
	if text := inconsistent(ctx); text != "" && failed == nil {
		p.log.Warn(text)
	}
	return failed
}

// resumed is what resume says of a deployment of the device's own client, which has an
// artifact, or of an application.
type resumed struct {
	Application string `json:"application,omitempty"`
	Artifact    string `json:"artifact_name,omitempty"`
	Was         string `json:"was"`
	Now         string `json:"now"`
}

func resumedOf(r deploy.Resumed) resumed {
	was, now := string(r.Phase), "settled"
	if r.Phase == journal.None && r.Started {
		was = "down"
	}
	switch {
	case r.Err != nil:
		now = "failed"
	case r.Waiting && r.Phase == journal.Committed:
		now = "waits for its cleanup"
	case r.Waiting:
		now = "waits for its commit or rollback"
	case r.Phase == journal.None:
		now = "started"
	}
	return resumed{Application: r.App, Was: was, Now: now}
}

func (p *program) printResumed(list []resumed) error {
	if p.json {
		return p.printJSON(append([]resumed{}, list...)) // [] and not null
	}
	for _, r := range list {
		fmt.Fprintf(p.stdout, "%s: %s, %s\n", r.Application+r.Artifact, r.Was, r.Now)
	}
	if len(list) == 0 {
		fmt.Fprintln(p.stdout, "nothing to resume")
	}
	return nil
}

// loadStaged loads the images of a staged artifact.
func (p *program) loadStaged(ctx context.Context, a *staging.Artifact, keys []device.Trusted, change *staging.Change) error {
	x, err := p.config.OpenStaged(a, keys)
	if err != nil {
		return err
	}
	defer x.Close()
	return p.engine().Preload(ctx, deploy.Preload{
		StagedArtifact: x, Name: a.ArtifactName, Digest: a.Digest, Margin: p.config.Staging.Free << 20,
		Room: func(bytes int64) error { return change.RoomToLoad(*a, bytes) },
	})
}
