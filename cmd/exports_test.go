package cmd

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// forTests are exported names of the programs' packages that no program uses, and
// that are needed.
var forTests = []string{
	"delta/deflate.NewWriter",     // tests of three packages make streams
	"delta/encoder.Deflated",      // testdata/corpus/compressed counts
	"generator/machine.HasEngine", // tests look for what containers have left
	"store/durable.Inject",        // tests make a write fail
}

// calledByName are methods that the standard library or another module calls
// through an interface of its own.
var calledByName = []string{
	"Error", "Is", "As", "Unwrap", "String", "Format", "Read", "ReadAt", "Write", "WriteString", "Close", "Seek", "ReadFrom", "WriteTo", "ReadByte",
	"MarshalJSON", "UnmarshalJSON", "UnmarshalTOML", "MarshalText", "UnmarshalText", "MarshalYAML", "UnmarshalYAML", "Len", "Less", "Swap", "Sum", "Reset", "Size", "BlockSize",
	"RoundTrip", "ServeHTTP", "Accept", "ServerGroupsAndResources", "Set", "Type", "Enabled", "Handle", "WithAttrs", "WithGroup", "Public", "Sign", "Temporary", "Timeout", "Exists", "CleanedAbs", "RawManifest",
}

// file is a parsed source file of this module.
type file struct {
	dir  string // of its package, from the module's root
	test bool
	ast  *ast.File
}

func parseModule(t *testing.T) (files []file) {
	t.Helper()
	set := token.NewFileSet()
	require.NoError(t, filepath.WalkDir("..", func(p string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == ".git" || e.Name() == "build" || p == "../testdata/powercut/disk"): // the disk is a module of its own
			return filepath.SkipDir
		case !strings.HasSuffix(p, ".go"):
			return nil
		}
		f, err := parser.ParseFile(set, p, nil, parser.SkipObjectResolution)
		if err == nil {
			dir, _ := filepath.Rel("..", filepath.Dir(p))
			files = append(files, file{filepath.ToSlash(dir), strings.HasSuffix(p, "_test.go"), f})
		}
		return err
	}))
	return files
}

// imports returns the directories of this module that a file imports, by the
// names that the file has for them.
func (f file) imports() map[string]string {
	dirs := map[string]string{}
	for _, i := range f.ast.Imports {
		full, _ := strconv.Unquote(i.Path.Value)
		dir, ours := strings.CutPrefix(full, module+"/")
		if !ours {
			continue
		}
		name := path.Base(dir)
		if i.Name != nil {
			name = i.Name.Name
		}
		dirs[name] = dir
	}
	return dirs
}

// inPrograms returns the directories whose packages are part of a program. The
// other ones are there for tests.
func inPrograms(files []file) map[string]bool {
	imports := map[string][]string{}
	reached, next := map[string]bool{}, []string{}
	for _, f := range files {
		if f.test {
			continue
		}
		imports[f.dir] = append(imports[f.dir], slices.Collect(maps.Values(f.imports()))...)
		if f.ast.Name.Name == "main" {
			next = append(next, f.dir)
		}
	}
	for len(next) > 0 {
		dir := next[0]
		next = next[1:]
		if !reached[dir] && !strings.HasPrefix(dir, "testdata/") {
			reached[dir] = true
			next = append(next, imports[dir]...)
		}
	}
	return reached
}

// exports calls each for every exported function, type, constant, variable and
// method that f declares. part is what of the file declares it alone.
func (f file) exports(each func(name string, method bool, part ast.Node)) {
	for _, d := range f.ast.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() {
				each(d.Name.Name, d.Recv != nil, d)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() {
						each(s.Name.Name, false, s)
					}
				case *ast.ValueSpec:
					for _, n := range s.Names {
						if n.IsExported() {
							each(n.Name, false, s)
						}
					}
				}
			}
		}
	}
}

// usesIn counts what a part of the file names: "dir.Name" of packages of this
// module, ".Name" of what is behind a dot or in an interface.
func (f file) usesIn(part ast.Node) map[string]int {
	uses, dirs := map[string]int{}, f.imports()
	var visit func(ast.Node) bool
	visit = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			uses["."+n.Sel.Name]++
			if x, ok := n.X.(*ast.Ident); ok && dirs[x.Name] != "" {
				uses[dirs[x.Name]+"."+n.Sel.Name]++
			}
			ast.Inspect(n.X, visit)
			return false
		case *ast.InterfaceType:
			for _, m := range n.Methods.List {
				for _, name := range m.Names {
					uses["."+name.Name]++
				}
			}
		case *ast.Ident:
			uses[f.dir+"."+n.Name]++
		}
		return true
	}
	ast.Inspect(part, visit)
	return uses
}

// An exported name that no program uses is dead, even where a test uses it. What
// is there for tests counts as used where a test uses it.
func TestExportsAreUsed(t *testing.T) {
	files := parseModule(t)
	programs := inPrograms(files)
	require.Contains(t, programs, "artifact/names")
	require.NotContains(t, programs, "testdata/bed")
	byPrograms, byAll := map[string]int{}, map[string]int{}
	for _, f := range files {
		for name, n := range f.usesIn(f.ast) {
			byAll[name] += n
			if !f.test && programs[f.dir] {
				byPrograms[name] += n
			}
		}
	}
	declared := map[string]bool{}
	for _, f := range files {
		if f.test {
			continue
		}
		uses := byAll
		if programs[f.dir] {
			uses = byPrograms
		}
		f.exports(func(name string, method bool, part ast.Node) {
			key := f.dir + "." + name
			if method {
				key = "." + name
			}
			byName := method && slices.Contains(calledByName, name)
			full := f.dir + "." + name
			declared[full] = true
			if !byName && uses[key] == f.usesIn(part)[key] && !slices.Contains(forTests, full) {
				t.Errorf("%s is exported, and nothing uses it: remove it, or name it in forTests and say why", full)
			}
		})
	}
	for _, name := range forTests {
		require.Contains(t, declared, name, "forTests names what is not there")
	}
}
