package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/artifact/scratch"
	"github.com/mender-app/mender-app/generator/bases"
	"github.com/mender-app/mender-app/generator/places"
	"github.com/mender-app/mender-app/generator/source"
	"github.com/mender-app/mender-app/generator/write"
)

// chainError reports that releases are damaged, which --check makes an error.
type chainError struct{ damaged []string }

func (e *chainError) Error() string { return strings.Join(e.damaged, "; ") }

func (e *chainError) Advice() string {
	return "bring back the file as devices have it, or make a release that installs everywhere with --full-fallback"
}

func releasesCommand() *cobra.Command {
	var check, asJSON bool
	c := &cobra.Command{
		Use:   "releases [PLACE…]",
		Short: "list the releases, and the releases that each installs over",
		Long: `releases lists the releases in places, the newest first, with the releases over which
devices can install each. PLACE is a directory, an https URL, s3://BUCKET/PREFIX or
oci:HOST/REPOSITORY, as in --bases-from. A release that installs over anything also
installs on a device without the application.
Without PLACE, the places are bases-from and output-path of app-gen.toml.

It also names damage: an unreadable release, and one that no device without a release can
reach, because its base is missing or was replaced. With --check it reads each release to
its end, and damage is an error.

` + exitText,
		RunE: func(c *cobra.Command, args []string) error {
			dirs, err := releaseDirs(args)
			if err != nil {
				return err
			}
			dirs, remove, err := fetched(c.Context(), dirs)
			defer remove()
			if err != nil {
				return err
			}
			list, err := bases.Survey(c.Context(), dirs, check)
			if err != nil {
				return err
			}
			if asJSON {
				err = printJSON(c.OutOrStdout(), struct {
					Releases []bases.Surveyed `json:"releases"`
				}{append([]bases.Surveyed{}, list...)})
			} else {
				printReleases(c.OutOrStdout(), dirs, list)
			}
			if err != nil || !check {
				return err
			}
			var damaged []string
			for _, s := range list {
				if s.Damage != "" {
					damaged = append(damaged, s.Path+": "+s.Damage)
				}
			}
			if damaged != nil {
				return &chainError{damaged}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&check, "check", false, "read the releases to their ends, and fail if one is damaged")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	c.AddCommand(pushCommand())
	return c
}

func pushCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "push PLACE FILE.mender…",
		Short: "add releases to the place where they are kept",
		Long: `push adds artifacts to PLACE for --bases-from: a directory, an https URL that takes files
with PUT, s3://BUCKET/PREFIX or oci:HOST/REPOSITORY.

A name is written once. If PLACE has the same file, push does nothing; if it has a different
file of the name, push fails and changes nothing. So a job can be repeated.

` + exitText,
		Example: `  app-gen releases push s3://builds/shop releases/shop-2.mender
  app-gen --bases-from s3://builds/shop --last 3 -n shop-3`,
		RunE: func(c *cobra.Command, args []string) error {
			return push(c.Context(), c.OutOrStdout(), args[0], args[1:])
		},
	}
}

// push adds artifacts to a place. All are read before the first is sent.
func push(ctx context.Context, w io.Writer, text string, paths []string) error {
	to, err := places.Open(text)
	if err != nil {
		return err
	}
	for _, path := range paths {
		known, why, err := bases.ReadKnown(ctx, path)
		if err == nil && known == nil {
			err = errors.New(why)
		}
		if err == nil && !strings.HasSuffix(path, ".mender") {
			err = errors.New("the name of a release ends in .mender")
		}
		if err != nil {
			return &bases.Error{Text: path, Err: err}
		}
	}
	bars := newBars()
	defer bars.stop()
	for _, path := range paths {
		name := filepath.Base(path)
		report := func(n int64) { bars.event(source.Event{Stage: "push", What: name, Done: n, Total: -1}) }
		there, err := places.Put(ctx, to, name, path, report)
		if err != nil {
			return &bases.Error{Text: "push " + path + " to " + to.String(), Err: err}
		}
		done := "added"
		if there {
			done = "unchanged"
		}
		fmt.Fprintf(w, "%s %s in %s\n", done, name, to)
	}
	return nil
}

// fetched puts directories in place of URLs and registries, until remove is called.
func fetched(ctx context.Context, texts []string) (dirs []string, remove func(), err error) {
	var made []string
	remove = func() {
		for _, dir := range made {
			scratch.Remove(dir)
		}
	}
	bars := newBars()
	defer bars.stop()
	for _, place := range texts {
		if places.Remote(place) {
			dir, err := scratch.Dir("", scratch.HostPrefix)
			if err != nil {
				return nil, remove, &write.Error{Err: err}
			}
			made = append(made, dir)
			if err := bases.Fetch(ctx, place, dir, "", 0, bars.event); err != nil {
				return nil, remove, err
			}
			place = dir
		}
		dirs = append(dirs, place)
	}
	return dirs, remove, nil
}

// releaseDirs are the directories of a command line, or of app-gen.toml.
func releaseDirs(args []string) ([]string, error) {
	if len(args) > 0 {
		return args, nil
	}
	fl := generateCommand().Flags()
	configured, err := readConfig(fl)
	if err != nil {
		return nil, err
	}
	if !configured {
		return nil, &usageError{text: "no directory of releases is named, and there is no " + configFile + " here", hint: "name one: app-gen releases DIR"}
	}
	patterns, err := fl.GetStringArray("bases-from")
	if err != nil {
		return nil, err
	}
	output, err := fl.GetString("output-path")
	if err != nil {
		return nil, err
	}
	patterns = append(patterns, filepath.Dir(output))
	var dirs []string
	for _, p := range patterns {
		each := []string{p}
		if strings.Contains(p, placeholder) {
			if each, err = filepath.Glob(strings.ReplaceAll(p, placeholder, "*")); err != nil {
				return nil, &usageError{text: p + ": " + err.Error()}
			}
		}
		for _, dir := range each {
			if dir = cleaned(dir); !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs, nil
}

// cleaned is filepath.Clean for what is a path.
func cleaned(place string) string {
	if places.Remote(place) {
		return place
	}
	return filepath.Clean(place)
}

func printReleases(w io.Writer, dirs []string, list []bases.Surveyed) {
	if len(list) == 0 {
		fmt.Fprintf(w, "no release in %s\n", strings.Join(dirs, ", "))
		return
	}
	t := newColumns(w, "RELEASE", "PLATFORM", "SIZE", "INSTALLS OVER", "FILE")
	for _, s := range list {
		over := s.Over
		if s.First {
			over = []string{"anything"}
		}
		t.row(cmp.Or(s.Name, "-"), cmp.Or(s.Platform, "-"), bytesText(s.Bytes), cmp.Or(strings.Join(over, ", "), "-"), s.Path)
	}
	t.print()
	for _, s := range list {
		if s.Damage != "" {
			fmt.Fprintf(w, "damaged: %s: %s\n", s.Path, s.Damage)
		}
	}
}
