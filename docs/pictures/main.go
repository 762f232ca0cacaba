// Command pictures draws the plots of the documents: how large deltas are in
// docs/deltas.csv, and what docs/benchmark.csv has. It is a module of its own, to keep
// the plotting library out of the project's go.mod. Run it when one of these has changed:
//
//	go run -C docs/pictures .
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := write(".."); err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

// write draws all pictures from the documents in the directory, into pictures there.
func write(docs string) error {
	drawn, err := pictures(docs)
	if err != nil {
		return err
	}
	for name, picture := range drawn {
		if err := os.WriteFile(filepath.Join(docs, "pictures", name), picture, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func pictures(docs string) (map[string][]byte, error) {
	text, err := os.ReadFile(filepath.Join(docs, "BENCHMARKS.md"))
	if err != nil {
		return nil, err
	}
	deltas, err := os.Open(filepath.Join(docs, "deltas.csv"))
	if err != nil {
		return nil, err
	}
	defer deltas.Close()
	pairs, err := readPairs(string(text), deltas)
	if err != nil {
		return nil, err
	}
	results, err := os.Open(filepath.Join(docs, "benchmark.csv"))
	if err != nil {
		return nil, err
	}
	defer results.Close()
	rows, err := readRows(results)
	if err != nil {
		return nil, err
	}
	size, err := sizes(pairs)
	if err != nil {
		return nil, err
	}
	benchmark, err := plots(rows)
	return map[string][]byte{"sizes.svg": size, "benchmark.svg": benchmark}, err
}
