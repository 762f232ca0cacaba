package main

import (
	"crypto"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/output"
	"github.com/mender-app/mender-app/artifact/scratch"
	"github.com/mender-app/mender-app/generator"
	"github.com/mender-app/mender-app/generator/inspect"
	"github.com/mender-app/mender-app/generator/write"
)

// placeholder stands for the platform in names, as platformName writes it.
const placeholder = "{platform}"

// namePlaceholder stands for the artifact's name in names of files.
const namePlaceholder = "{name}"

// platformName is the platform in names of files: linux/arm/v7 is linux-arm-v7.
func platformName(p image.Platform) string { return strings.ReplaceAll(p.String(), "/", "-") }

// target is one artifact of a run.
type target struct {
	options generator.Options
	base    string // with --split: the base version of its deltas, or whole
	quiet   bool   // no progress is shown
	stdout  bool   // the artifact goes to standard output
	temp    string // directory of the intermediate file; "" for none
	result  *generator.Result
	made    *inspect.Description // nil after a dry run
}

// name identifies the artifact among those of the run, for people.
func (t *target) name() string {
	name := t.options.Application.Platform.String()
	if t.base != "" {
		name += ", " + t.base
	}
	return name
}

// parsePlatforms reads the options --platform. With several, every output file must
// have its own name.
func (f *genFlags) parsePlatforms() ([]image.Platform, error) {
	var list []image.Platform
	for _, s := range f.platforms {
		p, err := image.ParsePlatform(s)
		if err != nil {
			return nil, &usageError{text: err.Error()}
		}
		if slices.Contains(list, p) {
			return nil, &usageError{text: "--platform " + p.String() + " is given twice"}
		}
		list = append(list, p)
	}
	if len(list) < 2 {
		return list, nil
	}
	b := &f.o.Build
	for _, out := range []struct{ option, path string }{{"--output-path", b.Output}, {"--sbom", b.SBOM}, {"--provenance", b.Provenance}} {
		if out.path == standard {
			return nil, &usageError{
				text: fmt.Sprintf("%d platforms make %d artifacts, but standard output takes only one", len(list), len(list)),
				hint: "give --output-path a name with " + placeholder,
			}
		}
		if out.path != "" && !strings.Contains(out.path, placeholder) {
			return nil, &usageError{
				text: fmt.Sprintf("%d platforms make %d artifacts, but %s %s names one file", len(list), len(list), out.option, out.path),
				hint: fmt.Sprintf("write %s into the name, such as %s; it becomes %s", placeholder, withPlaceholder(out.path), platformName(list[0])),
			}
		}
	}
	return list, nil
}

// withPlaceholder puts the placeholder before the ending of a file's name.
func withPlaceholder(path string) string {
	ext := filepath.Ext(path)
	return strings.TrimSuffix(path, ext) + "-" + placeholder + ext
}

// expanded is f with the placeholder replaced in every option that may have it.
func (f *genFlags) expanded(p image.Platform) *genFlags {
	c := *f
	name := platformName(p)
	text := func(s *string) { *s = strings.ReplaceAll(*s, placeholder, name) }
	text(&c.o.Artifact.Name)
	own := strings.ReplaceAll(c.o.Artifact.Name, "/", "-")
	for _, path := range []*string{&c.o.Build.Output, &c.o.Build.SBOM, &c.o.Build.Provenance} {
		*path = strings.ReplaceAll(*path, namePlaceholder, own)
		text(path)
	}
	list := func(l *[]string) {
		*l = slices.Clone(*l)
		for i := range *l {
			text(&(*l)[i])
		}
	}
	for _, l := range []*[]string{&c.images, &c.files, &c.o.Artifact.DeviceTypes, &c.o.Images.Releases.Paths, &c.o.Images.Releases.Dirs, &c.o.Images.Content} {
		list(l)
	}
	c.given, c.o.Application.Platform = f.images, p
	return &c
}

// generateAll makes the artifacts of all platforms, or none.
func generateAll(c *cobra.Command, targets []*target, dry bool) error {
	for _, t := range targets {
		defer t.discard()
		if err := t.prepare(dry); err != nil {
			return err
		}
		if err := t.generate(c, dry); err != nil {
			if len(targets) > 1 {
				return fmt.Errorf("%s: %w", t.name(), err)
			}
			return err
		}
	}
	if err := checkSplit(targets); err != nil {
		return err
	}
	for _, t := range targets {
		if t.stdout && !dry {
			if err := toStandardOutput(t.result.Unpublished); err != nil {
				return err
			}
		}
		if err := t.result.Publish(); err != nil {
			return err
		}
	}
	return nil
}

// prepare gives an artifact for standard output a file in a temporary directory.
func (t *target) prepare(dry bool) error {
	b := &t.options.Build
	if t.stdout = output.IsStandard(b.Output); !t.stdout {
		return nil
	}
	if !dry {
		if err := checkStandardOutput(); err != nil {
			return err
		}
	}
	var err error
	if t.temp, err = scratch.Dir(b.TempDir, scratch.HostPrefix); err != nil {
		return &write.Error{Err: err}
	}
	b.Output = filepath.Join(t.temp, "artifact.mender")
	return nil
}

// generate makes one artifact and reads it back, so the report always agrees with the
// file.
func (t *target) generate(c *cobra.Command, dry bool) error {
	bars := newBarsOrLines(t.quiet)
	defer bars.stop()
	t.options.Build.Progress, t.options.Build.Hold = bars.event, true
	var err error
	if t.result, err = generator.Generate(c.Context(), t.options, dry); err != nil || dry {
		return err
	}
	bars.stop()
	var keys []crypto.PublicKey
	if k := t.options.Artifact.Signing.PublicKey(); k != nil {
		keys = append(keys, k)
	}
	if t.made, err = inspect.Made(c.Context(), t.result.Unpublished, keys, t.options.Build.TempDir); err != nil {
		return fmt.Errorf("the new artifact does not read back: %w", err)
	}
	t.made.Path = t.path()
	return nil
}

// path is where the artifact goes.
func (t *target) path() string {
	if t.stdout {
		return standard
	}
	return t.result.Path
}

// discard removes unpublished files.
func (t *target) discard() {
	if t.temp != "" {
		scratch.Remove(t.temp)
	}
	if t.result != nil {
		t.result.Discard()
	}
}
