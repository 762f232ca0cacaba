package settings

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules"
)

// This file keeps what the device and an operator set for all applications, or for one:
// values by name, which hooks and manifests use. It must not know how they are used.

// Values is where values come from. The zero Source has none.
type Values struct {
	Store *store.Store // the operator's
	Dir   string       // the device's: DIR/*.env for all, DIR/APP/*.env for one; "": there are none
}

// Value is a value and who set it.
type Value struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Of is the device or the operator, and For the application, "" for all.
	Of  string `json:"of"`
	For string `json:"for,omitempty"`
}

// Enabled is the value that says whether an application may run at all. Manifests do not
// use it.
const Enabled = "enabled"

// Who sets values.
const (
	Device   = "device"
	Operator = "operator"
)

// valuesContent is the operator's file in the store, see store/FORMAT.md.
type valuesContent struct {
	Format       int                          `json:"format"`
	All          map[string]string            `json:"all,omitempty"`
	Applications map[string]map[string]string `json:"applications,omitempty"`
}

const (
	valuesDir    = "values"
	valuesFile   = "values.json"
	valuesFormat = 1
)

// List lists the values of an application, or with "" those for all, by name. Of one name
// the last in this order counts: the device's for all, the device's for the application, the
// operator's for all, and the operator's for the application. The error is about files that
// are left out.
func (s Values) List(app string) ([]Value, error) {
	set := map[string]Value{}
	add := func(of, whose string, values map[string]string) {
		for name, v := range values {
			set[name] = Value{name, v, of, whose}
		}
	}
	var bad error
	for _, whose := range slices.Compact([]string{"", app}) {
		values, err := s.device(whose)
		bad = errors.Join(bad, err)
		add(Device, whose, values)
	}
	c, err := s.read()
	bad = errors.Join(bad, err)
	add(Operator, "", c.All)
	if app != "" {
		add(Operator, app, c.Applications[app])
	}
	return slices.SortedFunc(maps.Values(set), func(a, b Value) int { return cmp.Compare(a.Name, b.Name) }), bad
}

// For are the values of an application, "" for all. What cannot be read is logged.
func (s Values) For(log *slog.Logger, app string) map[string]string {
	list, err := s.List(app)
	if err != nil {
		log.Error("values are left out", "app", app, "error", err)
	}
	return ByName(list)
}

// ByName are the values of a list, by their names.
func ByName(list []Value) map[string]string {
	values := map[string]string{}
	for _, v := range list {
		values[v.Name] = v.Value
	}
	return values
}

// device reads the device's files for an application, or with "" those for all, in the order
// of their names.
func (s Values) device(app string) (values map[string]string, bad error) {
	if s.Dir == "" {
		return nil, nil
	}
	files, err := filepath.Glob(filepath.Join(s.Dir, app, "*.env"))
	if err != nil {
		return nil, err
	}
	values = map[string]string{}
	for _, f := range files {
		text, err := readTrusted(f, submodules.MaxValuesFile)
		more := map[string]string{}
		if err == nil {
			more, err = submodules.ParseValues(f, text)
		}
		if err != nil {
			bad = errors.Join(bad, err)
			continue
		}
		maps.Copy(values, more)
	}
	return values, bad
}

func (s Values) path() string { return filepath.Join(s.Store.Meta(valuesDir), valuesFile) }

func (s Values) read() (c valuesContent, err error) {
	if s.Store == nil {
		return c, nil
	}
	data, err := os.ReadFile(s.path())
	if errors.Is(err, fs.ErrNotExist) {
		return valuesContent{Format: valuesFormat}, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	if err == nil && c.Format != valuesFormat {
		err = fmt.Errorf("format %d: a newer mender-app wrote it", c.Format)
	}
	if err != nil {
		return valuesContent{}, fmt.Errorf("%s: %w", s.path(), err)
	}
	return c, nil
}

// ErrNoValue: there is no such value.
var ErrNoValue = errors.New("no such value")

// Change sets and removes values of the operator, for an application or with "" for all.
func (s Values) Change(ctx context.Context, app string, set map[string]string, remove []string) error {
	release, err := s.Store.Lock(ctx, "values")
	if err != nil {
		return err
	}
	defer release()
	c, err := s.read()
	if err != nil {
		return err
	}
	values := c.All
	if app != "" {
		values = c.Applications[app]
	}
	values = maps.Clone(values)
	if values == nil {
		values = map[string]string{}
	}
	for name, v := range set {
		if err := submodules.CheckValue(name, v); err != nil {
			return err
		}
		values[name] = v
	}
	for _, name := range remove {
		if _, there := values[name]; !there {
			return fmt.Errorf("%w: %s", ErrNoValue, name)
		}
		delete(values, name)
	}
	if len(values) > submodules.MaxValues {
		return fmt.Errorf("there are more than %d values", submodules.MaxValues)
	}
	switch {
	case app == "":
		c.All = values
	case len(values) == 0:
		delete(c.Applications, app)
	default:
		if c.Applications == nil {
			c.Applications = map[string]map[string]string{}
		}
		c.Applications[app] = values
	}
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	if err := durable.PrivateDir(s.Store.Meta(valuesDir)); err != nil {
		return err
	}
	if err := durable.Sweep(s.Store.Meta(valuesDir)); err != nil {
		return err
	}
	return durable.WriteFile(s.path(), append(data, '\n'), 0o600)
}

// Bounds of what is searched for the names of values.
const (
	maxFile  = 1 << 20
	maxFiles = 4096
)

// Used returns the values of an application whose names are words in its manifests or
// overrides, or nil. A file that is too long to be searched counts as naming all.
func (s Values) Used(log *slog.Logger, app, manifests string, layers []submodules.Override) map[string]string {
	all := s.For(log, app)
	delete(all, Enabled)
	if len(all) == 0 {
		return nil
	}
	used := map[string]string{}
	search := func(text []byte) {
		for name, v := range all {
			if _, found := used[name]; !found && namesWord(text, name) {
				used[name] = v
			}
		}
	}
	for _, l := range layers {
		search([]byte(l.Text))
	}
	if real, err := filepath.EvalSymlinks(manifests); err == nil {
		manifests = real
	}
	searched := 0
	err := filepath.WalkDir(manifests, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || len(used) == len(all) {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if searched++; info.Size() > maxFile || searched > maxFiles {
			maps.Copy(used, all)
			return fs.SkipAll
		}
		text, err := os.ReadFile(path)
		search(text)
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Error("manifests cannot be searched for values", "app", app, "error", err)
	}
	if len(used) == 0 {
		return nil
	}
	return used
}

// namesWord reports whether a text has a name as a word.
func namesWord(text []byte, name string) bool {
	word := func(i int) bool {
		return i >= 0 && i < len(text) && (text[i] == '_' || text[i] >= '0' && text[i] <= '9' || text[i]|0x20 >= 'a' && text[i]|0x20 <= 'z')
	}
	for from := 0; ; {
		i := bytes.Index(text[from:], []byte(name))
		if i < 0 {
			return false
		}
		i += from
		if !word(i-1) && !word(i+len(name)) {
			return true
		}
		from = i + 1
	}
}

// ValuesFingerprint names values; "" for none.
func ValuesFingerprint(values map[string]string) string {
	if len(values) == 0 {
		return ""
	}
	sum := sha256.Sum256(submodules.EncodeValues(values))
	return hex.EncodeToString(sum[:])
}

// LacksValues says that a sub-module cannot use values.
func LacksValues(app string, info submodules.Info, orchestrator string) error {
	if info.Has(submodules.FeatureValues) {
		return nil
	}
	return fmt.Errorf("the sub-module %s of %s has no values (feature %s): update it, or write them into the manifests", orchestrator, app, submodules.FeatureValues)
}
