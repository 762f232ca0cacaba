package compose

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// The labels of the generated file. Both change a service's configuration, so
// they are set only where they are needed.
const (
	labelContent = "mender-app.content"     // hash of what the service mounts from the manifests
	labelApp     = "mender-app.application" // where the directory's name does not tell
)

// override writes the file that is given to Compose after the project's own.
// With it a service whose mounted files changed is recreated, as one whose
// configuration changed is; bind sources keep their paths over releases, so
// Compose alone would see no difference. It returns "" if none is needed.
func (p *project) override(app, tempDir string) (string, error) {
	type service struct {
		Labels map[string]string `json:"labels"`
	}
	services := map[string]service{}
	for name, svc := range p.model.Services {
		labels := map[string]string{}
		if !ownDirectory(app, p.dir) {
			labels[labelApp] = strings.ReplaceAll(app, "$", "$$")
		}
		sum, err := p.mounted(svc)
		if err != nil {
			return "", fmt.Errorf("service %s: %w", name, err)
		}
		if sum != "" {
			labels[labelContent] = sum
		}
		if len(labels) > 0 {
			services[name] = service{labels}
		}
	}
	if len(services) == 0 {
		return "", nil
	}
	b, err := json.MarshalIndent(map[string]any{"services": services}, "", "  ")
	if err != nil {
		return "", err
	}
	name := filepath.Join(tempDir, "mender-app.compose.json")
	return name, os.WriteFile(name, append(b, '\n'), 0o600)
}

// ownDirectory reports whether dir is where mender-app keeps the application's
// manifests, so that it tells whose containers run from it.
func ownDirectory(app, dir string) bool {
	return filepath.Base(dir) == "manifests" && filepath.Base(filepath.Dir(dir)) == app
}

// mounted returns a hash of all a service mounts from the project's directory,
// "" if that is nothing.
func (p *project) mounted(svc service) (string, error) {
	var paths []string
	for _, v := range svc.Volumes {
		if v.Type == "bind" {
			paths = append(paths, v.Source)
		}
	}
	for _, c := range svc.Configs {
		paths = append(paths, p.model.Configs[c.Source].File)
	}
	for _, c := range svc.Secrets {
		paths = append(paths, p.model.Secrets[c.Source].File)
	}
	h := sha256.New()
	any := false
	for _, path := range paths {
		rel, err := filepath.Rel(p.dir, path)
		if path == "" || err != nil || !filepath.IsLocal(rel) {
			continue
		}
		any = true
		if err := hashTree(h, p.dir, rel); err != nil {
			return "", err
		}
	}
	if !any {
		return "", nil
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// hashTree hashes the tree at dir/rel: names, types, permissions, contents. One
// that is not there counts as an empty directory, which Compose makes of it.
func hashTree(h hash.Hash, dir, rel string) error {
	root := filepath.Join(dir, rel)
	// What is given itself may be a link; the mount follows it.
	real, err := filepath.EvalSymlinks(root)
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(h, "%q\n", rel)
		return nil
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(h, "%q\n", rel)
	return filepath.WalkDir(real, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		in, err := filepath.Rel(real, name)
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		if in != "." || !d.IsDir() {
			fmt.Fprintf(h, "%q %v %d\n", in, fi.Mode(), fi.Size())
		}
		switch {
		case d.Type().IsRegular():
			f, err := os.Open(name)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = io.Copy(h, f)
			return err
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(name)
			fmt.Fprintf(h, "%q\n", target)
			return err
		}
		return nil
	})
}
