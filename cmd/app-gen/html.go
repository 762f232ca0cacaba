package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/artifact/output"
	"github.com/mender-app/mender-app/generator/write"
)

// pageFile is the value of --html: the file for a page; "" for none.
type pageFile string

func (p *pageFile) add(c *cobra.Command) {
	c.Flags().StringVar((*string)(p), "html", "", "file to write with a self-contained page for a browser")
}

// check refuses a file that cannot be written, or that is an input, before anything
// is read.
func (p pageFile) check(inputs ...string) error {
	if p == "" {
		return nil
	}
	if output.IsStandard(string(p)) {
		return &usageError{text: fmt.Sprintf("--html %s : standard output has the report", p), hint: "give --html a file, or ./- for one of that name"}
	}
	if _, err := output.Check(string(p)); err != nil {
		return &write.Error{Err: err}
	}
	info, err := os.Stat(string(p))
	if err != nil {
		return nil // there is none
	}
	for _, input := range inputs {
		if other, err := os.Stat(input); err == nil && os.SameFile(info, other) {
			return &usageError{text: fmt.Sprintf("--html %s would replace an input", p), hint: "give --html another file, such as " + withEnding(input, ".html")}
		}
	}
	return nil
}

// withEnding is the name of a file with another ending.
func withEnding(path, ending string) string {
	return path[:len(path)-len(filepath.Ext(path))] + ending
}

// write writes the page, whole or not at all.
func (p pageFile) write(ctx context.Context, fill func(io.Writer) error) error {
	if p == "" {
		return nil
	}
	return write.To(ctx, string(p), "", fill)
}
