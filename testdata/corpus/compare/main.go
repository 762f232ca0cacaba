// Command compare measures delta tools on the pairs of the public benchmark, and keeps
// the results in a file of comma-separated values. It builds the pairs first, where they
// are not there.
//
//	go run ./testdata/corpus/compare [-csv docs/benchmark.csv] [-tools DIR] [-tool NAME] [PAIR…]
//
// Each file in the directory of tools is one tool: an executable that takes
//
//	version
//	encode OLD NEW DELTA
//	decode OLD DELTA NEW
//
// OLD and NEW are archives of `docker save`. testdata/corpus/public/README.md has the
// details. What was measured is kept: a run that was stopped goes on where it was, and a
// tool's rows are measured anew when its version is another one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/corpus"
)

func main() {
	if os.Getenv(measuring) != "" {
		os.Exit(measureMain())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	standard, err := corpus.Dir()
	if err != nil {
		return err
	}
	here := filepath.Join(bed.Repository(), "testdata/corpus/compare/tools")
	dir := flag.String("dir", standard, "directory of the pairs, absolute")
	file := flag.String("csv", filepath.Join(bed.Repository(), "docs/benchmark.csv"), "file with the results")
	from := flag.String("tools", here, "directory of the tools")
	only := flag.String("tool", "", "measure this tool alone")
	runs := flag.Int("runs", 3, "how often to decode; the least time counts")
	limit := flag.Duration("limit", 20*time.Minute, "how long one call may take")
	flag.Parse()
	all, err := readResults(*file)
	if err != nil {
		return err
	}
	tools, err := findTools(ctx, *from, *only)
	if err != nil {
		return err
	}
	pairs := corpus.Public()
	for _, name := range flag.Args() {
		if !slices.ContainsFunc(pairs, func(p corpus.Pair) bool { return p.Name == name }) {
			return fmt.Errorf("no pair %q: go run ./testdata/corpus/build -public -list names them", name)
		}
	}
	temp, err := os.MkdirTemp("", "compare-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	for _, p := range pairs {
		if flag.NArg() > 0 && !slices.Contains(flag.Args(), p.Name) {
			continue
		}
		if _, err := p.Build(ctx, *dir); errors.Is(err, corpus.ErrUnavailable) {
			fmt.Fprintf(os.Stderr, "compare: left out: %v\n", err)
			continue
		} else if err != nil {
			return err
		}
		m := &measurement{ctx: ctx, temp: temp, runs: *runs, limit: *limit,
			old: filepath.Join(*dir, "public", p.Name, "v1.tar"), new: filepath.Join(*dir, "public", p.Name, "v2.tar")}
		for _, t := range tools {
			if all.has(p.Name, t.name, t.version) {
				continue
			}
			r, err := m.tool(t)
			if err != nil {
				return err
			}
			r.pair, r.kind, r.platform = p.Name, p.Kind, p.Platform()
			all.put(r)
			if err := all.write(*file, order(pairs)); err != nil {
				return err
			}
			fmt.Println(strings.Join(r.cells(), "  "))
		}
	}
	return nil
}

// order tells the places of the pairs in the list.
func order(pairs []corpus.Pair) map[string]int {
	m := map[string]int{}
	for i, p := range pairs {
		m[p.Name] = i
	}
	return m
}

// tool is a program that makes and applies deltas.
type tool struct {
	name, path, version string
}

// findTools returns the tools that tell their version; the others are not installed.
func findTools(ctx context.Context, dir, only string) ([]tool, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var list []tool
	for _, f := range files {
		if f.IsDir() || only != "" && f.Name() != only {
			continue
		}
		path, err := filepath.Abs(filepath.Join(dir, f.Name()))
		if err != nil {
			return nil, err
		}
		out, err := exec.CommandContext(ctx, path, "version").Output()
		version := strings.TrimSpace(string(out))
		if err != nil || version == "" {
			fmt.Fprintf(os.Stderr, "compare: %s is not measured: it does not tell its version: %v\n", f.Name(), err)
			continue
		}
		list = append(list, tool{f.Name(), path, version})
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("no tool in %s is installed", dir)
	}
	return list, nil
}
