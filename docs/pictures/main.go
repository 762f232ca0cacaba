// Command pictures writes the pictures of the documents: how a release travels, what
// makes a delta small, and how large deltas are in docs/BENCHMARKS.md. Run it in the top
// directory of the project when one of these has changed:
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
	return map[string][]byte{
		"flow.svg": flow(), "sizes.svg": sizes(pairs), "files.svg": files(), "addresses.svg": addresses(),
	}, nil
}
