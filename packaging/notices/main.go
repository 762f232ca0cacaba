// Command notices prints THIRD-PARTY-NOTICES: the licences of the modules that are
// linked into the programs, for every processor that they are released for. Run it at
// the top of the tree: make notices.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// arches are those of make cross: what is linked depends on the processor.
var arches = []string{"arm", "arm64", "amd64", "riscv64"}

// named matches the names of files that licences and notices are in.
var named = regexp.MustCompile(`(?i)^(un)?(licen[cs]e|copying|notice|patents)([-.](txt|md|mit|libyaml))?$`)

// choices says which licence is taken where a module leaves a choice.
var choices = map[string]string{
	"kernel.org/pub/linux/libs/security/libcap/psx": "Its licence leaves a choice: mender-app uses it under the BSD 3-clause licence, the first of the two.",
}

// standard stands for the standard library and the runtime.
const standard = "Go standard library and runtime"

func main() {
	out := bufio.NewWriter(os.Stdout)
	err := write(out)
	if err := errors.Join(err, out.Flush()); err != nil {
		fmt.Fprintln(os.Stderr, "notices:", err)
		os.Exit(1)
	}
}

type goPackage struct {
	ImportPath, Name, Dir string
	Standard              bool
	Deps                  []string
	Module                *struct {
		Path, Version, Dir string
		Main               bool
	}
}

// dependency is a module that is linked.
type dependency struct {
	name     string
	root     string
	dirs     map[string]bool // of its linked packages
	programs map[string]bool
}

func write(out io.Writer) error {
	found := map[string]*dependency{}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return err
	}
	for _, arch := range arches {
		if err := list(found, arch, strings.TrimSpace(string(root))); err != nil {
			return err
		}
	}
	names := make([]string, 0, len(found))
	for name := range found {
		names = append(names, name)
	}
	slices.Sort(names)
	holders, order := map[string][]string{}, []string(nil)
	fmt.Fprint(out, "The programs of mender-app contain the following software. Each entry names the programs\nand the texts that apply to it; the texts follow. `make notices` writes this file.\n\n")
	for _, name := range names {
		d := found[name]
		texts, err := d.texts()
		if err != nil {
			return err
		}
		if len(texts) == 0 {
			return fmt.Errorf("%s: no licence is found: see %s", name, d.root)
		}
		var numbers []string
		for _, text := range texts {
			if holders[text] == nil {
				order = append(order, text)
			}
			holders[text] = append(holders[text], name)
			numbers = append(numbers, fmt.Sprint(slices.Index(order, text)+1))
		}
		fmt.Fprintf(out, "%s\n    in %s; text %s\n", name, strings.Join(sorted(d.programs), ", "), strings.Join(numbers, ", "))
		if c := choices[strings.Fields(name)[0]]; c != "" {
			fmt.Fprintf(out, "    %s\n", c)
		}
	}
	for i, text := range order {
		rule := strings.Repeat("=", 80)
		fmt.Fprintf(out, "\n%s\nText %d, of %s\n%s\n\n%s\n", rule, i+1, strings.Join(slices.Compact(holders[text]), ", "), rule, text)
	}
	return nil
}

// list adds what is linked into the programs for one processor.
func list(found map[string]*dependency, arch, root string) error {
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Name,Dir,Standard,Deps,Module", "./cmd/...")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	cmd.Stderr = os.Stderr
	data, err := cmd.Output()
	if err != nil {
		return err
	}
	packages := map[string]*goPackage{}
	for d := json.NewDecoder(bytes.NewReader(data)); ; {
		var p goPackage
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		packages[p.ImportPath] = &p
	}
	for at, p := range packages {
		if p.Name != "main" || p.Module == nil || !p.Module.Main {
			continue
		}
		for _, name := range p.Deps {
			dep := packages[name]
			if dep == nil || dep.Module != nil && dep.Module.Main {
				continue
			}
			key, top := standard, root
			if dep.Module != nil {
				key, top = dep.Module.Path+" "+dep.Module.Version, dep.Module.Dir
			}
			d := found[key]
			if d == nil {
				d = &dependency{name: key, root: top, dirs: map[string]bool{}, programs: map[string]bool{}}
				found[key] = d
			}
			d.programs[path.Base(at)] = true
			if !dep.Standard {
				d.dirs[dep.Dir] = true
			}
		}
	}
	return nil
}

// texts are the licences of a module: those at its root, and those of the directories
// that lead from there to its linked packages.
func (d *dependency) texts() ([]string, error) {
	dirs := map[string]bool{d.root: true}
	for dir := range d.dirs {
		for len(dir) > len(d.root) {
			dirs[dir], dir = true, filepath.Dir(dir)
		}
	}
	var texts []string
	for _, dir := range sorted(dirs) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if !e.Type().IsRegular() || !named.MatchString(e.Name()) {
				continue
			}
			data, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				return nil, err
			}
			if text := tidy(string(data)); !slices.Contains(texts, text) {
				texts = append(texts, text)
			}
		}
	}
	return texts, nil
}

// tidy makes texts equal that differ in nothing but the ends of lines and the empty lines
// around them.
func tidy(text string) string {
	var lines []string
	for line := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) {
		lines = append(lines, strings.TrimRight(line, " \t\r\n\f"))
	}
	return strings.Trim(strings.Join(lines, "\n"), "\n")
}

func sorted(set map[string]bool) []string {
	list := make([]string, 0, len(set))
	for s := range set {
		list = append(list, s)
	}
	slices.Sort(list)
	return list
}
