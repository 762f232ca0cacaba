package settings

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/mender-app/mender-app/artifact/input"
	"github.com/mender-app/mender-app/modules/facts"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// This file keeps what the device and an operator change in the manifests of an
// application: layers that stay over updates and rollbacks. It must not know how they are
// applied.

// OperatorLayer is the name of the operator's layer, the last one.
const OperatorLayer = "operator.yaml"

// Layers are the overrides of a release, in the order in which they are applied: the files
// in dir/APP, and that of the operator. The error is about files that are left out. An
// application that is not installed yet is nil.
func Layers(log *slog.Logger, dir string, a *store.App, app string, r *store.Release) ([]submodules.Override, error) {
	list, err := deviceLayers(dir, app)
	if a == nil || a.Overrides == nil {
		return list, err
	}
	if a.Overrides.Release != r.ID && !facts.PolicyOf(log, app, r).KeepsOverrides(r.KeepOverrides) {
		return list, err
	}
	return append(list, submodules.Override{Name: OperatorLayer, Text: a.Overrides.Text}), err
}

// deviceLayers reads the layers of the device: the files *.yaml and *.yml in dir/APP.
func deviceLayers(dir, app string) (list []submodules.Override, bad error) {
	if dir == "" {
		return nil, nil
	}
	dir = filepath.Join(dir, app)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); e.Name()[0] == '.' || ext != ".yaml" && ext != ".yml" {
			continue
		}
		file := filepath.Join(dir, e.Name())
		text, err := readTrusted(file, submodules.MaxOverride)
		if err == nil && len(list) == submodules.MaxOverrides-1 {
			err = fmt.Errorf("%s has more than %d overrides", dir, submodules.MaxOverrides-1)
		}
		if err != nil {
			bad = errors.Join(bad, err)
			continue
		}
		list = append(list, submodules.Override{Name: "device-" + e.Name(), Text: string(text)})
	}
	return list, bad
}

// LayersFingerprint names overrides; "" for none.
func LayersFingerprint(layers []submodules.Override) string {
	if len(layers) == 0 {
		return ""
	}
	h := sha256.New()
	for _, l := range layers {
		fmt.Fprintf(h, "%q %q\n", l.Name, l.Text)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// ReadLayer reads a file with an override.
func ReadLayer(file string) (string, error) {
	text, err := input.Read(file, submodules.MaxOverride)
	return string(text), err
}

// LacksOverrides refuses overrides where the sub-module has none.
func LacksOverrides(app string, layers []submodules.Override, info submodules.Info, orchestrator string) error {
	if len(layers) == 0 || info.Has(submodules.FeatureOverrides) && info.Has(submodules.FeatureCheck) {
		return nil
	}
	return fmt.Errorf("the sub-module %s has no overrides: update it%s", orchestrator, orClear(app, layers))
}

// UnfitLayers says how to go on where the layers do not fit a release.
func UnfitLayers(app, release string, layers []submodules.Override, cause error) error {
	return fmt.Errorf("the overrides of %s do not fit release %s (%v): change them%s", app, release, cause, orClear(app, layers))
}

func orClear(app string, layers []submodules.Override) string {
	for _, l := range layers {
		if l.Name == OperatorLayer {
			return fmt.Sprintf(", or mender-app overrides clear %s, or mender-app install --reuse-overrides=false", app)
		}
	}
	return fmt.Sprintf(", or remove %s", layers[0].Name)
}

// ChooseLayer records the operator's layer, "" for none, and makes it durable. back takes it
// back.
func ChooseLayer(a *store.App, text string) (back func() error, err error) {
	before := a.Overrides
	a.Overrides = nil
	if text != "" {
		a.Overrides = &store.Overrides{Text: text, Release: a.Current}
	}
	return func() error { a.Overrides = before; return a.Save() }, a.Save()
}
