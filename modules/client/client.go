// Package client is the Mender client's side of the update-module protocol, for hosts
// without a Mender client. It makes the file tree, streams the payload and calls the
// module in the order of the C++ client's standalone commands. Between commands it
// records the state of the update and the installed artifact.
//
// It must not know what the module does; it works with any module.
package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/modules"
	"github.com/mender-app/mender-app/store/durable"
)

// Errors a caller may branch on.
var (
	// ErrOpen: an update has not been committed or rolled back yet.
	ErrOpen = errors.New("an update is open")
	// ErrNotOpen: there is no update to work on.
	ErrNotOpen = errors.New("no update is open")
	// ErrRefused: the artifact is not for this device; nothing was called.
	ErrRefused = errors.New("refused")
	// ErrBusy: another process drives the module.
	ErrBusy = errors.New("another mender-app command is running; try again when it has ended")
)

// Client drives one update module.
type Client struct {
	// Module is the executable.
	Module string
	// Dir is where the client keeps its state and the file tree; it must
	// outlive a restart of the machine.
	Dir string
	// DeviceType is this device's type.
	DeviceType string
	// Driver names the caller, for the module's history.
	Driver string
	// Force overrides what only a policy forbids: a person asked for it.
	Force bool
	// Reuse is a person's decision whether to keep an operator's choices.
	Reuse modules.Reuse
	// Automatic: the device installs the artifact automatically, because of Event.
	Automatic bool
	Event     string // "" if there was none
	// Signer is the public key, in PEM, that verified the artifact's signature and may
	// sign for its application; "" if nothing was verified.
	Signer string
	// Views, if set, are what Install and Accepts compare an artifact's depends with,
	// instead of the record. One that fits is enough.
	Views []Installed
	// Restores: the artifact is from a backup. What it depends on held when its release was
	// installed, and is not compared.
	Restores bool
	// Loaded, if set, is called after the module has loaded the whole payload, which was
	// checked, and before it installs. Its error ends the installation.
	Loaded func(ctx context.Context) error
	// Env is the environment of the module; nil is this process's.
	Env []string
	// Log gets each line that the module writes to standard error, without the
	// newline.
	Log func(line string)
	// Trace, if set, is called with each state before its call.
	Trace func(state modules.State)
}

// Record is the client's state between commands, client.json in its directory.
type Record struct {
	Installed Installed `json:"installed"`
	Open      *Update   `json:"open,omitempty"`
}

// Installed is the artifact that the client has recorded as installed.
type Installed struct {
	ArtifactName string            `json:"artifact_name,omitempty"`
	Provides     map[string]string `json:"provides,omitempty"`
	// Applications says what of it belongs to which application.
	Applications map[string]Belongings `json:"applications,omitempty"`
	// Before is the artifact name from before a failed rollback. After the failure,
	// ArtifactName says that the device is inconsistent. nil: no rollback failed.
	Before *string `json:"artifact_name_before,omitempty"`
}

// Update is an open update.
type Update struct {
	ArtifactName string            `json:"artifact_name"`
	Group        string            `json:"artifact_group,omitempty"`
	Provides     map[string]string `json:"provides,omitempty"`
	Clears       []string          `json:"clears_provides,omitempty"`
	// State is the last state whose call began.
	State modules.State `json:"state"`
	// Waiting: State has not been called yet; a person decides when to call it.
	Waiting bool `json:"waiting,omitempty"`
	// Reboot: the update asks for a restart of the machine before its commit.
	Reboot bool `json:"reboot,omitempty"`
	// Failed: the module could not roll back.
	Failed bool `json:"failed,omitempty"`
}

const recordFile = "client.json"

// Read returns the record. Nothing is written.
func (c *Client) Read() (*Record, error) {
	data, err := os.ReadFile(filepath.Join(c.Dir, recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return &Record{}, nil
	}
	if err != nil {
		return nil, err
	}
	var r Record
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", filepath.Join(c.Dir, recordFile), err)
	}
	return &r, nil
}

// Lock keeps other processes from driving the module. Install, Commit, Rollback and
// Resume require it. The lock ends with the process. No other user can take it. The
// error is ErrBusy while another process holds it.
func (c *Client) Lock() (release func(), err error) {
	if err := durable.PrivateDir(c.Dir); err != nil {
		return nil, err
	}
	release, err = durable.Lock(filepath.Join(c.Dir, "lock"), c.Driver)
	var held *durable.HeldError
	if errors.As(err, &held) {
		return nil, ErrBusy
	}
	if err != nil {
		return nil, err
	}
	if err := durable.Sweep(c.Dir); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

func (c *Client) save(r *Record) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := durable.PrivateDir(c.Dir); err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(c.Dir, recordFile), append(data, '\n'), 0o600)
}

// enter records that the call of a state is about to begin.
func (c *Client) enter(r *Record, s modules.State) error {
	r.Open.State, r.Open.Waiting = s, false
	return c.save(r)
}

// Install installs an artifact, which a person then commits or rolls back. It checks
// the payload by reading it to its end. After an error everything has been undone,
// unless the error says otherwise.
func (c *Client) Install(ctx context.Context, artifact *mender.Reader) error {
	r, err := c.Read()
	if err != nil {
		return err
	}
	if r.Open != nil {
		return fmt.Errorf("%w: %s; commit it, roll it back or resume it first", ErrOpen, r.Open.ArtifactName)
	}
	h := artifact.Header()
	if err := c.accept(r, h); err != nil {
		return err
	}
	if err := c.makeTree(r, h); err != nil {
		return errors.Join(err, durable.RemoveAll(c.tree()))
	}
	r.Open = &Update{ArtifactName: h.Name, Group: h.Group, Provides: h.Provides, Clears: h.ClearsProvides}
	download := modules.Download
	answer, err := c.ask(ctx, modules.ProvidePayloadFileSizes)
	if err != nil {
		return errors.Join(err, durable.RemoveAll(c.tree()))
	}
	if answer == modules.Yes {
		download = modules.DownloadWithFileSizes
	}
	// Nothing is recorded before the end of the download: after a kill there is
	// nothing to resume, and the next installation starts from the beginning.
	if err := c.download(ctx, download, artifact); err != nil {
		return errors.Join(err, c.cleanup(ctx, nil))
	}
	if c.Loaded != nil {
		if err := c.Loaded(ctx); err != nil {
			return errors.Join(err, c.cleanup(ctx, nil))
		}
	}
	if err := c.enter(r, modules.ArtifactInstall); err != nil {
		return errors.Join(err, c.cleanup(ctx, nil))
	}
	if err := c.run(ctx, modules.ArtifactInstall); err != nil {
		return errors.Join(err, c.undo(ctx, r, true))
	}
	switch answer, err := c.ask(ctx, modules.NeedsArtifactReboot); {
	case err != nil:
		return errors.Join(err, c.undo(ctx, r, true))
	case answer == modules.Yes || answer == modules.Automatic:
		r.Open.Reboot = true
	}
	switch answer, err := c.ask(ctx, modules.SupportsRollback); {
	case err != nil:
		return errors.Join(err, c.undo(ctx, r, true))
	case answer != modules.Yes:
		return c.commit(ctx, r)
	}
	r.Open.State, r.Open.Waiting = modules.ArtifactCommit, true
	return c.save(r)
}

// Accepts says whether Install would take the artifact: it returns ErrRefused, or
// ErrOpen while another update is open. It changes nothing.
func (c *Client) Accepts(h *mender.Header) error {
	r, err := c.Read()
	if err != nil {
		return err
	}
	if r.Open != nil {
		return fmt.Errorf("%w: %s", ErrOpen, r.Open.ArtifactName)
	}
	return c.accept(r, h)
}

// Fits returns ErrRefused for an artifact that can never be for this device, whatever
// is installed.
func (c *Client) Fits(h *mender.Header) error {
	if h.PayloadType != mender.PayloadTypeApp {
		return fmt.Errorf("%w: the payload has type %q, not %q: it is for another update module", ErrRefused, h.PayloadType, mender.PayloadTypeApp)
	}
	if len(h.Scripts) > 0 {
		return fmt.Errorf("%w: the artifact has state scripts, which only the Mender client runs", ErrRefused)
	}
	if !slices.Contains(h.DeviceTypes, c.DeviceType) {
		return fmt.Errorf("%w: the artifact is for device type %s, this device is %q",
			ErrRefused, strings.Join(h.DeviceTypes, " or "), c.DeviceType)
	}
	return nil
}

// accept refuses an artifact that is not for this device.
func (c *Client) accept(r *Record, h *mender.Header) error {
	if err := c.Fits(h); err != nil {
		return err
	}
	if c.Restores {
		return nil
	}
	if c.Views == nil {
		return r.Installed.fits(h)
	}
	var refused error
	for _, view := range c.Views {
		err := view.fits(h)
		if err == nil {
			return nil
		}
		refused = cmp.Or(refused, err)
	}
	return refused
}

// fits refuses an artifact that depends on something else than what is installed.
func (i Installed) fits(h *mender.Header) error {
	name := i.ArtifactName
	if len(h.DependsNames) > 0 && !slices.Contains(h.DependsNames, name) {
		return fmt.Errorf("%w: the artifact needs artifact %s to be installed, and %q is",
			ErrRefused, strings.Join(h.DependsNames, " or "), name)
	}
	group := i.Provides["artifact_group"]
	if len(h.DependsGroups) > 0 && !slices.Contains(h.DependsGroups, group) {
		return fmt.Errorf("%w: the artifact needs artifact group %s, and this device has %q",
			ErrRefused, strings.Join(h.DependsGroups, " or "), group)
	}
	for _, key := range slices.Sorted(maps.Keys(h.Depends)) {
		have, ok := i.Provides[key]
		if !ok || !slices.Contains(h.Depends[key], have) {
			return fmt.Errorf("%w: the artifact needs %s = %s, and this device has %q",
				ErrRefused, key, strings.Join(h.Depends[key], " or "), have)
		}
	}
	return nil
}

// Commit makes the open update permanent.
func (c *Client) Commit(ctx context.Context) error {
	r, err := c.opened()
	if err != nil {
		return err
	}
	if r.Open.State == modules.ArtifactCommit && r.Open.Waiting {
		return c.commit(ctx, r)
	}
	if r.Open.State == modules.Cleanup {
		return c.resume(ctx, r)
	}
	// As in the C++ client, an interrupted update is undone.
	return errors.Join(fmt.Errorf("the update was interrupted in %s and cannot be committed", r.Open.State), c.resume(ctx, r))
}

func (c *Client) commit(ctx context.Context, r *Record) error {
	if err := c.enter(r, modules.ArtifactCommit); err != nil {
		return err
	}
	if err := c.run(ctx, modules.ArtifactCommit); err != nil {
		if busy(err) {
			// The module did nothing: the update still waits.
			r.Open.Waiting = true
			return errors.Join(err, c.save(r))
		}
		return errors.Join(err, c.undo(ctx, r, true))
	}
	r.Installed = r.Installed.with(r.Open)
	// One write records both: the new artifact is installed, and only Cleanup
	// is left.
	if err := c.enter(r, modules.Cleanup); err != nil {
		return err
	}
	return c.cleanup(ctx, r)
}

// with returns i as it becomes after an update.
func (i Installed) with(u *Update) Installed {
	provides := map[string]string{}
	for key, value := range i.Provides {
		cleared := slices.ContainsFunc(u.Clears, func(pattern string) bool {
			ok, err := path.Match(pattern, key)
			return err == nil && ok
		})
		if !cleared {
			provides[key] = value
		}
	}
	maps.Copy(provides, u.Provides)
	delete(provides, "artifact_group")
	if u.Group != "" {
		provides["artifact_group"] = u.Group
	}
	return Installed{ArtifactName: u.ArtifactName, Provides: provides, Applications: i.Applications}
}

// Rollback undoes the open update.
func (c *Client) Rollback(ctx context.Context) error {
	r, err := c.opened()
	if err != nil {
		return err
	}
	if r.Open.State == modules.Cleanup {
		return errors.Join(errors.New("the update has been committed"), c.resume(ctx, r))
	}
	if _, err := c.ask(ctx, modules.SupportsRollback); err != nil {
		return err
	}
	return c.undo(ctx, r, false)
}

// Resume finishes an update that was interrupted: it cleans up a committed one
// and undoes any other. An update that waits for a person stays as it is.
func (c *Client) Resume(ctx context.Context) error {
	r, err := c.opened()
	if err != nil {
		return err
	}
	if r.Open.Waiting {
		return fmt.Errorf("%w: %s waits for commit or rollback", ErrOpen, r.Open.ArtifactName)
	}
	return c.resume(ctx, r)
}

func (c *Client) resume(ctx context.Context, r *Record) error {
	if r.Open.State == modules.Cleanup {
		return c.cleanup(ctx, r)
	}
	return c.undo(ctx, r, true)
}

func (c *Client) opened() (*Record, error) {
	r, err := c.Read()
	if err != nil {
		return nil, err
	}
	if r.Open == nil {
		return nil, ErrNotOpen
	}
	return r, nil
}

// undo calls ArtifactRollback, ArtifactFailure and Cleanup. If the module is busy,
// the update stays open, and the next Rollback, Commit or Resume continues.
func (c *Client) undo(ctx context.Context, r *Record, failure bool) error {
	// An interrupted installation is still undone.
	ctx = context.WithoutCancel(ctx)
	if err := c.enter(r, modules.ArtifactRollback); err != nil {
		return err
	}
	rberr := c.run(ctx, modules.ArtifactRollback)
	if busy(rberr) {
		return fmt.Errorf("the rollback has not begun; mender-app resume finishes it: %w", rberr)
	}
	r.Open.Failed = rberr != nil
	if err := c.enter(r, modules.ArtifactFailure); err != nil {
		return err
	}
	ferr := c.run(ctx, modules.ArtifactFailure)
	if busy(ferr) {
		return errors.Join(rberr, fmt.Errorf("the rollback has not finished; mender-app resume finishes it: %w", ferr))
	}
	if rberr != nil {
		// The C++ client marks the artifact's name in the same way.
		if r.Installed.Before == nil && !strings.HasSuffix(r.Installed.ArtifactName, Inconsistent) {
			before := r.Installed.ArtifactName
			r.Installed.Before = &before
		}
		r.Installed.ArtifactName = strings.TrimSuffix(r.Open.ArtifactName, Inconsistent) + Inconsistent
		rberr = fmt.Errorf("the rollback failed: %w", rberr)
	}
	if err := c.enter(r, modules.Cleanup); err != nil {
		return err
	}
	return errors.Join(rberr, ferr, c.cleanup(ctx, r))
}

// Inconsistent is appended to the name of an artifact that was neither installed
// nor rolled back.
const Inconsistent = "_INCONSISTENT"

// Settled tells the client that a failed rollback was finished outside its calls: the
// record then says that the previous artifact is installed again. If no rollback had
// failed, Settled writes nothing. The caller holds the lock.
func (c *Client) Settled() error {
	r, err := c.Read()
	if err != nil || r.Open != nil || r.Installed.Before == nil {
		return err
	}
	r.Installed.ArtifactName, r.Installed.Before = *r.Installed.Before, nil
	return c.save(r)
}

// cleanup calls Cleanup and closes the update.
func (c *Client) cleanup(ctx context.Context, r *Record) error {
	if err := c.run(context.WithoutCancel(ctx), modules.Cleanup); err != nil {
		return err
	}
	if r != nil {
		r.Open = nil
		if err := c.save(r); err != nil {
			return err
		}
	}
	return durable.RemoveAll(c.tree())
}

func (c *Client) log(line string) {
	if c.Log != nil {
		c.Log(line)
	}
}
