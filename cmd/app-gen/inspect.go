package main

import (
	"context"
	"crypto"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/generator"
	"github.com/mender-app/mender-app/generator/inspect"
	"github.com/mender-app/mender-app/generator/source"
)

func inspectCommand() *cobra.Command {
	var keyFile string
	var asJSON, diff bool
	var bases []string
	c := &cobra.Command{
		Use:   "inspect FILE.mender",
		Short: "tell what is in an artifact, and verify its checksums",
		Long: `inspect reads an App Artifact (ours or the shell reference's) to its end and tells
what is in it: name, device types, provides and depends, signature, metadata,
images with their layers and sizes, manifests, and what each service reaches on
the device beyond its containers and the shipped files. It verifies every checksum,
the digests of the images that are in it whole, and that the artifact is what its
statement says; with --key also the signatures. FILE.mender may be -, which is
standard input.

inspect --diff OLD.mender NEW.mender names the packages and files that changed
between two releases. The images that changed must be whole in the artifacts, or
deltas over images that are in OLD or that --base names.

` + exitText,
		Args: func(c *cobra.Command, args []string) error {
			if diff {
				return exactly(2, "OLD.mender and NEW.mender with --diff")(c, args)
			}
			return exactly(1, "FILE.mender")(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if diff {
				if keyFile != "" {
					return &usageError{text: "--diff verifies no signature: leave --key out"}
				}
				return runDiff(c, args[0], args[1], bases, asJSON)
			}
			if len(bases) > 0 {
				return &usageError{text: "--base without --diff"}
			}
			keys, err := publicKeys(keyFile)
			if err != nil {
				return err
			}
			d, err := describe(c.Context(), args[0], keys)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(c.OutOrStdout(), d)
			}
			printDescription(c.OutOrStdout(), d)
			return nil
		},
	}
	c.Flags().StringVarP(&keyFile, "key", "k", "", "PEM file of the public key that must have signed it")
	c.Flags().BoolVar(&diff, "diff", false, "name the packages and files that changed from OLD.mender to NEW.mender")
	c.Flags().StringArrayVar(&bases, "base", nil, "with --diff: artifact or image that deltas build on (repeatable)")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return c
}

// describe reads an artifact from a file or from standard input.
func describe(ctx context.Context, path string, keys []crypto.PublicKey) (*inspect.Description, error) {
	if path != standard {
		return inspect.Artifact(ctx, path, keys, os.Getenv("TMPDIR"))
	}
	in, err := standardInput(ctx)
	if err != nil {
		return nil, err
	}
	d, err := inspect.Stream(ctx, in, "standard input", keys, os.Getenv("TMPDIR"))
	if err != nil {
		return nil, err
	}
	d.Path = standard
	return d, nil
}

func runDiff(c *cobra.Command, old, next string, bases []string, asJSON bool) error {
	b := newBars()
	o := generator.DeltaOptions{TempDir: os.Getenv("TMPDIR"), Progress: b.event}
	var err error
	if o.Sources, err = source.LoadConfig(); err != nil {
		return err
	}
	d, err := generator.Diff(c.Context(), old, next, bases, o)
	b.stop()
	if err != nil {
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
}

// signs stand before what changed.
var signs = map[generator.Change]string{generator.Added: "+", generator.Removed: "-", generator.Changed: "~", generator.Same: "="}

func printDifference(w io.Writer, d *generator.Difference) {
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
		t := table{newTabs(w)}
		for _, p := range img.Packages {
			version := p.Old + p.New
			if p.Change == generator.Changed {
				version = p.Old + " -> " + p.New
			}
			t.row("  "+signs[p.Change]+" package", p.Type, p.Name, version)
		}
		t.flush()
		printFiles(w, "file", img.Files)
	}
	printFiles(w, "manifest", d.Manifests)
}

func printFiles(w io.Writer, what string, files []generator.FileDifference) {
	for _, f := range files {
		size := bytesText(f.New)
		switch f.Change {
		case generator.Removed:
			size = bytesText(f.Old)
		case generator.Changed:
			size = bytesText(f.Old) + " -> " + bytesText(f.New)
		}
		fmt.Fprintf(w, "  %s %s %s (%s)\n", signs[f.Change], what, f.Path, size)
	}
}
