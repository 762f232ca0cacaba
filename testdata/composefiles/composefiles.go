// Package composefiles has Compose files that app-gen and the device must judge the
// same way: what one accepts, the other accepts too.
package composefiles

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// Verdict is the judgement of both sides on a project.
type Verdict string

// The verdicts.
const (
	Accepted Verdict = "accepted"
	Refused  Verdict = "refused"
	// Outside means that the device refuses the project unless ALLOW_OUTSIDE has the
	// case's kind. app-gen accepts it with a warning.
	Outside Verdict = "outside"
	// Newer means that a Docker Compose before the version of the case refuses the project,
	// or does nothing with a part of it.
	Newer Verdict = "newer"
)

// Case is one project, stored in a file of files/. The file's first line is the
// verdict; its parts are the manifest files.
type Case struct {
	Name    string
	Verdict Verdict
	Kind    string // of Outside; of Newer the version
	files   []txtar.File
}

// Read reads all cases.
func Read(t testing.TB) []Case {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	paths, err := filepath.Glob(filepath.Join(filepath.Dir(here), "files", "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	var cases []Case
	for _, path := range paths {
		a, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		c := Case{Name: strings.TrimSuffix(filepath.Base(path), ".txtar"), files: a.Files}
		verdict, kind, _ := strings.Cut(strings.TrimSpace(string(a.Comment)), " ")
		c.Verdict, c.Kind = Verdict(verdict), kind
		switch {
		case c.Verdict == Accepted, c.Verdict == Refused, (c.Verdict == Outside || c.Verdict == Newer) && kind != "":
		default:
			t.Fatalf("%s: unknown verdict %q", path, a.Comment)
		}
		cases = append(cases, c)
	}
	if len(cases) < 60 {
		t.Fatalf("%d cases, want at least 60", len(cases))
	}
	return cases
}

// Write writes the files of the case into dir.
func (c Case) Write(t testing.TB, dir string) {
	t.Helper()
	for _, f := range c.files {
		path := filepath.Join(dir, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
