package rules

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/compose-spec/compose-go/v2/dotenv"
)

// This file finds and reads the files of a Compose project in a directory, as far as that
// is needed before Compose itself reads them.

// The files that Compose looks for by default; the first one of each list that
// exists.
var (
	mainFiles     = []string{"compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml"}
	overrideFiles = []string{"compose.override.yml", "compose.override.yaml", "docker-compose.override.yml", "docker-compose.override.yaml"}
)

// FindFiles finds the project's files as Compose does: COMPOSE_FILE in a shipped
// .env, else the default names. They are named on the command line, because Compose
// does not look for them when it is given the generated file.
func FindFiles(dir string) ([]string, error) {
	env, err := Variables(dir)
	if err != nil {
		return nil, err
	}
	if list := env["COMPOSE_FILE"]; list != "" {
		sep := env["COMPOSE_PATH_SEPARATOR"]
		if sep == "" {
			sep = string(os.PathListSeparator)
		}
		var files []string
		for _, f := range strings.Split(list, sep) {
			if !filepath.IsLocal(f) {
				return nil, refused("COMPOSE_FILE in %s/.env names %q, outside the manifests", dir, f)
			}
			files = append(files, filepath.Join(dir, f))
		}
		return files, nil
	}
	var files []string
	for i, names := range [][]string{mainFiles, overrideFiles} {
		for _, n := range names {
			if _, err := os.Stat(filepath.Join(dir, n)); err == nil {
				files = append(files, filepath.Join(dir, n))
				break
			}
		}
		if i == 0 && len(files) == 0 {
			return nil, refused("no compose file in %s (compose.yaml, docker-compose.yml, …)", dir)
		}
	}
	return files, nil
}

// maxText bounds a Compose or env file that is read here, in bytes.
const maxText = 4 << 20

// ReadFile reads a Compose or env file of bounded size.
func ReadFile(name string) ([]byte, error) {
	fi, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() || fi.Size() > maxText {
		return nil, fmt.Errorf("%s is no file, or larger than %d bytes", name, maxText)
	}
	return os.ReadFile(name)
}

// A name at the top level of a Compose file, in YAML or JSON. A file may begin with a BOM.
var topName = regexp.MustCompile(`(?m)^\x{FEFF}?(?:name|"name"|'name')[ \t]*:|^\x{FEFF}?\{[ \t\r\n]*"name"[ \t\r\n]*:`)

// Named reports whether the files name the project: the .env in dir, or a Compose
// file at its top level.
func Named(dir string, files []string) (bool, error) {
	env, err := Variables(dir)
	if err != nil {
		return false, err
	}
	if env["COMPOSE_PROJECT_NAME"] != "" {
		return true, nil
	}
	for _, f := range files {
		b, err := ReadFile(f)
		if errors.Is(err, os.ErrNotExist) {
			continue // Compose says so better
		}
		if err != nil {
			return false, err
		}
		if topName.Match(b) {
			return true, nil
		}
	}
	return false, nil
}

var notInName = regexp.MustCompile(`[^a-z0-9_-]`)

// ProjectName makes a project name from an application's name, by Compose's rules.
func ProjectName(app string) string {
	name := strings.TrimLeft(notInName.ReplaceAllString(strings.ToLower(app), ""), "_-")
	if name == "" {
		return fmt.Sprintf("app-%x", app)
	}
	return name
}

// Variables reads the .env in dir, nil if there is none. Variables of the caller do
// not count.
func Variables(dir string) (map[string]string, error) {
	text, err := ReadFile(filepath.Join(dir, ".env"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := new(Interpolation).Add(string(text)); err != nil {
		return nil, refused("%s/.env: %w", dir, err)
	}
	env, err := dotenv.ParseWithLookup(strings.NewReader(string(text)), func(string) (string, bool) { return "", false })
	if err != nil {
		return nil, refused("%s/.env: %w", dir, err)
	}
	return env, nil
}

// Here is the variable PWD of Compose: what the .env of a project says, else the directory of
// the project, for a path such as ${PWD}/data. Some versions of Compose set it themselves, to
// the directory that they are started in, and some do not; so each is given it.
func Here(env map[string]string) string { return cmp.Or(env["PWD"], ".") }
