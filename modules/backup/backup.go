// Package backup writes and reads the file of mender-app backup: a tar compressed with
// zstd. Its members are, in this order:
//
//	values.json          what an operator set for all applications
//	APP/settings.json    what an operator decided about the application, and its history
//	APP/artifact.mender  its current release
//	APP/data.tar         its data; absent if it has none
//	index.json           the names, sizes and SHA-256 of the members above
//
// The second to the fourth are repeated for each application. A file from elsewhere is
// hostile: Verify reads it to its end before any part is used, and a Reader checks each
// member again on use. Memory is bounded.
//
// The package must not know how applications are stopped, started or installed.
package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact/clip"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/submodules"
)

// ErrFormat: the file is not a backup, or is damaged.
var ErrFormat = errors.New("bad backup")

func bad(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrFormat, fmt.Errorf(format, args...))
}

// The names of the members. An application's members are prefixed with its name and a slash.
const (
	NameValues   = "values.json"
	NameSettings = "settings.json"
	NameArtifact = "artifact.mender"
	NameData     = "data.tar"
	nameIndex    = "index.json"
)

// Format is the format that this version writes. It refuses newer ones.
const Format = 1

// Bounds on memory.
const (
	maxJSON   = 8 << 20 // bytes of a member that is JSON
	maxPlaces = 256
	// MaxApps is how many applications may be in a backup.
	MaxApps = 1000
	// window is the zstd window; a reader needs about as much memory.
	window = 1 << 20
)

// Settings are the content of settings.json.
type Settings struct {
	Application  string `json:"application"`
	ArtifactName string `json:"artifact_name"`
	Version      string `json:"application_version,omitempty"`
	// Stopped: an operator had stopped it.
	Stopped bool `json:"stopped,omitempty"`
	// Services are the services an operator switched on or off.
	Services  map[string]bool `json:"services,omitempty"`
	Overrides string          `json:"overrides,omitempty"` // the operator's
	// Values are the operator's values for this application.
	Values map[string]string `json:"values,omitempty"`
	// Places say where each directory of data.tar belongs. The directories are named by their index.
	Places []Place `json:"places,omitempty"`
	// History has the ended deployments, as in the store.
	History string `json:"history,omitempty"`
}

// Place is a volume or a directory with data.
type Place struct {
	Volume string `json:"volume,omitempty"` // as the manifests name it
	Dir    string `json:"dir,omitempty"`    // without Volume: its absolute path
}

func (s *Settings) check(app string) error {
	if s.Application != app {
		return bad("%s/%s is about %q", app, NameSettings, clip.Text(s.Application))
	}
	if len(s.Overrides) > submodules.MaxOverride {
		return bad("%s has an override of %d bytes", app, len(s.Overrides))
	}
	if len(s.Places) > maxPlaces {
		return bad("%s has data in %d places", app, len(s.Places))
	}
	for _, p := range s.Places {
		if (p.Volume == "") == (p.Dir == "") || p.Dir != "" && (!filepath.IsAbs(p.Dir) || filepath.Clean(p.Dir) != p.Dir) {
			return bad("%s has data in %q", app, clip.Text(p.Volume+p.Dir))
		}
	}
	return nil
}

// Member is one member in the index.
type Member struct {
	Name   string        `json:"name"`
	Size   int64         `json:"size"`
	Digest digest.Digest `json:"digest"`
}

// index is the last member.
type index struct {
	Format  int      `json:"format"`
	Members []Member `json:"members"`
}

// follows returns an error unless a member may follow the previous one, "" at the
// beginning. It returns the member's application, "" for none. Applications come in any
// order, each once.
func follows(before, name string, seen []string) (app string, err error) {
	if name == NameValues || name == nameIndex {
		if (name == NameValues) != (before == "") || strings.HasSuffix(before, "/"+NameSettings) {
			return "", bad("%s after %q", name, clip.Text(before))
		}
		return "", nil
	}
	app, part, _ := strings.Cut(name, "/")
	if names.CheckNew(app) != nil {
		return "", bad("a member %q", clip.Text(name))
	}
	last, _, _ := strings.Cut(before, "/")
	begins := before == NameValues || strings.HasSuffix(before, "/"+NameArtifact) || strings.HasSuffix(before, "/"+NameData)
	switch {
	case part == NameSettings && begins && len(seen) < MaxApps && !slices.Contains(seen, app):
	case part == NameArtifact && before == app+"/"+NameSettings && last == app:
	case part == NameData && before == app+"/"+NameArtifact:
	default:
		return "", bad("%q after %q", clip.Text(name), clip.Text(before))
	}
	return app, nil
}

// decode reads JSON and refuses anything after it.
func decode(name string, text []byte, v any) error {
	if err := json.Unmarshal(text, v); err != nil {
		return bad("%s: %s", name, clip.Text(err.Error()))
	}
	return nil
}
