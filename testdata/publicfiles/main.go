// Command publicfiles takes Compose projects, or sets of Kubernetes manifests, as people
// wrote them through their whole life: plain Compose or Kubernetes first, then as an
// application.
//
//	go run ./testdata/publicfiles [-name-builds] [-check] DIRECTORY…
//	go run ./testdata/publicfiles -node NODE DIRECTORY…
//
// Every directory below the given ones that has a Compose file is a project. Its images are
// stand-ins (standin): a project is judged by its files, not by what its images do. With
// -name-builds, services that are built get the name of an image; app-gen refuses them
// otherwise, and so they say nothing more. It needs root, and what the tests need.
//
// With -check, a project is only read: by Compose, by app-gen, and by mender-app check. The
// three are to agree.
//
// With -node, every directory below the given ones that has manifests is a set. NODE is the
// directory of a node that runs (testdata/k8snode/up.sh node NODE). Its API server judges
// each set (kubectl apply --dry-run=server), and so do app-gen, mender-app check and an
// installation.
//
// It prints a line for each project and a table. A refusal of a project that plain Compose
// runs is listed with its text: whether it is right is for a person to say.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/generator/machine"
)

func main() {
	names := flag.Bool("name-builds", false, "name images for services that are built")
	check := flag.Bool("check", false, "compare what Compose, app-gen and mender-app check say, and run nothing")
	node := flag.String("node", "", "take sets of Kubernetes manifests, on the node in this directory")
	flag.Parse()
	work := func() error { return run(flag.Args(), *names, *check) }
	if *node != "" {
		work = func() error { return runSets(*node, flag.Args()) }
	}
	if err := work(); err != nil {
		fmt.Fprintln(os.Stderr, "publicfiles:", err)
		os.Exit(1)
	}
}

// runSets takes sets of Kubernetes manifests through their life.
func runSets(k8s string, dirs []string) (err error) {
	sets, err := findSets(dirs)
	if err != nil {
		return err
	}
	standin, err := buildStandin()
	if err != nil {
		return err
	}
	n, err := newNode(k8s, standin)
	if n != nil {
		defer func() { err = errors.Join(err, os.RemoveAll(n.dir)) }()
	}
	if err != nil {
		return err
	}
	var rows []setRow
	for i, s := range sets {
		r, err := n.set(fmt.Sprintf("s%d", i+1), s)
		if err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
		r.set = s
		fmt.Println(r.line())
		rows = append(rows, r)
	}
	fmt.Print(setTable(rows))
	return nil
}

// composeFiles are the names that Compose looks for.
var composeFiles = []string{"compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml"}

// find lists the directories with a Compose file.
func find(dirs []string) (projects []string, err error) {
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && slices.Contains(composeFiles, d.Name()) && !slices.Contains(projects, filepath.Dir(path)) {
				projects = append(projects, filepath.Dir(path))
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return projects, nil
}

// row is what was seen of a project.
type row struct {
	project string
	plain   string // why plain Compose does not run it; "" if it does
	refused string // what app-gen says; "" if it accepts it
	failed  string // what the device says; "" if it is deployed
	differs string // in what it is not as plain Compose makes it
	left    string // what purge leaves
	lost    string // data that is gone
	keeps   int    // services of which check foresaw what an update does
	wrong   []string
}

func run(dirs []string, names, check bool) (err error) {
	if missing := machine.Missing(); missing != "" {
		return fmt.Errorf("this machine has no %s (make setup)", missing)
	}
	projects, err := find(dirs)
	if err != nil {
		return err
	}
	b, err := newBench(names)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	b.only = check
	var rows []row
	for i, p := range projects {
		r, err := b.project(fmt.Sprintf("p%d", i+1), p)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		r.project = p
		fmt.Println(r.line())
		rows = append(rows, r)
	}
	fmt.Print(table(rows))
	return nil
}

func (r row) line() string {
	return r.project + ": " + cmp.Or(said([]remark{
		{"plain Compose does not run it", r.plain}, {"app-gen refuses it", r.refused}, {"the device fails", r.failed},
		{"differs", r.differs}, {"left over", r.left}, {"data lost", r.lost}, {"check is wrong", strings.Join(r.wrong, ", ")},
	}), "as plain Compose")
}

// remark is one thing to say of a row; a text of "" is nothing.
type remark struct{ kind, text string }

func said(remarks []remark) string {
	var what []string
	for _, r := range remarks {
		if r.text != "" {
			what = append(what, r.kind+": "+oneLine(r.text))
		}
	}
	return strings.Join(what, "; ")
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// total is a line of a table: how many rows are so.
type total struct {
	what string
	n    int
}

// totals are the lines of a table. heading is what is counted.
func totals(heading string, list []total) string {
	text := fmt.Sprintf("\n| | %s |\n|---|---|\n", heading)
	for _, l := range list {
		text += fmt.Sprintf("| %s | %d |\n", l.what, l.n)
	}
	return text
}

// counter counts rows.
func counter[R any](rows []R) func(is func(R) bool) int {
	return func(is func(R) bool) (n int) {
		for _, r := range rows {
			if is(r) {
				n++
			}
		}
		return n
	}
}

// table adds the rows up.
func table(rows []row) string {
	count := counter(rows)
	runs := func(r row) bool { return r.plain == "" }
	accepted := func(r row) bool { return runs(r) && r.refused == "" }
	deployed := func(r row) bool { return accepted(r) && r.failed == "" }
	foreseen, wrong := 0, 0
	for _, r := range rows {
		foreseen, wrong = foreseen+r.keeps, wrong+len(r.wrong)
	}
	var b strings.Builder
	b.WriteString(totals("projects", []total{
		{"found", len(rows)},
		{"plain Compose runs", count(runs)},
		{"of these app-gen accepts", count(accepted)},
		{"of these deployed", count(deployed)},
		{"as plain Compose makes them", count(func(r row) bool { return deployed(r) && r.differs == "" })},
		{"accepted by app-gen, and refused or failed on the device", count(func(r row) bool { return accepted(r) && r.failed != "" })},
		{"plain Compose does not run, app-gen accepts", count(func(r row) bool { return !runs(r) && r.refused == "" })},
		{"something left after purge", count(func(r row) bool { return deployed(r) && r.left != "" })},
		{"data lost", count(func(r row) bool { return deployed(r) && r.lost != "" })},
	}))
	fmt.Fprintf(&b, "| services that an update touched or kept as `check` said | %d of %d |\n", foreseen-wrong, foreseen)
	for _, r := range rows {
		if runs(r) && r.refused != "" {
			fmt.Fprintf(&b, "\nrefused: %s: %s", r.project, oneLine(r.refused))
		}
	}
	return b.String() + "\n"
}
