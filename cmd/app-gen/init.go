package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/generator"
	"github.com/mender-app/mender-app/generator/manifests"
	"github.com/mender-app/mender-app/generator/write"
)

// unknownType is the device type that init writes if none is given.
const unknownType = "change-me"

// releasesDir is the directory that init sets for new and older artifacts.
const releasesDir = "releases"

// ignoreText is the file that excludes a project's other files from shipping to devices.
const ignoreText = `# Files that app-gen does not ship to devices, in the syntax of .dockerignore.
` + releasesDir + `
` + configFile + `
.git
.gitignore
.github
**/Dockerfile*
**/.dockerignore
**/node_modules
**/.venv
**/__pycache__
`

// project has the values that init writes into app-gen.toml.
type project struct {
	application string
	deviceTypes []string
	platforms   []string
}

func initCommand() *cobra.Command {
	p := &project{}
	c := &cobra.Command{
		Use:   "init",
		Short: "write app-gen.toml for the Compose project in this directory",
		Long: `init writes app-gen.toml, with the options that stay the same for all releases, for the
Compose project in the working directory. It asks nothing. app-gen -n NAME then makes a
release in releases/, with deltas over the last three releases there.

init also writes .menderappignore, unless there is one, and makes releases/.

` + exitText,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := p.complete(); err != nil {
				return err
			}
			return p.write(c.OutOrStdout())
		},
	}
	c.Flags().StringVarP(&p.application, "application-name", "a", "", "name of the application (default: the Compose project's, or the directory's)")
	c.Flags().StringArrayVarP(&p.deviceTypes, "device-type", "t", nil, "device type of the devices (repeatable; default: "+unknownType+", which you replace)")
	c.Flags().StringArrayVarP(&p.platforms, "platform", "p", nil, "platform of the devices (repeatable; default: this machine's)")
	return c
}

// complete fills in the missing values.
func (p *project) complete() error {
	file, name, err := manifests.ComposeProject(".")
	if err != nil {
		var e *manifests.Error
		if errors.As(err, &e) {
			return &generator.ManifestError{Dir: ".", Err: e}
		}
		return err
	}
	if file == "" {
		return &generator.ManifestError{Dir: ".", Err: &manifests.Error{Place: manifests.Place{File: "."}, Text: "no Compose file in this directory", Hint: "run app-gen init beside compose.yaml"}}
	}
	if p.application == "" {
		dir, err := os.Getwd()
		if err != nil {
			return err
		}
		if p.application = applicationName(name); p.application == "" {
			p.application = applicationName(filepath.Base(dir))
		}
		if p.application == "" {
			return &usageError{text: "neither the Compose file nor the directory has a name for an application", hint: "give it with --application-name"}
		}
	}
	if err := names.CheckNew(p.application); err != nil {
		return &usageError{text: "--application-name: " + err.Error()}
	}
	if len(p.deviceTypes) == 0 {
		p.deviceTypes = []string{unknownType}
	}
	if len(p.platforms) == 0 {
		p.platforms = []string{"linux/" + runtime.GOARCH}
	}
	for i, s := range p.platforms {
		platform, err := image.ParsePlatform(s)
		if err != nil {
			return &usageError{text: err.Error()}
		}
		p.platforms[i] = platform.String()
	}
	return nil
}

// applicationName makes an application's name from another name; "" if it cannot.
func applicationName(s string) string {
	s = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.' {
			return r
		}
		return '-'
	}, s)
	s = strings.Trim(s, "-_.")
	if names.CheckNew(s) != nil {
		return ""
	}
	return s
}

// text is app-gen.toml.
func (p *project) text() string {
	var b strings.Builder
	output := releasesDir + "/" + namePlaceholder
	if len(p.platforms) > 1 {
		output += "-" + placeholder
	}
	fmt.Fprintf(&b, "# Options of app-gen that do not change between releases; app-gen --help has all.\n")
	fmt.Fprintf(&b, "application-name = %s\n", tomlText(p.application))
	fmt.Fprintf(&b, "device-type = %s\n", tomlList(p.deviceTypes))
	fmt.Fprintf(&b, "platform = %s\n", tomlList(p.platforms))
	fmt.Fprintf(&b, "orchestrator = \"docker-compose\"\nmanifests-dir = \".\"\n")
	fmt.Fprintf(&b, "output-path = %s\n", tomlText(output+".mender"))
	fmt.Fprintf(&b, "# Images travel as deltas over the last releases.\nbases-from = [%s]\nlast = 3\n", tomlText(releasesDir))
	return b.String()
}

func tomlList(list []string) string {
	var quoted []string
	for _, s := range list {
		quoted = append(quoted, tomlText(s))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// tomlText writes a text as a TOML string.
func tomlText(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`).Replace(s) + `"`
}

// write writes the files and prints how to make releases.
func (p *project) write(w io.Writer) error {
	text := p.text()
	var check map[string]any
	if _, err := toml.Decode(text, &check); err != nil {
		return &usageError{text: "an option has characters that cannot be written: " + err.Error()}
	}
	if err := create(configFile, text); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return &usageError{text: configFile + " already exists", hint: "change it, or remove it first"}
		}
		return &write.Error{Err: err}
	}
	wrote, err := writeBeside()
	if err != nil {
		os.Remove(configFile)
		return &write.Error{Err: err}
	}
	fmt.Fprintf(w, "wrote %s\n", strings.Join(append([]string{configFile}, wrote...), ", "))
	if p.deviceTypes[0] == unknownType {
		fmt.Fprintf(w, "before the first release, replace the device type %s in %s: a device has its own in /var/lib/mender/device_type\n", unknownType, configFile)
	}
	fmt.Fprintf(w, "the first release:\n  app-gen -n %[1]s-1\nand the next, as deltas over it:\n  app-gen -n %[1]s-2\n", p.application)
	if !slices.Contains(wrote, manifests.IgnoreFile) {
		fmt.Fprintf(w, "%s already exists: it must exclude %s and %s\n", manifests.IgnoreFile, releasesDir, configFile)
	}
	return nil
}

// writeBeside writes .menderappignore and makes the directory of releases. It returns
// the names of those it made.
func writeBeside() (wrote []string, err error) {
	switch err := create(manifests.IgnoreFile, ignoreText); {
	case err == nil:
		wrote = append(wrote, manifests.IgnoreFile)
	case !errors.Is(err, fs.ErrExist):
		return nil, err
	}
	if err = os.Mkdir(releasesDir, 0o777); err == nil {
		return append(wrote, releasesDir+"/"), nil
	}
	info, serr := os.Stat(releasesDir)
	switch {
	case serr == nil && info.IsDir():
		return wrote, nil
	case serr == nil:
		err = errors.New(releasesDir + " is not a directory")
	}
	if len(wrote) > 0 {
		os.Remove(manifests.IgnoreFile)
	}
	return nil, err
}

// create writes a new file; on an error it leaves nothing behind.
func create(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		os.Remove(path)
	}
	return err
}
