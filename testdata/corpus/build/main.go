// Command build makes the named pairs of the corpus, or all. Each is a directory of
// docker archives that is kept from one run to the next.
//
//	go run ./testdata/corpus/build [-dir DIR] [-synthetic] [-list] [PAIR…]
//
// A pair whose packages or modules cannot be downloaded is reported and left out.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
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
	list := flag.Bool("list", false, "list the pairs")
	flag.Parse()
	for _, name := range flag.Args() {
		if !slices.ContainsFunc(corpus.All(), func(p corpus.Pair) bool { return p.Name == name }) {
			return fmt.Errorf("no pair %q: -list names them", name)
		}
	}
	for _, p := range corpus.All() {
		if flag.NArg() > 0 && !slices.Contains(flag.Args(), p.Name) || *synthetic && !p.Synthetic {
			continue
		}
		if *list {
			fmt.Printf("%-24s %s\n", p.Name, p.About)
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
