// Command build makes the named pairs of the corpus, or all. Each is a directory of
// docker archives that is kept from one run to the next.
//
//	go run ./testdata/corpus/build [-dir DIR] [-synthetic | -public] [-list] [PAIR…]
//
// A pair whose packages or modules cannot be downloaded is reported and left out.
// -public takes the pairs of the public benchmark, whose inputs and images must have
// the recorded SHA-256; -record makes and records them of what the archives have now.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mender-app/mender-app/testdata/corpus"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "corpus:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	standard, err := corpus.Dir()
	if err != nil {
		return err
	}
	dir := flag.String("dir", standard, "directory for the pairs and what is downloaded for them")
	synthetic := flag.Bool("synthetic", false, "only pairs that need no network")
	public := flag.Bool("public", false, "the pairs of the public benchmark")
	record := flag.String("record", "", "directory (testdata/corpus/public) to record the public pairs' inputs and digests in")
	list := flag.Bool("list", false, "list the pairs")
	flag.Parse()
	pairs := corpus.All()
	if *public || *record != "" {
		pairs = corpus.Public()
	}
	for _, name := range flag.Args() {
		if !slices.ContainsFunc(pairs, func(p corpus.Pair) bool { return p.Name == name }) {
			return fmt.Errorf("no pair %q: -list names them", name)
		}
	}
	if *record != "" {
		return recordPublic(ctx, *dir, *record, pairs)
	}
	for _, p := range pairs {
		if flag.NArg() > 0 && !slices.Contains(flag.Args(), p.Name) || *synthetic && !p.Synthetic {
			continue
		}
		if *list {
			about := p.About
			if p.Kind != "" {
				about = fmt.Sprintf("%s, %s: %s", p.Kind, p.Platform(), p.About)
			}
			fmt.Printf("%-24s %s\n", p.Name, about)
			continue
		}
		start := time.Now()
		made, err := p.Build(ctx, *dir)
		switch {
		case errors.Is(err, corpus.ErrUnavailable):
			fmt.Fprintf(os.Stderr, "corpus: left out: %v\n", err)
		case err != nil:
			return err
		case made:
			fmt.Printf("%-24s %.1f s\n", p.Name, time.Since(start).Seconds())
		}
	}
	return nil
}

// recordPublic makes public pairs of what the archives have now, and writes what they
// are made of. What is recorded of other pairs stays.
func recordPublic(ctx context.Context, dir, to string, pairs []corpus.Pair) error {
	for _, p := range pairs {
		if flag.NArg() > 0 && !slices.Contains(flag.Args(), p.Name) {
			continue
		}
		start := time.Now()
		made := map[string]string{}
		pins := corpus.NewPins()
		err := p.Record(ctx, dir, pins, func(name, sum string) { made[name] = sum })
		if errors.Is(err, corpus.ErrUnavailable) {
			fmt.Fprintf(os.Stderr, "corpus: left out: %v\n", err)
			continue
		} else if err != nil {
			return err
		}
		if err := pins.Merge(filepath.Join(to, "inputs.txt")); err != nil {
			return err
		}
		if err := mergeSums(filepath.Join(to, "SHA256SUMS"), made, pairs); err != nil {
			return err
		}
		fmt.Printf("%-24s %.1f s\n", p.Name, time.Since(start).Seconds())
	}
	return nil
}

// mergeSums writes digests into the file, in the order of the pairs.
func mergeSums(file string, made map[string]string, pairs []corpus.Pair) error {
	b, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for line := range strings.Lines(string(b)) {
		if sum, name, ok := strings.Cut(strings.TrimSpace(line), "  "); ok && made[name] == "" {
			made[name] = sum
		}
	}
	var out strings.Builder
	for _, p := range pairs {
		for _, name := range []string{p.Name + "/v1.tar", p.Name + "/v2.tar"} {
			if made[name] != "" {
				fmt.Fprintf(&out, "%s  %s\n", made[name], name)
			}
		}
	}
	return os.WriteFile(file, []byte(out.String()), 0o644)
}
