package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/generator/bases"
	"github.com/mender-app/mender-app/generator/inspect"
	"github.com/mender-app/mender-app/generator/source"
)

func diffCommand() *cobra.Command {
	var over []string
	var html pageFile
	var asJSON bool
	c := &cobra.Command{
		Use:   "diff OLD.mender NEW.mender",
		Short: "name the packages and files that changed between two releases",
		Long: `diff compares the images and manifests of two artifacts and names the packages and
files that changed. The images that changed must be whole in the artifacts, or
deltas over images that are in OLD or that --base names. It verifies no signature:
app-gen inspect --key does. With --html it also writes a page for a browser, in one
file.

` + exitText,
		RunE: func(c *cobra.Command, args []string) error {
			if err := html.check(args...); err != nil {
				return err
			}
			d, err := compare(c.Context(), args[0], args[1], over)
			if err != nil {
				return err
			}
			if err := html.write(c.Context(), func(w io.Writer) error { return inspect.DifferencePage(w, d) }); err != nil {
				return err
			}
			for _, w := range d.Warnings {
				fmt.Fprintf(c.ErrOrStderr(), "app-gen: warning: %s\n", w)
			}
			if asJSON {
				return printJSON(c.OutOrStdout(), d)
			}
			printDifference(c.OutOrStdout(), d)
			return nil
		},
	}
	c.Flags().StringArrayVar(&over, "base", nil, "artifact or image that deltas build on (repeatable)")
	html.add(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return c
}

// compare reads two artifacts and the bases of their deltas.
func compare(ctx context.Context, old, next string, over []string) (*inspect.Difference, error) {
	b := newBars()
	defer b.stop()
	o := bases.Access{TempDir: os.Getenv("TMPDIR"), Progress: b.event}
	var err error
	if o.Sources, err = source.LoadConfig(); err != nil {
		return nil, err
	}
	return inspect.Diff(ctx, old, next, over, o)
}

// signs mark the kind of change.
var signs = map[inspect.Change]string{inspect.Added: "+", inspect.Removed: "-", inspect.Changed: "~", inspect.Same: "="}

func printDifference(w io.Writer, d *inspect.Difference) {
	fmt.Fprintf(w, "%s -> %s\n", d.Old, d.New)
	for _, img := range d.Images {
		name := img.New
		switch {
		case img.New == "":
			name = img.Old
		case img.Old != "" && img.Old != img.New:
			name = img.Old + " -> " + img.New
		}
		fmt.Fprintf(w, "%s image %s\n", signs[img.Change], name)
		t := &columns{w: w}
		for _, p := range img.Packages {
			version := p.Old + p.New
			if p.Change == inspect.Changed {
				version = p.Old + " -> " + p.New
			}
			t.row("  "+signs[p.Change]+" package", p.Type, p.Name, version)
		}
		t.print()
		printFiles(w, "file", img.Files)
	}
	printFiles(w, "manifest", d.Manifests)
}

func printFiles(w io.Writer, what string, files []inspect.FileChange) {
	for _, f := range files {
		size := bytesText(f.New)
		switch f.Change {
		case inspect.Removed:
			size = bytesText(f.Old)
		case inspect.Changed:
			size = bytesText(f.Old) + " -> " + bytesText(f.New)
		}
		fmt.Fprintf(w, "  %s %s %s (%s)\n", signs[f.Change], what, f.Path, size)
	}
}
