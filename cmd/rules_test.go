// Package cmd holds the programs, one directory each. Its own code is the tests
// of what holds for all of them.
package cmd

import (
	"encoding/json"
	"go/ast"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/mender-app/mender-app"

// rule forbids packages to reach others, directly or through what they import.
// Directories of this module are written without its path; an entry includes
// all that is below it.
type rule struct {
	why   string
	from  []string
	never []string
	// but are exceptions: packages that from may reach all the same.
	but []string
}

var rules = []rule{
	{
		why:   "a sub-module is driven through PROTOCOL.md alone",
		from:  []string{"submodules"},
		never: []string{"modules"},
	},
	{
		why:   "the module of a Mender client has no room for HTTP",
		from:  []string{"cmd/app"},
		never: []string{"net/http"},
	},
	{
		why:  "a device has no room for the libraries of a build host",
		from: []string{"cmd/app", "cmd/docker-compose", "cmd/k8s", "cmd/mender-app"},
		never: []string{
			"generator", "submodules/conformance", "delta/encoder", "delta/internal/align", "delta/internal/lz/parse",
			"github.com/gabstv/go-bsdiff", "github.com/google/go-containerregistry", "github.com/CycloneDX/cyclonedx-go", "sigs.k8s.io/kustomize", "helm.sh/helm",
		},
	},
	{
		why:   "a released program cannot be told to fail",
		from:  []string{"cmd/app", "cmd/docker-compose", "cmd/k8s", "cmd/mender-app", "cmd/app-gen", "cmd/app-conformance"},
		never: []string{"store/durable/faults"},
	},
	{
		why:   "the decoder shares only the codec with the encoder, so that it stays small",
		from:  []string{"delta/decoder", "delta/tarstore", "delta/internal/codec"},
		never: []string{"delta/encoder", "delta/internal/align", "delta/internal/lz/parse"},
	},
	{
		why:   "the nouns of a delta import no codec",
		from:  []string{"=delta"},
		never: []string{""},
		but:   []string{"delta", "artifact/digest"},
	},
	{
		why:   "a delta knows neither engines nor Mender nor stores",
		from:  []string{"delta"},
		never: []string{"modules", "submodules", "store", "generator", "cmd", "github.com/docker", "github.com/containerd"},
	},
	{
		why:   "the store knows neither orchestrators nor Mender",
		from:  []string{"store"},
		never: []string{"modules", "submodules", "generator"},
		but:   []string{"submodules/config"},
	},
	{
		why:   "a build host does not link what changes a device",
		from:  []string{"generator"},
		never: []string{"modules", "submodules", "store"},
		but:   []string{"modules/policy", "submodules/k8s/manifest", "submodules/k8s/marks", "submodules/k8s/reach", "submodules/level", "submodules/compose/rules"},
	},
	{
		why:   "a policy decides and changes nothing",
		from:  []string{"modules/policy"},
		never: []string{"modules", "submodules", "store", "os/exec"},
		but:   []string{"modules/policy"},
	},
	{
		why:   "a deployment can be understood without the operator's extras",
		from:  []string{"modules/deploy"},
		never: []string{"modules/backup", "modules/reconcile", "modules/view", "modules/staging", "modules/serve", "modules/client", "cmd"},
	},
}

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

// matches reports whether a package is one that an entry of a rule names: "" is
// every package outside the standard library, "=DIR" a directory without what is
// below it.
func matches(entry string, p goPackage) bool {
	dir := strings.TrimPrefix(p.ImportPath, module+"/")
	if only, ok := strings.CutPrefix(entry, "="); ok {
		return dir == only
	}
	return entry == "" && !p.Standard || entry != "" && under(dir, entry)
}

func (r rule) forbids(from, p goPackage) bool {
	is := func(entry string) bool { return matches(entry, p) }
	return p.ImportPath != from.ImportPath && slices.ContainsFunc(r.never, is) && !slices.ContainsFunc(r.but, is)
}

func TestImports(t *testing.T) {
	pkgs := listPackages(t)
	for _, r := range rules {
		for _, entry := range slices.Concat(r.from, r.but) {
			require.True(t, slices.ContainsFunc(slices.Collect(maps.Values(pkgs)), func(p goPackage) bool { return matches(entry, p) }), "no package is %s", entry)
		}
		for _, p := range pkgs {
			if !strings.HasPrefix(p.ImportPath, module+"/") || !slices.ContainsFunc(r.from, func(entry string) bool { return matches(entry, p) }) {
				continue
			}
			for _, dep := range p.Deps {
				if r.forbids(p, pkgs[dep]) {
					t.Errorf("%s reaches %s: %s", p.ImportPath, dep, r.why)
				}
			}
		}
	}
}

// The scripts of these programs start the test binary as the program, thousands of times.
// With the libraries of a build host each start would take three times as long.
func TestTestBinariesThatAreProgramsAreSmall(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", "-test", "./mender-app", "./app")
	out, err := cmd.Output()
	require.NoError(t, err)
	deps := strings.Fields(string(out))
	require.Contains(t, deps, module+"/cmd/internal/devicetest")
	for _, heavy := range []string{"=generator", "k8s.io/client-go", "helm.sh/helm"} {
		require.False(t, slices.ContainsFunc(deps, func(dep string) bool { return matches(heavy, goPackage{ImportPath: dep}) }), "%s is linked", heavy)
	}
}

// renames are the calls that put a file into place.
var renames = []string{"Rename", "Renameat", "Renameat2"}

// Files are put into place by store/durable, which syncs the directory, or by
// artifact/output,
// which replaces nothing but regular files, where a person names them. What works in a
// directory of its own may rename.
func TestOnlyDurableAndOutputRename(t *testing.T) {
	mayRename := []string{
		"store/durable", "store/durable/fulltree", "artifact/output",
		"modules/deploy",     // an archive that is unpacked for one call
		"generator/source",   // the cache
		"submodules/secrets", // a directory on a tmpfs
	}
	for _, f := range parseModule(t) {
		if f.test || under(f.dir, "testdata") || under(f.dir, "examples") || slices.Contains(mayRename, f.dir) {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if from, ok := call.X.(*ast.Ident); ok && (from.Name == "os" || from.Name == "unix") && slices.Contains(renames, call.Sel.Name) {
				t.Errorf("%s calls %s.%s; store/durable or artifact/output does that", f.dir, from.Name, call.Sel.Name)
			}
			return true
		})
	}
}
