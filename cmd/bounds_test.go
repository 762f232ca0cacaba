package cmd

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Bounds of a package and of a struct, so that one person can hold them in mind.
const (
	maxFiles  = 25   // of a package, outside of tests
	maxLines  = 4000 // of a package, outside of tests
	maxFields = 20   // of a struct that has methods that may change it
)

// source is a directory's Go files outside of tests.
type source struct {
	files, lines int
	fields       map[string]int  // of each struct, by name
	changes      map[string]bool // types with a method on a pointer
}

// sources reads every directory of the module, its testdata included.
func sources(t *testing.T) map[string]*source {
	t.Helper()
	dirs := map[string]*source{}
	set := token.NewFileSet()
	err := filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == ".git" || e.Name() == "build"):
			return filepath.SkipDir
		case e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(set, path, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := filepath.Dir(path)
		s := dirs[dir]
		if s == nil {
			s = &source{fields: map[string]int{}, changes: map[string]bool{}}
			dirs[dir] = s
		}
		s.files++
		s.lines += bytes.Count(text, []byte("\n"))
		s.add(file)
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, len(dirs), 30, "the module's directories")
	return dirs
}

// add notes the structs of a file, those without a name by the name around
// them, and the types that have methods on pointers.
func (s *source) add(file *ast.File) {
	for _, d := range file.Decls {
		name := ""
		switch d := d.(type) {
		case *ast.FuncDecl:
			name = d.Name.Name
			if d.Recv != nil {
				if star, ok := d.Recv.List[0].Type.(*ast.StarExpr); ok {
					s.changes[receiver(star.X)] = true
				}
			}
		case *ast.GenDecl:
			name = "a variable"
		}
		ast.Inspect(d, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				name = spec.Name.Name
			}
			if st, ok := n.(*ast.StructType); ok {
				s.fields[name] = max(s.fields[name], fields(st))
			}
			return true
		})
	}
}

// receiver is the name of a type, without its parameters.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// fields counts the fields of a struct; an embedded type is one.
func fields(st *ast.StructType) (n int) {
	for _, f := range st.Fields.List {
		n += max(1, len(f.Names))
	}
	return n
}

func TestPackagesAreSmall(t *testing.T) {
	for dir, s := range sources(t) {
		if s.files > maxFiles {
			t.Errorf("%s has %d files, more than %d", dir, s.files, maxFiles)
		}
		if s.lines > maxLines {
			t.Errorf("%s has %d lines, more than %d", dir, s.lines, maxLines)
		}
	}
}

// A struct of many fields is either plain data or several things in one. Data
// has no method that could change it.
func TestStructsAreSmall(t *testing.T) {
	for dir, s := range sources(t) {
		for name, n := range s.fields {
			if n > maxFields && s.changes[name] {
				t.Errorf("%s.%s has %d fields, more than %d, and methods that may change them", dir, name, n, maxFields)
			}
			if n > maxFields {
				t.Logf("data: %s.%s has %d fields", dir, name, n)
			}
		}
	}
}
