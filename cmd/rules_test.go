// Package cmd holds the programs, one directory each. Its only own code is
// this test of who may import whom: the rooms of docs/DESIGN.md stay apart
// because a build that joins them fails here.
package cmd

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/mender-app/mender-app"

// room says what the packages at and under a directory may import directly.
// The standard library and golang.org/x/sys (the kernel's calls) are open to all.
type room struct {
	dir string
	// own are other rooms of this module: "artifact" is that package alone,
	// "artifact/..." also what is below. Packages of one room see each other.
	own []string
	// others are modules or packages from outside, with all below them.
	others []string
}

// rooms: the longest directory that a package lies under is its room.
var rooms = []room{
	{dir: "store/durable"},
	{dir: "store", own: []string{"store/containermodules", "store/durable", "artifact/digest", "artifact/names", "artifact/quickjson"}},
	{dir: "store/containermodules", own: []string{"store/durable", "submodules/config", "artifact/names"}},
	{dir: "artifact", own: []string{"artifact/clip", "artifact/digest", "artifact/metered", "artifact/image", "artifact/names", "delta/deflate"}, others: []string{"github.com/klauspost/compress"}},
	{dir: "artifact/statement", own: []string{"artifact/clip", "artifact", "artifact/digest", "artifact/mender", "artifact/names"}},
	{dir: "artifact/mender", own: []string{"artifact/internal/xz"}, others: []string{"github.com/klauspost/compress"}},
	{dir: "artifact/internal/xz", others: []string{"github.com/ulikunitz/xz"}},
	{dir: "artifact/composemodule", own: []string{"artifact", "artifact/digest", "artifact/image"}},
	{dir: "artifact/clip"},
	{dir: "artifact/digest"},
	{dir: "docs/pictures"},
	{dir: "artifact/image", own: []string{"artifact/clip", "artifact/digest"}, others: []string{"github.com/klauspost/compress"}},
	{dir: "artifact/metered"},
	{dir: "artifact/names", own: []string{"artifact/clip"}},
	{dir: "artifact/quickjson"},
	{dir: "artifact/similar"},
	{dir: "artifact/version", own: []string{"artifact/clip"}, others: []string{"golang.org/x/mod/semver"}},
	{dir: "delta", own: []string{"artifact/digest"}}, // the nouns
	{dir: "delta/budget"},
	{dir: "delta/encoder", own: []string{"artifact/digest", "artifact/metered", "delta", "delta/budget", "delta/decoder", "delta/tarstore", "delta/deflate", "delta/elf"}},
	{dir: "delta/decoder", own: []string{"delta", "delta/deflate"}},
	{dir: "delta/tarstore", own: []string{"delta"}},
	{dir: "delta/internal", own: []string{"artifact/digest", "delta", "delta/budget", "delta/deflate", "delta/elf"}},
	{dir: "delta/deflate"},
	{dir: "delta/elf"},
	{dir: "delta/vcdiff"},
	{dir: "delta/bsdiff"},
	{dir: "submodules", own: []string{"artifact/digest", "artifact/names", "artifact/quickjson", "artifact/similar"}},
	{dir: "submodules/config", others: []string{"github.com/BurntSushi/toml"}}, // the configuration files
	{dir: "submodules/servicelog"},
	{dir: "submodules/secrets", own: []string{"submodules/config", "store/durable", "artifact/names"}, others: []string{"filippo.io/age"}},
	{dir: "submodules/conformance", own: []string{"artifact/digest", "submodules"}},
	{dir: "submodules/sandbox", others: []string{"github.com/landlock-lsm/go-landlock", "github.com/elastic/go-seccomp-bpf"}},
	{
		dir: "submodules/imagestore",
		own: []string{"artifact/digest", "artifact/metered", "submodules", "submodules/sandbox", "delta/...", "artifact/image", "store/durable"},
		others: []string{
			"github.com/docker/docker/client", "github.com/docker/docker/api", "github.com/containerd",
			"github.com/opencontainers", "github.com/vbatts/tar-split", "github.com/klauspost/compress",
		},
	},
	{
		dir:    "submodules/imagestore/storetest",
		own:    []string{"artifact/digest", "submodules", "submodules/imagestore", "delta", "delta/decoder", "delta/encoder", "artifact/image"},
		others: []string{"github.com/stretchr/testify"},
	},
	{
		dir: "submodules/compose",
		own: []string{"artifact/clip", "submodules", "submodules/config", "submodules/secrets", "submodules/servicelog", "submodules/imagestore/...", "artifact/image", "artifact/names", "store/containermodules", "store/durable"},
		others: []string{
			"github.com/compose-spec/compose-go", "github.com/docker/docker/api", "gopkg.in/yaml.v3",
		},
	},
	{
		dir:    "submodules/k8s",
		own:    []string{"artifact/clip", "submodules", "submodules/config", "submodules/secrets", "submodules/servicelog", "submodules/imagestore/...", "artifact/image", "artifact/names", "store/durable"},
		others: []string{"k8s.io", "sigs.k8s.io", "github.com/fluxcd/cli-utils/pkg/kstatus", "gopkg.in/yaml.v3", "gopkg.in/evanphx/json-patch.v4"},
	},
	{dir: "modules"},
	{dir: "modules/hooks", own: []string{"modules/policy", "submodules"}},
	{dir: "modules/policy", own: []string{"artifact/clip", "artifact/names", "artifact/version"}, others: []string{"github.com/BurntSushi/toml"}},
	{dir: "modules/client", own: []string{"artifact/clip", "modules", "artifact/mender", "store/durable"}},
	{dir: "modules/confined", own: []string{"submodules/sandbox"}},
	{dir: "modules/filedelta", own: []string{"artifact/digest", "delta", "delta/bsdiff", "delta/decoder", "delta/vcdiff", "modules/confined", "submodules/sandbox"}},
	{dir: "modules/imagedelta", own: []string{"artifact/image", "delta", "modules/confined", "submodules", "submodules/imagestore", "submodules/sandbox"}},
	{
		dir:    "modules/backup",
		own:    []string{"artifact", "artifact/clip", "artifact/digest", "artifact/image", "artifact/mender", "artifact/metered", "artifact/names", "artifact/statement", "store", "submodules"},
		others: []string{"github.com/klauspost/compress"},
	},
	{dir: "modules/staging", own: []string{"artifact", "artifact/digest", "artifact/mender", "artifact/version", "modules/policy", "store", "store/durable"}},
	{dir: "modules/reconcile", own: []string{"artifact/clip", "modules/policy", "store", "store/durable"}},
	{dir: "modules/view", own: []string{"modules/deploy/overrides", "modules/deploy/preloaded", "modules/deploy/switched", "modules/deploy/transition", "modules/deploy/values", "store", "submodules", "artifact/names", "artifact/statement", "artifact/version", "modules/staging"}},
	{dir: "modules/serve", own: []string{"artifact/names", "modules/reconcile", "modules/view", "modules/deploy/holds", "modules/deploy/space", "store", "submodules"}},
	{
		dir: "modules/deploy",
		own: []string{"modules", "modules/filedelta", "modules/hooks", "modules/imagedelta", "modules/policy", "store/...", "artifact/...", "submodules"},
	},
	{
		dir: "generator",
		own: []string{"artifact/...", "delta/...", "modules/policy", "submodules/k8s/marks", "submodules/k8s/service"},
		others: []string{
			"github.com/google/go-containerregistry", "github.com/compose-spec/compose-go", "github.com/klauspost/compress",
			"gopkg.in/yaml.v3", "github.com/BurntSushi/toml", "github.com/mattn/go-shellwords",
			"github.com/CycloneDX/cyclonedx-go", "filippo.io/age", "github.com/moby/patternmatcher",
		},
	},
}

// free are the directories that may import anything.
var free = []string{"cmd", "testdata", "examples"}

// devicePrograms run on the device, where build-host libraries have no place.
var devicePrograms = []string{"cmd/app", "cmd/docker-compose", "cmd/k8s", "cmd/mender-app"}

var neverOnDevice = []string{"github.com/gabstv/go-bsdiff", "github.com/google/go-containerregistry", "github.com/CycloneDX/cyclonedx-go",
	module + "/delta/encoder", module + "/delta/internal/align", module + "/delta/internal/lz/parse"}

type goPackage struct {
	ImportPath string
	Standard   bool
	Imports    []string
	Deps       []string
}

// touchSources opens every source file: go test keeps a result only as long as
// the files that the test itself opened stay the same, and go list is another
// process.
func touchSources(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == ".git" || e.Name() == "build"):
			return filepath.SkipDir
		case strings.HasSuffix(path, ".go") || e.Name() == "go.mod":
			_, err = os.ReadFile(path)
		}
		return err
	})
	require.NoError(t, err)
}

func listPackages(t *testing.T) map[string]goPackage {
	t.Helper()
	touchSources(t)
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Standard,Imports,Deps", module+"/...")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s", stderr.String())
	pkgs := map[string]goPackage{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p goPackage
		require.NoError(t, dec.Decode(&p))
		pkgs[p.ImportPath] = p
	}
	return pkgs
}

func under(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, dir+"/")
}

func roomOf(dir string) (room, bool) {
	var best room
	for _, r := range rooms {
		if under(dir, r.dir) && len(r.dir) > len(best.dir) {
			best = r
		}
	}
	return best, best.dir != ""
}

func (r room) allows(imported string, standard bool) bool {
	if standard || under(imported, "golang.org/x/sys") {
		return true
	}
	if dir, ours := strings.CutPrefix(imported, module+"/"); ours {
		if strings.Contains(dir, "/internal/") {
			return true // Go itself says who may
		}
		if home, _ := roomOf(dir); home.dir == r.dir {
			return true
		}
	}
	return slices.ContainsFunc(slices.Concat(r.own, r.others), func(p string) bool { return r.permits(p, imported) })
}

// permits reports whether one entry of own or others allows an import.
func (r room) permits(permission, imported string) bool {
	dir, ours := strings.CutPrefix(imported, module+"/")
	if !ours {
		return slices.Contains(r.others, permission) && under(versionless(imported), permission)
	}
	if home, _ := roomOf(dir); home.dir == r.dir || !slices.Contains(r.own, permission) {
		return false // the room's own packages need no permission
	}
	if tree, whole := strings.CutSuffix(permission, "/..."); whole {
		return under(dir, tree)
	}
	return dir == permission
}

// versionless takes a major version element (/v2) out of an import path.
func versionless(path string) string {
	parts := strings.Split(path, "/")
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool {
		return len(p) > 1 && p[0] == 'v' && strings.Trim(p[1:], "0123456789") == ""
	}), "/")
}

func TestRoomsImportOnlyWhatTheyMayKnow(t *testing.T) {
	pkgs := listPackages(t)
	for path, p := range pkgs {
		dir, ours := strings.CutPrefix(path, module+"/")
		if !ours || slices.ContainsFunc(free, func(f string) bool { return under(dir, f) }) {
			continue
		}
		r, known := roomOf(dir)
		if !known {
			t.Errorf("%s lies in no room of docs/DESIGN.md", dir)
			continue
		}
		for _, imported := range p.Imports {
			if !r.allows(imported, pkgs[imported].Standard || imported == "C" || imported == "unsafe") {
				t.Errorf("%s (room %s) may not import %s", dir, r.dir, imported)
			}
		}
	}
}

// A permission that no package of the room uses is an error: nobody would notice
// the import that uses it one day.
func TestRoomsNeedWhatTheyMayKnow(t *testing.T) {
	used := map[string]map[string]bool{} // room → permission
	for path, p := range listPackages(t) {
		dir, ours := strings.CutPrefix(path, module+"/")
		r, known := roomOf(dir)
		if !ours || !known {
			continue
		}
		if used[r.dir] == nil {
			used[r.dir] = map[string]bool{}
		}
		for _, imported := range p.Imports {
			for _, permission := range slices.Concat(r.own, r.others) {
				if r.permits(permission, imported) {
					used[r.dir][permission] = true
				}
			}
		}
	}
	for _, r := range rooms {
		if used[r.dir] == nil {
			t.Errorf("the room %s has no packages", r.dir)
		}
		for _, permission := range slices.Concat(r.own, r.others) {
			if !used[r.dir][permission] {
				t.Errorf("room %s may import %s, and does not", r.dir, permission)
			}
		}
	}
}

func TestNoBuildHostLibraryOnTheDevice(t *testing.T) {
	pkgs := listPackages(t)
	for _, program := range devicePrograms {
		for _, dep := range pkgs[module+"/"+program].Deps {
			for _, never := range neverOnDevice {
				if under(dep, never) {
					t.Errorf("%s reaches %s", program, dep)
				}
			}
		}
	}
}

func TestSubmodulesDoNotReachModules(t *testing.T) {
	for path, p := range listPackages(t) {
		if !under(path, module+"/submodules") {
			continue
		}
		for _, dep := range p.Deps {
			if under(dep, module+"/modules") {
				t.Errorf("%s reaches %s", path, dep)
			}
		}
	}
}

// The decoder is small because it shares only the codec with the encoder.
func TestDecoderDoesNotReachTheEncoder(t *testing.T) {
	pkgs := listPackages(t)
	for _, path := range []string{"delta", "delta/decoder", "delta/tarstore", "delta/internal/codec"} {
		p, ok := pkgs[module+"/"+path]
		require.True(t, ok, path)
		for _, never := range []string{"delta/encoder", "delta/internal/align", "delta/internal/lz/parse"} {
			if slices.Contains(p.Deps, module+"/"+never) {
				t.Errorf("%s reaches %s", path, never)
			}
		}
	}
	// All that the nouns reach beside the standard library is the type of digests.
	for _, dep := range pkgs[module+"/delta"].Deps {
		if !pkgs[dep].Standard && dep != module+"/artifact/digest" {
			t.Errorf("the nouns of delta reach %s", dep)
		}
	}
}
