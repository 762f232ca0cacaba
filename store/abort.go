package store

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/store/durable"
)

// abortsDir has the requests to end deployments, one file an application.
const abortsDir = "aborts"

// Abort is the request to end an open deployment and go back to the previous release. It
// names one deployment, so a request that is left over means nothing to a later one.
type Abort struct {
	Format     int       `json:"format"`
	Deployment string    `json:"deployment"` // its ID
	Started    time.Time `json:"started"`    // and its beginning
	Asked      *Asked    `json:"asked,omitempty"`
}

func (a *App) abortFile() string { return a.store.meta(abortsDir + "/" + a.Name + ".json") }

// Abort reads the request to end a deployment of the application; nil without one. It
// needs no lock.
func (a *App) Abort() (*Abort, error) {
	data, err := readFile(a.abortFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := new(Abort)
	if err := json.Unmarshal(data, r); err != nil {
		return nil, &CorruptError{a.abortFile(), err}
	}
	return r, nil
}

// RequestAbort asks for the end of the open deployment. It needs no lock: the process
// that works on the deployment holds it.
func (a *App) RequestAbort(asked *Asked) error {
	data, err := json.MarshalIndent(Abort{Format, a.Deployment.ID, a.Deployment.Started, asked}, "", "  ")
	if err != nil {
		return err
	}
	if err := durable.PrivateDir(a.store.meta(abortsDir)); err != nil {
		return err
	}
	return durable.WriteFile(a.abortFile(), append(data, '\n'), 0o600)
}

// DropAbort removes the request, if there is one. It needs no lock.
func (a *App) DropAbort() error {
	if _, err := os.Lstat(a.abortFile()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return durable.Remove(a.abortFile())
}

// DropAborts removes the requests of applications that have no open deployment: those that
// a kill left. The caller holds the lock.
func (s *Store) DropAborts() error {
	entries, err := os.ReadDir(s.meta(abortsDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok || names.Check(name) != nil {
			continue
		}
		if a, err := s.App(name); errors.Is(err, ErrNoApp) || err == nil && a.Deployment == nil {
			if err := durable.Remove(filepath.Join(s.meta(abortsDir), e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
