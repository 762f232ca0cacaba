package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/store/durable"
)

// Release is one version of an application on the device, release.json.
type Release struct {
	Format       int    `json:"format"`
	ID           string `json:"id"`
	Application  string `json:"application"`
	ArtifactName string `json:"artifact_name,omitempty"`
	// Version is the application's version; "" if the artifact has none.
	Version      string            `json:"application_version,omitempty"`
	Orchestrator string            `json:"orchestrator"`
	Platform     string            `json:"platform,omitempty"`
	Env          map[string]string `json:"env,omitempty"` // for the sub-module, from the artifact
	Components   []Component       `json:"components,omitempty"`
	// Policy is the artifact's policy as in its metadata; nil for none.
	Policy json.RawMessage `json:"policy,omitempty"`
	// Statement is the artifact's statement as in its metadata. It says what the release
	// is, signed by its maker (package statement); nil for none.
	Statement json.RawMessage `json:"statement,omitempty"`
	// Provides is what a Mender client records when the artifact is committed; nil: unknown.
	Provides map[string]string `json:"provides,omitempty"`
	// KeepServices and KeepOverrides are a person's choice at the installation, which
	// overrides the policy; nil: no choice.
	KeepServices  *bool     `json:"keep_services,omitempty"`
	KeepOverrides *bool     `json:"keep_overrides,omitempty"`
	Created       time.Time `json:"created"`
	// BootID is the boot of the machine in which its download began. If the release is
	// not Complete, it was not made durable in that boot.
	BootID string `json:"boot_id,omitempty"`
	// Complete: every component was loaded, verified and synced, and the
	// manifests are durable.
	Complete bool `json:"complete,omitempty"`
	// Adopted: the shell reference installed it.
	Adopted bool `json:"adopted,omitempty"`
	// Unstarted: the device installed it automatically over a release that was only
	// loaded. It is only loaded too, whatever its policy says.
	Unstarted bool `json:"unstarted,omitempty"`

	extra extra
}

// Component is one part of a release. Digest and DiffIDs identify it; the URL is
// only its name in the manifests.
type Component struct {
	Type    string          `json:"type"`
	URL     string          `json:"url"`
	Digest  digest.Digest   `json:"digest,omitempty"`
	DiffIDs []digest.Digest `json:"diff_ids,omitempty"`
}

type plainRelease Release

// UnmarshalJSON also keeps unknown fields, for MarshalJSON.
func (r *Release) UnmarshalJSON(data []byte) (err error) {
	r.extra, err = decode(data, (*plainRelease)(r))
	return err
}

// MarshalJSON also writes the unknown fields that UnmarshalJSON kept.
func (r Release) MarshalJSON() ([]byte, error) { return encode(plainRelease(r), r.extra) }

func (a *App) releaseDir(id string) string { return filepath.Join(a.Dir(), releasesDir, id) }

// ReleaseManifests is the directory of a release's manifests. PutRelease creates
// it.
func (a *App) ReleaseManifests(id string) string {
	return filepath.Join(a.releaseDir(id), manifestsName)
}

// PutRelease writes release.json and creates the release's directories.
func (a *App) PutRelease(r *Release) error {
	if err := names.Check(r.ID); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	r.Format, r.Application = Format, a.Name
	data, err := marshal(r)
	if err != nil {
		return fmt.Errorf("release %s: %w", r.ID, err)
	}
	if err := durable.MkdirAll(a.releaseDir(r.ID), 0o700); err != nil {
		return fmt.Errorf("release %s: %w", r.ID, err)
	}
	// A service may mount the directory itself, and read it as any user.
	if err := durable.MkdirAll(a.ReleaseManifests(r.ID), 0o755); err != nil {
		return fmt.Errorf("release %s: %w", r.ID, err)
	}
	if err := durable.WriteFile(filepath.Join(a.releaseDir(r.ID), releaseFile), data, 0o600); err != nil {
		return fmt.Errorf("release %s: %w", r.ID, err)
	}
	return nil
}

// SyncRelease makes everything in a release's directory durable.
func (a *App) SyncRelease(id string) error { return durable.SyncTree(a.releaseDir(id)) }

// Release reads a release, from its copy if its record is lost. The error is an
// ErrNoRelease, an ErrNewer or a *CorruptError. It needs no lock.
func (a *App) Release(id string) (*Release, error) {
	if err := names.Check(id); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoRelease, err)
	}
	path := filepath.Join(a.releaseDir(id), releaseFile)
	data, err := readFile(path)
	if err == nil {
		var r *Release
		if r, err = parseRelease(id, path, data); err == nil || errors.Is(err, ErrNewer) {
			return r, err
		}
	}
	if data, cerr := a.copiedRelease(id); cerr == nil {
		return parseRelease(id, path, data)
	}
	if errors.Is(err, fs.ErrNotExist) && id == a.Current {
		return nil, fmt.Errorf("%w: %s of %s: its files are gone from %s: install it or another release (mender-app install FILE)", ErrNoRelease, id, a.Name, filepath.Dir(path))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s of %s", ErrNoRelease, id, a.Name)
	}
	return nil, err
}

// IsGone reports whether nothing is left that says what a release is.
func (a *App) IsGone(id string) bool {
	_, err := a.Release(id)
	return errors.Is(err, ErrNoRelease)
}

func parseRelease(id, path string, data []byte) (*Release, error) {
	var r Release
	if err := r.UnmarshalJSON(data); err != nil {
		return nil, &CorruptError{path, err}
	}
	if r.Format > Format {
		return nil, fmt.Errorf("%s: %w", path, ErrNewer)
	}
	r.ID = id
	return &r, nil
}

// Releases lists the names of all releases that have a directory, in any state,
// the newest first.
func (a *App) Releases() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(a.Dir(), releasesDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var ids []string
	for _, e := range entries {
		if e.IsDir() && names.Check(e.Name()) == nil {
			ids = append(ids, e.Name())
		}
	}
	slices.SortFunc(ids, func(x, y string) int { return int(max(-1, min(1, Number(y)-Number(x)))) })
	return ids, nil
}

// RemoveRelease deletes a release's directory. Delete its components first, because
// the directory is the only record of them.
func (a *App) RemoveRelease(id string) error {
	if err := names.Check(id); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	return durable.RemoveAll(a.releaseDir(id))
}

// Sweep removes what an interrupted write left in the application's
// directories.
func (a *App) Sweep() error {
	dirs := []string{a.Dir(), filepath.Join(a.Dir(), releasesDir)}
	ids, err := a.Releases()
	if err != nil {
		return err
	}
	for _, id := range ids {
		dirs = append(dirs, a.releaseDir(id), filepath.Join(a.releaseDir(id), savedDir))
	}
	for _, dir := range dirs {
		if err := durable.Sweep(dir); err != nil {
			return err
		}
	}
	return nil
}
