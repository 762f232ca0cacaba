package main

import (
	"crypto"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/artifact/output"
	"github.com/mender-app/mender-app/cmd/internal/memory"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/decoder"
	"github.com/mender-app/mender-app/generator"
	"github.com/mender-app/mender-app/generator/bases"
	"github.com/mender-app/mender-app/generator/source"
	"github.com/mender-app/mender-app/generator/write"
)

func deltaCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "delta",
		Short: "make, apply and show deep deltas by hand",
		Long: `delta works with the deltas that artifacts carry, one at a time. OLD and NEW are
images (an archive or OCI layout by its path alone, or anything --image takes) or
any single files.

` + exitText,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(encodeCommand(), applyCommand(), showCommand())
	return c
}

// handFlags are the flags of delta encode and apply.
type handFlags struct {
	out, platform, temp string
	json, filesOnly     bool
}

func (f *handFlags) add(c *cobra.Command) {
	c.Flags().StringVarP(&f.out, "output", "o", "", "file to write; - is standard output")
	c.Flags().StringVar(&f.platform, "platform", "", "platform to take from an image with several")
	c.Flags().StringVar(&f.temp, "temp-dir", "", "directory for temporary files (default: TMPDIR, else beside the output)")
}

func (f *handFlags) options(b *bars) (generator.DeltaOptions, error) {
	o := generator.DeltaOptions{Access: bases.Access{TempDir: f.temp, Progress: b.event}, FilesOnly: f.filesOnly}
	if f.out == "" {
		return o, &usageError{text: "missing --output"}
	}
	if o.TempDir == "" {
		o.TempDir = os.Getenv("TMPDIR")
	}
	var err error
	if f.platform != "" {
		if o.Platform, err = image.ParsePlatform(f.platform); err != nil {
			return o, &usageError{text: err.Error()}
		}
	}
	o.Sources, err = source.LoadConfig()
	return o, err
}

func encodeCommand() *cobra.Command {
	var f handFlags
	c := &cobra.Command{
		Use:   "encode OLD... NEW -o DELTA",
		Short: "write a delta that makes NEW out of one or several OLD",
		RunE: func(c *cobra.Command, args []string) error {
			b := newBars()
			o, err := f.options(b)
			if err != nil {
				return err
			}
			last := len(args) - 1
			r, err := generator.EncodeDelta(c.Context(), args[:last], args[last], f.out, o)
			b.stop()
			if err != nil {
				return err
			}
			w := c.OutOrStdout()
			if output.IsStandard(f.out) {
				w = c.ErrOrStderr()
			}
			if f.json {
				return printJSON(w, r)
			}
			t := newColumns(w, "OBJECT", "", "SIZE", "IN THE DELTA")
			for _, obj := range r.Objects {
				t.row(shortDigest(obj.Digest), obj.Encoding, bytesText(obj.Size), bytesText(obj.Bytes))
			}
			t.print()
			fmt.Fprintf(w, "%s: %s for %s of %s\n", r.Path, bytesText(r.Bytes), bytesText(r.Whole), r.New)
			return nil
		},
	}
	f.add(c)
	c.Flags().BoolVar(&f.filesOnly, "files-only", false, filesOnly)
	c.Flags().BoolVar(&f.json, "json", false, "print one JSON document")
	return c
}

func applyCommand() *cobra.Command {
	var f handFlags
	c := &cobra.Command{
		Use:   "apply OLD... DELTA -o NEW",
		Short: "make NEW out of OLD and a delta, with the decoder of the device",
		RunE: func(c *cobra.Command, args []string) error {
			memory.DropProgram()
			memory.Fit(decoder.MemoryLimit, decoder.MemoryLimit) // as on a device
			b := newBars()
			o, err := f.options(b)
			if err != nil {
				return err
			}
			last := len(args) - 1
			err = generator.ApplyDelta(c.Context(), args[:last], args[last], f.out, o)
			b.stop()
			return err
		},
	}
	f.add(c)
	return c
}

func showCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "show DELTA",
		Short: "show what a delta makes, and what it needs",
		RunE: func(c *cobra.Command, args []string) error {
			h, size, err := generator.ShowDelta(args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(c.OutOrStdout(), deltaDocument(args[0], size, h))
			}
			w := c.OutOrStdout()
			fmt.Fprintf(w, "%s: %s, makes %s; %s of memory, %s temporary\n", args[0], bytesText(size), h.Image, bytesText(h.Memory), bytesText(h.Temp))
			if len(h.Features) > 0 {
				fmt.Fprintf(w, "features: %s\n", strings.Join(h.Features, ", "))
			}
			t := newColumns(w, "OBJECT", "KIND", "", "SIZE")
			for _, o := range h.Objects {
				t.row(shortDigest(o.Digest), string(o.Kind), string(o.Encoding), bytesText(o.Size))
			}
			for _, b := range h.Bases {
				what := "files read from "
				switch {
				case b.Headers:
					what = "files and headers read from "
				case b.Kind == delta.Blob:
					what = "read from "
				}
				t.row(shortDigest(b.Digest), string(b.Kind), what+b.Image, bytesText(b.Size))
			}
			t.print()
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return c
}

func deltaDocument(path string, size int64, h *delta.Header) any {
	type object struct {
		Digest   digest.Digest `json:"digest"`
		Kind     string        `json:"kind"`
		Size     int64         `json:"size"`
		Encoding string        `json:"encoding,omitempty"`
		Image    string        `json:"image,omitempty"`
		Headers  bool          `json:"headers,omitempty"` // of a base: its tar headers are needed, not only its files
	}
	d := struct {
		Path     string   `json:"path"`
		Bytes    int64    `json:"bytes"`
		Image    string   `json:"image"`
		Memory   int64    `json:"memory_bytes"`
		Temp     int64    `json:"temp_bytes"`
		Features []string `json:"features,omitempty"`
		Objects  []object `json:"objects"`
		Bases    []object `json:"bases"`
	}{Path: path, Bytes: size, Image: h.Image, Memory: h.Memory, Temp: h.Temp, Features: h.Features}
	for _, o := range h.Objects {
		d.Objects = append(d.Objects, object{Digest: o.Digest, Kind: string(o.Kind), Size: o.Size, Encoding: string(o.Encoding)})
	}
	for _, b := range h.Bases {
		d.Bases = append(d.Bases, object{Digest: b.Digest, Kind: string(b.Kind), Size: b.Size, Image: b.Image, Headers: b.Headers})
	}
	return d
}

// publicKeys reads the key that must have signed an artifact; none without a file.
func publicKeys(file string) ([]crypto.PublicKey, error) {
	if file == "" {
		return nil, nil
	}
	k, err := readKey("--key", file, mender.LoadPublicKey)
	if err != nil {
		return nil, err
	}
	return []crypto.PublicKey{k}, nil
}

func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "gen-man DIR",
		Short:  "write the man pages to DIR",
		Hidden: true,
		RunE: func(c *cobra.Command, args []string) error {
			when, err := epoch()
			if err != nil {
				return err
			}
			if info, err := os.Stat(args[0]); err != nil {
				return &write.Error{Err: err}
			} else if !info.IsDir() {
				return &write.Error{Err: &fs.PathError{Op: "write", Path: args[0], Err: fs.ErrInvalid}}
			}
			root := c.Root()
			root.DisableAutoGenTag = true
			return doc.GenManTree(root, &doc.GenManHeader{Title: "APP-GEN", Section: "1", Source: "mender-app", Manual: "mender-app", Date: &when}, args[0])
		},
	}
}
