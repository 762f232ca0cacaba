package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/generator/content"
	"github.com/mender-app/mender-app/generator/places"
)

func byReferenceCommand() *cobra.Command {
	f := &genFlags{}
	var o content.Options
	var asJSON bool
	c := &cobra.Command{
		Use:   "by-reference ARTIFACT PLACE",
		Short: "take the images out of an artifact, for devices to fetch by their digests",
		Long: `by-reference writes each form of each image in ARTIFACT, such as a delta or the whole image,
to PLACE: as a file named by its SHA-256, or as a blob of a registry. PLACE is
` + places.Forms + `.
The artifact that it writes has only the manifests and the digests, some kilobytes. A device
fetches the form that it needs, from a --source or from content_mirrors of its
mender-app.conf, such as any web server or a directory on a USB stick. Without a --source,
content in a registry is fetched from there.

Keep ARTIFACT, because later releases build on it. Put PLACE onto the server before you
deploy the artifact. --key or --sign-command signs the new artifact; the signed statement
about the application does not change.

` + exitText,
		Example: `  app-gen --bases-from releases --full-fallback -n shop-5
  app-gen by-reference releases/shop-5.mender public/content \
      --source https://downloads.example/content -o shop-5.mender --key private.pem
  app-gen by-reference releases/shop-5.mender oci:registry.example/shop/content -o shop-5.mender`,
		RunE: func(c *cobra.Command, args []string) (err error) {
			o.Artifact = args[0]
			if o.Place, err = places.OpenContents(args[1]); err != nil {
				return err
			}
			if o.Output == "" {
				return &usageError{text: "--output-path is missing", hint: "name the artifact to write with -o"}
			}
			if same(o.Output, o.Artifact) {
				return &usageError{text: "--output-path is the artifact itself", hint: "later releases build on it: choose another name"}
			}
			if o.Sources, err = sources(o.Sources, o.Place); err != nil {
				return err
			}
			s, err := f.signing(c.Context())
			if err != nil {
				return err
			}
			o.Signing = mender.Options{Key: s.Key, Sign: s.Sign, Public: s.Public}
			if o.Signing.ModTime, err = epoch(); err != nil {
				return err
			}
			r, err := content.Take(c.Context(), o)
			if err != nil {
				return kept(c.Context(), err, "interrupted: no artifact was written", "images that are in PLACE by now stay there: the same command goes on")
			}
			if asJSON {
				return printJSON(c.OutOrStdout(), r)
			}
			printContent(c.OutOrStdout(), r.Files)
			fmt.Fprintf(c.OutOrStdout(), "%s: %s, artifact %s without its images, which are in %s\n", o.Output, bytesText(r.Size), r.Name, o.Place)
			return nil
		},
	}
	fl := c.Flags()
	fl.SortFlags = false
	fl.StringVarP(&o.Output, "output-path", "o", "", "artifact to write")
	fl.StringArrayVar(&o.Sources, "source", nil, "URL below which devices find the content, after their own mirrors (repeatable)")
	f.keyFlags(c)
	fl.StringVar(&o.TempDir, "temp-dir", "", "directory for temporary files (default: TMPDIR)")
	fl.BoolVar(&asJSON, "json", false, "print one JSON document")
	return c
}

func mirrorCommand() *cobra.Command {
	var from, temp string
	var asJSON bool
	c := &cobra.Command{
		Use:   "mirror ARTIFACT… PLACE",
		Short: "copy the content that devices fetch to another place",
		Long: `mirror copies the content of artifacts of by-reference to another PLACE, such as a directory
on a USB stick or the registry of a site. Each file is compared with its digest. Existing
files are not copied again, so mirror can be repeated. A device asks the mirrors in
content_mirrors of its mender-app.conf, and never trusts them.

` + exitText,
		Example: "  app-gen mirror shop-5.mender /media/usb/content --from public/content",
		RunE: func(c *cobra.Command, args []string) error {
			if from == "" {
				return &usageError{text: "--from is missing", hint: "name the place that app-gen by-reference wrote to"}
			}
			source, err := places.OpenContents(from)
			if err != nil {
				return err
			}
			place, err := places.OpenContents(args[len(args)-1])
			if err != nil {
				return err
			}
			var all []content.File
			for _, path := range args[:len(args)-1] {
				list, err := content.Mirror(c.Context(), path, source, place, temp)
				if err != nil {
					return kept(c.Context(), err, "interrupted: the copy is not whole", "what was copied stays: the same command copies the rest")
				}
				all = append(all, list...)
			}
			if asJSON {
				return printJSON(c.OutOrStdout(), struct {
					Content []content.File `json:"content"`
				}{all})
			}
			printContent(c.OutOrStdout(), all)
			return nil
		},
	}
	c.Flags().StringVar(&from, "from", "", "place that has the content")
	c.Flags().StringVar(&temp, "temp-dir", "", "directory for temporary files (default: TMPDIR)")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return c
}

// sources are the URLs of --source. Without any, devices ask the registry that has the
// content.
func sources(given []string, place *places.Contents) ([]string, error) {
	if s := place.Source(); s != "" && len(given) == 0 {
		given = []string{s}
	}
	if err := artifact.CheckSources(given); err != nil {
		return nil, &usageError{text: "--source: " + err.Error()}
	}
	return given, nil
}

func printContent(w io.Writer, list []content.File) {
	t := newColumns(w, "IMAGE", "OVER", "SIZE", "CONTENT", "")
	for _, f := range list {
		over, state := f.Base, "new"
		if over == "" {
			over = "anything"
		}
		if f.There {
			state = "is there"
		}
		t.row(f.URL, over, bytesText(f.Size), f.Digest.Hex()[:12]+"…", state)
	}
	t.print()
}

// same reports whether two paths lead to one file.
func same(a, b string) bool {
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(x, y) || filepath.Clean(a) == filepath.Clean(b)
}
