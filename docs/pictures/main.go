// Command pictures writes the pictures of the documents: how a release travels, what
// makes a delta small, how large deltas are in docs/BENCHMARKS.md, and the plots of
// docs/benchmark.csv. Run it in the top directory of the project when one of these has
// changed:
//
//	go run ./docs/pictures
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := write("docs"); err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

// write draws all pictures from the documents in the directory, into pictures there.
func write(docs string) error {
	pictures, err := draw(docs)
	if err != nil {
		return err
	}
	for name, picture := range pictures {
		if err := os.WriteFile(filepath.Join(docs, "pictures", name), picture, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func draw(docs string) (map[string][]byte, error) {
	text, err := os.ReadFile(filepath.Join(docs, "BENCHMARKS.md"))
	if err != nil {
		return nil, err
	}
	pairs, err := readPairs(string(text))
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
	return map[string][]byte{
		"flow.svg": flow(), "sizes.svg": sizes(pairs), "benchmark.svg": plots(rows), "files.svg": files(), "addresses.svg": addresses(),
	}, nil
}
