package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// model is the part of docker compose config that stand-ins depend on.
type model struct {
	Services map[string]service `json:"services"`
	Networks map[string]outside `json:"networks"`
	Volumes  map[string]outside `json:"volumes"`
}

// outside is a network or a volume, which may be another's.
type outside struct {
	Name     string `json:"name"`
	External bool   `json:"external"`
}

type service struct {
	Image       string          `json:"image"`
	Build       json.RawMessage `json:"build"`
	Entrypoint  []string        `json:"entrypoint"`
	Command     []string        `json:"command"`
	User        string          `json:"user"`
	Healthcheck *struct {
		Test []string `json:"test"`
	} `json:"healthcheck"`
	DependsOn map[string]struct {
		Condition string `json:"condition"`
	} `json:"depends_on"`
}

const platform = "linux/" + runtime.GOARCH

// images are the references of the services, sorted.
func (m model) images() (list []string) {
	for _, s := range m.Services {
		if s.Image != "" && !slices.Contains(list, s.Image) {
			list = append(list, s.Image)
		}
	}
	slices.Sort(list)
	return list
}

// programs are the paths that the stand-in must have in its images, sorted.
func (m model) programs() []string {
	list := []string{"bin/sh", "bin/bash"}
	add := func(command []string) {
		if len(command) == 0 || command[0] == "" {
			return
		}
		p := command[0]
		if !strings.Contains(p, "/") {
			p = "usr/bin/" + p
		}
		if p = strings.TrimPrefix(path.Clean("/"+p), "/"); !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	for _, s := range m.Services {
		add(s.Entrypoint)
		if h := s.Healthcheck; h != nil && len(h.Test) > 1 && h.Test[0] == "CMD" {
			add(h.Test[1:])
		}
	}
	slices.Sort(list)
	return list
}

// jobs are the commands of the services that others wait for until they have ended: one of
// JSON a line, as the stand-in gets it.
func (m model) jobs() string {
	lines := map[string]bool{}
	for _, s := range m.Services {
		for name, d := range s.DependsOn {
			if d.Condition != "service_completed_successfully" {
				continue
			}
			job := m.Services[name]
			command := slices.Concat(job.Entrypoint, job.Command)
			if len(job.Entrypoint) == 0 {
				command = slices.Concat([]string{"/standin"}, job.Command)
			}
			for i, word := range command {
				command[i] = strings.ReplaceAll(word, "$$", "$") // as docker compose config writes it
			}
			line, _ := json.Marshal(command) // it cannot fail: texts
			lines[string(line)+"\n"] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(lines)), "")
}

// healthy reports whether another service waits until one with this image is healthy, and
// the files have no check for it: then the image has.
func (m model) healthy(image string) bool {
	for _, s := range m.Services {
		for name, d := range s.DependsOn {
			if on := m.Services[name]; d.Condition == "service_healthy" && on.Image == image && on.Healthcheck == nil {
				return true
			}
		}
	}
	return false
}

// users is an /etc/passwd, or /etc/group, with the names that services run as.
func (m model) users() string {
	text := "root:x:0:0::/:/bin/sh\n"
	for i, s := range slices.Sorted(func(yield func(string) bool) {
		for _, s := range m.Services {
			for part := range strings.SplitSeq(s.User, ":") {
				if !yield(part) {
					return
				}
			}
		}
	}) {
		if s != "" && s != "root" && strings.Trim(s, "0123456789") != "" {
			text += fmt.Sprintf("%s:x:%d:%d::/:/bin/sh\n", s, 1000+i, 1000+i)
		}
	}
	return text
}

// layer is a layer with the members that fill writes.
func layer(fill func(*tar.Writer) error) (v1.Layer, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := fill(w); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
}

// archive writes stand-ins for references. Those of changed differ from the others by a file.
func archive(file string, program []byte, m model, changed string) error {
	base, err := layer(func(w *tar.Writer) error {
		if err := w.WriteHeader(&tar.Header{Name: "standin", Mode: 0o755, Size: int64(len(program))}); err != nil {
			return err
		}
		if _, err := w.Write(program); err != nil {
			return err
		}
		for _, p := range m.programs() {
			if err := w.WriteHeader(&tar.Header{Name: p, Typeflag: tar.TypeLink, Linkname: "standin", Mode: 0o755}); err != nil {
				return err
			}
		}
		// Always in this order: an image that does not change is the same.
		for _, f := range [][2]string{{"etc/group", strings.ReplaceAll(m.users(), "::/:/bin/sh", ":")}, {"etc/passwd", m.users()}, {"standin.jobs", m.jobs()}} {
			if err := w.WriteHeader(&tar.Header{Name: f[0], Mode: 0o644, Size: int64(len(f[1]))}); err != nil {
				return err
			}
			if _, err := io.WriteString(w, f[1]); err != nil {
				return err
			}
		}
		return w.WriteHeader(&tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o777})
	})
	if err != nil {
		return err
	}
	all := map[name.Tag]v1.Image{}
	for _, ref := range m.images() {
		text := ref + " 1\n"
		if ref == changed {
			text = ref + " 2\n"
		}
		own, err := layer(func(w *tar.Writer) error {
			if err := w.WriteHeader(&tar.Header{Name: "version", Mode: 0o644, Size: int64(len(text))}); err != nil {
				return err
			}
			_, err := io.WriteString(w, text)
			return err
		})
		if err != nil {
			return err
		}
		img, err := mutate.AppendLayers(empty.Image, base, own)
		if err != nil {
			return err
		}
		cf, err := img.ConfigFile()
		if err != nil {
			return err
		}
		cf = cf.DeepCopy()
		cf.OS, cf.Architecture, cf.Config.Entrypoint = "linux", runtime.GOARCH, []string{"/standin"}
		if m.healthy(ref) {
			cf.Config.Healthcheck = &v1.HealthConfig{Test: []string{"CMD", "/bin/sh"}, Interval: time.Second}
		}
		if img, err = mutate.ConfigFile(img, cf); err != nil {
			return err
		}
		tag, err := name.NewTag(ref)
		if err != nil {
			return fmt.Errorf("image %s: %w", ref, err)
		}
		all[tag] = img
	}
	if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
		return err
	}
	return tarball.MultiWriteToFile(file, all)
}
