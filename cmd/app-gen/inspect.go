package main

import (
	"context"
	"crypto"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/delta/budget"
	"github.com/mender-app/mender-app/generator/inspect"
)

func inspectCommand() *cobra.Command {
	var keyFile string
	var html pageFile
	var asJSON bool
	var link string
	c := &cobra.Command{
		Use:   "inspect FILE.mender",
		Short: "show what is in an artifact, and verify its checksums",
		Long: `inspect reads an App Artifact (ours or the shell module's) to its end and shows its name,
device types, provides and depends, signature, metadata, images with their layers and sizes,
manifests, and what each service reaches on the device beyond its containers and the
shipped files. It verifies every checksum, the digests of whole images, and that the
artifact matches its statement; with --key also the signatures. FILE.mender may be -, for
standard input. With --html it also writes a page for a browser, in one file.

` + exitText,
		RunE: func(c *cobra.Command, args []string) error {
			if err := html.check(args...); err != nil {
				return err
			}
			rate, err := budget.ParseLink(link)
			if err != nil {
				return &usageError{text: "--" + linkOption + ": " + err.Error()}
			}
			keys, err := publicKeys(keyFile)
			if err != nil {
				return err
			}
			d, err := describe(c.Context(), args[0], keys)
			if err != nil {
				return err
			}
			d.SetLink(rate)
			if err := html.write(c.Context(), func(w io.Writer) error { return inspect.ArtifactPage(w, d) }); err != nil {
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
	html.add(c)
	c.Flags().StringVar(&link, linkOption, budget.DefaultLink.String(), "download rate of devices, to estimate the time")
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
