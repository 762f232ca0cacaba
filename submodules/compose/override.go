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
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The labels of the generated file. Both change a service's configuration, so they
// are set only where they are needed. Labels in the project's files and images that
// could make one application pass for another are overridden.
const (
	labelContent = "mender-app.content"     // hash of what the service mounts from the manifests; of a network, of what it is made from
	labelApp     = "mender-app.application" // where the directory's name does not tell
)

// overrides is the file that is given to Compose after the project's own.
type overrides struct {
	Services map[string]serviceOverride `json:"services,omitempty"`
	Networks map[string]labelled        `json:"networks,omitempty"`
	Volumes  map[string]existing        `json:"volumes,omitempty"`
	Configs  map[string]fileObject      `json:"configs,omitempty"`
	Secrets  map[string]fileObject      `json:"secrets,omitempty"`
}

type serviceOverride struct {
	Image   string            `json:"image,omitempty"`
	CPUSet  string            `json:"cpuset,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	Volumes []mount           `json:"volumes,omitempty"`
	Scale   *int              `json:"scale,omitempty"`
	Deploy  *replicas         `json:"deploy,omitempty"`
}

type labelled struct {
	Labels map[string]string `json:"labels"`
}

// existing is a volume that Compose does not make.
type existing struct {
	Name     string `json:"name"`
	External bool   `json:"external"`
}

// replicas is the other way to say how many containers a service has. Compose refuses
// files that say both.
type replicas struct {
	Replicas int `json:"replicas"`
}

// override writes the file that is given to Compose after the project's own, or
// returns "" if none is needed. With it a service is recreated exactly when
// something that it mounts from the manifests changed. In mender-app's store the
// service mounts a copy named by its content (see copies). Elsewhere the sources
// keep their paths, so Compose would see no difference; a label with a hash shows
// it.
func (p *project) override(app, tempDir string) (string, error) {
	o := overrides{Services: map[string]serviceOverride{}}
	c, err := p.copies(app)
	if err != nil {
		return "", err
	}
	for name, svc := range p.model.Services {
		so := serviceOverride{Image: p.images[name], Labels: map[string]string{}}
		if svc.reserved {
			so.CPUSet = svc.CPUSet
		}
		if p.marked[name] || !ownDirectory(app, p.dir) {
			so.Labels[labelApp] = strings.ReplaceAll(app, "$", "$$")
		}
		if c != nil {
			if so.Volumes, err = c.volumes(svc, p.oldPaths[name]); err != nil {
				return "", fmt.Errorf("service %s: %w", name, err)
			}
		}
		for _, path := range slices.Sorted(maps.Keys(p.byName[name])) {
			volume := p.byName[name][path]
			so.Volumes = append(so.Volumes, svc.mountByName(path, volume))
			if o.Volumes == nil {
				o.Volumes = map[string]existing{}
			}
			o.Volumes[volume] = existing{volume, true}
		}
		sum, err := p.mounted(svc, c == nil)
		if err != nil {
			return "", fmt.Errorf("service %s: %w", name, err)
		}
		if p.marked[name] || sum != "" {
			so.Labels[labelContent] = sum
		}
		switch {
		case svc.off && svc.Deploy != nil && svc.Deploy.Replicas != nil:
			so.Deploy = &replicas{}
		case svc.off:
			so.Scale = new(int)
		}
		if svc.off || so.Image != "" || so.CPUSet != "" || len(so.Labels)+len(so.Volumes) > 0 {
			o.Services[name] = so
		}
	}
	for key, sum := range p.sums {
		if o.Networks == nil {
			o.Networks = map[string]labelled{}
		}
		o.Networks[key] = labelled{map[string]string{labelContent: sum}}
	}
	if c != nil {
		if o.Configs, err = c.objects(p.model.Configs); err != nil {
			return "", fmt.Errorf("configs: %w", err)
		}
		if o.Secrets, err = c.objects(p.model.Secrets); err != nil {
			return "", fmt.Errorf("secrets: %w", err)
		}
	}
	for name, secret := range p.sealed {
		if o.Secrets == nil {
			o.Secrets = map[string]fileObject{}
		}
		o.Secrets[name] = fileObject{File: strings.ReplaceAll(secret.path, "$", "$$")}
	}
	if len(o.Services)+len(o.Networks)+len(o.Configs)+len(o.Secrets) == 0 {
		return "", nil
	}
	b, err := json.MarshalIndent(o, "", "  ")
	if err != nil {
		return "", err
	}
	name := filepath.Join(tempDir, "mender-app.compose.json")
	return name, os.WriteFile(name, append(b, '\n'), 0o600)
}

// mountByName is the service's mount at a path, with a volume that the engine has.
func (s service) mountByName(path, volume string) mount {
	m := mount{"type": "volume", "target": path}
	for _, v := range s.Volumes {
		if v.Text("target") == path {
			m = maps.Clone(v)
		}
	}
	m["source"] = volume
	return m
}

// ownDirectory reports whether dir is where mender-app keeps the application's
// manifests: containers that run from there are the application's.
func ownDirectory(app, dir string) bool {
	return filepath.Base(dir) == "manifests" && filepath.Base(filepath.Dir(dir)) == app
}

// mounted returns a hash of the configs and secrets that a service has from the
// project's directory, and of its binds if binds is set; "" if it has none.
func (p *project) mounted(svc service, binds bool) (string, error) {
	var paths []string
	for _, v := range svc.Volumes {
		if v.Text("type") == "bind" && binds {
			paths = append(paths, v.Text("source"))
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
	for _, c := range svc.Secrets {
		if secret, ok := p.sealed[c.Source]; ok {
			any = true
			fmt.Fprintf(h, "secret %q %s\n", c.Source, secret.name)
		}
	}
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

// directorySize stands for the size of a directory, which depends on its file system and its
// past. It is that of a small one on ext4, which an earlier version took.
const directorySize = 4096

// hashTree hashes the tree at dir/rel: names, types, permissions, contents. A
// missing one counts as an empty directory, because Compose creates one.
func hashTree(h hash.Hash, dir, rel string) error {
	root := filepath.Join(dir, rel)
	// The path itself may be a link, which the mount follows.
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
			size := fi.Size()
			if d.IsDir() {
				size = directorySize
			}
			fmt.Fprintf(h, "%q %v %d\n", in, fi.Mode(), size)
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
