package main

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"

	"github.com/mender-app/mender-app/modules/deploy"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/store/durable"
)

// presetFile records, in the store, what a restore sets before it installs an application.
const presetFile = "restore.json"

// preset is what a restore sets before it installs an application, with what was there
// before. It is recorded first, so that after a kill the next call takes it back, unless the
// application is installed then.
type preset struct {
	Format      int                     `json:"format"`
	Application string                  `json:"application"`
	Values      map[string]valuesBefore `json:"values"`            // by application; "" is all
	History     int                     `json:"history,omitempty"` // bytes of the history that the restore brings
}

// valuesBefore are the operator's values in the place of those that a restore sets.
type valuesBefore struct {
	Was   map[string]string `json:"was,omitempty"`
	Added []string          `json:"added,omitempty"` // names that had no value
}

// before returns what is in the place of the values in set.
func before(e *deploy.Engine, app string, set map[string]string) (b valuesBefore, err error) {
	list, err := e.Values.List(app)
	if err != nil {
		return b, err
	}
	there := operatorValues(list, app)
	for name := range set {
		if v, ok := there[name]; !ok {
			b.Added = append(b.Added, name)
		} else if b.Was == nil {
			b.Was = map[string]string{name: v}
		} else {
			b.Was[name] = v
		}
	}
	return b, nil
}

func (p *preset) record(s *store.Store) error {
	p.Format = store.Format
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	if err := durable.PrivateDir(s.Meta("")); err != nil {
		return err
	}
	return durable.WriteFile(s.Meta(presetFile), append(text, '\n'), 0o600)
}

// endPreset ends a restore, or one that was killed: if its application is not installed, what
// it had set is taken back.
func endPreset(ctx context.Context, e *deploy.Engine) error {
	text, err := os.ReadFile(e.Store.Meta(presetFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var p preset
	if err := json.Unmarshal(text, &p); err != nil {
		return &store.CorruptError{Path: e.Store.Meta(presetFile), Err: err}
	}
	switch a, err := e.Store.App(p.Application); {
	case err != nil && !errors.Is(err, store.ErrNoApp):
		return err
	case err == nil && a.Deployment != nil:
		return nil // its end decides
	case err != nil || a.Current == "":
		if err := p.undo(ctx, e); err != nil {
			return err
		}
	}
	return durable.Remove(e.Store.Meta(presetFile))
}

func (p *preset) undo(ctx context.Context, e *deploy.Engine) error {
	for app, v := range p.Values {
		if len(v.Was)+len(v.Added) == 0 {
			continue
		}
		list, err := e.Values.List(app)
		if err != nil {
			return err
		}
		there := operatorValues(list, app)
		v.Added = slices.DeleteFunc(v.Added, func(name string) bool { _, is := there[name]; return !is }) // the kill came before
		if err := e.Values.Change(ctx, app, v.Was, v.Added); err != nil {
			return err
		}
	}
	if p.History == 0 {
		return nil
	}
	release, err := e.Store.Lock(ctx, "restore of "+p.Application)
	if err != nil {
		return err
	}
	defer release()
	file := e.Store.HistoryFile(p.Application)
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	// What was added since is of the deployment that failed.
	if len(text) > p.History {
		return durable.WriteFile(file, text[p.History:], 0o600)
	}
	return durable.Remove(file)
}
