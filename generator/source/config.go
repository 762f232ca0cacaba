package source

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/google/go-containerregistry/pkg/name"

	"github.com/mender-app/mender-app/generator/requests"
)

// Config holds the settings for registries. They come from the Docker daemon's
// daemon.json (registry-mirrors, for docker.io, and insecure-registries) and from
// registries.conf, version 2 (prefix, location, insecure, blocked and mirrors).
// Credentials are not part of it: they come from Docker's config.json and its
// credential helpers.
type Config struct {
	registries []registryConfig
	insecure   []string // host[:port] or CIDR
}

type registryConfig struct {
	Prefix   string         `toml:"prefix"`
	Location string         `toml:"location"`
	Insecure bool           `toml:"insecure"`
	Blocked  bool           `toml:"blocked"`
	Mirrors  []mirrorConfig `toml:"mirror"`
}

type mirrorConfig struct {
	Location string `toml:"location"`
	Insecure bool   `toml:"insecure"`
}

// LoadConfig reads /etc/docker/daemon.json, and registries.conf with
// registries.conf.d from ~/.config/containers or else /etc/containers. A
// missing file is not an error; a malformed one is.
func LoadConfig() (Config, error) {
	var c Config
	if err := c.docker("/etc/docker/daemon.json"); err != nil {
		return c, err
	}
	dirs := []string{"/etc/containers"}
	if home, err := os.UserHomeDir(); err == nil {
		dirs = slices.Insert(dirs, 0, filepath.Join(home, ".config/containers"))
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, "registries.conf")
		if !exists(path) {
			continue
		}
		files, err := filepath.Glob(filepath.Join(dir, "registries.conf.d", "*.conf"))
		if err != nil {
			return c, err
		}
		for _, f := range append([]string{path}, files...) {
			if err := c.containers(f); err != nil {
				return c, err
			}
		}
		break
	}
	return c, nil
}

func (c *Config) docker(path string) error {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var d struct {
		Mirrors  []string `json:"registry-mirrors"`
		Insecure []string `json:"insecure-registries"`
	}
	if len(strings.TrimSpace(string(b))) > 0 {
		if err := json.Unmarshal(b, &d); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	c.insecure = append(c.insecure, d.Insecure...)
	if len(d.Mirrors) > 0 {
		r := registryConfig{Prefix: "docker.io"}
		for _, m := range d.Mirrors {
			scheme, rest, ok := strings.Cut(m, "://")
			if !ok {
				scheme, rest = "https", m
			}
			r.Mirrors = append(r.Mirrors, mirrorConfig{Location: strings.TrimSuffix(rest, "/"), Insecure: scheme == "http"})
		}
		c.registries = append(c.registries, r)
	}
	return nil
}

func (c *Config) containers(path string) error {
	var f struct {
		Registries []registryConfig `toml:"registry"`
	}
	if _, err := toml.DecodeFile(path, &f); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for _, r := range f.Registries {
		if r.Prefix == "" {
			r.Prefix = r.Location
		}
		if r.Prefix != "" {
			c.registries = append(c.registries, r)
		}
	}
	return nil
}

// candidate is one place where a repository may be: host[:port]/path.
type candidate struct {
	repository string
	insecure   bool
	mirror     bool
}

// candidates lists where to look for a repository (registry/path, docker.io
// for Docker Hub): its mirrors, then itself.
func (c Config) candidates(repository string) ([]candidate, error) {
	self := candidate{repository: repository}
	var list []candidate
	best := -1
	for i, r := range c.registries {
		if !r.covers(repository) || best >= 0 && len(r.Prefix) < len(c.registries[best].Prefix) {
			continue
		}
		best = i
	}
	if best >= 0 {
		prefix := c.registries[best].Prefix
		for _, r := range c.registries {
			if r.Prefix != prefix {
				continue
			}
			if r.Blocked {
				return nil, &Error{Text: repository + " is blocked by registries.conf"}
			}
			rest := ""
			if !strings.HasPrefix(prefix, "*.") {
				rest = strings.TrimPrefix(repository, prefix)
			}
			for _, m := range r.Mirrors {
				if m.Location != "" && !strings.HasPrefix(prefix, "*.") {
					list = append(list, candidate{repository: m.Location + rest, insecure: m.Insecure, mirror: true})
				}
			}
			if r.Location != "" && !strings.HasPrefix(prefix, "*.") {
				self.repository = r.Location + rest
			}
			self.insecure = self.insecure || r.Insecure
		}
	}
	list = append(list, self)
	for i := range list {
		host, _, _ := strings.Cut(list[i].repository, "/")
		list[i].insecure = list[i].insecure || c.isInsecure(host)
	}
	return list, nil
}

func (r registryConfig) covers(repository string) bool {
	if wild, ok := strings.CutPrefix(r.Prefix, "*."); ok {
		host, _, _ := strings.Cut(repository, "/")
		return strings.HasSuffix(host, "."+wild)
	}
	return repository == r.Prefix || strings.HasPrefix(repository, r.Prefix+"/")
}

// Remote is a repository of a registry, and how it is asked.
type Remote struct {
	name.Repository
	Insecure  bool // over plain http, or without verifying the certificate
	Transport http.RoundTripper
}

// Repository parses HOST[:PORT]/PATH. The registry is asked as the configuration says, at
// the very place: mirrors are not used.
func (c Config) Repository(text string) (Remote, error) {
	repo, err := name.NewRepository(text)
	if err != nil {
		return Remote{}, err
	}
	insecure := c.isInsecure(repo.RegistryStr()) || slices.ContainsFunc(c.registries, func(r registryConfig) bool {
		return r.Insecure && r.covers(repo.Name())
	})
	return c.reach(text, insecure)
}

func (c Config) reach(text string, insecure bool) (Remote, error) {
	var opts []name.Option
	if insecure {
		opts = append(opts, name.Insecure)
	}
	repo, err := name.NewRepository(text, opts...)
	if err != nil {
		return Remote{}, err
	}
	return Remote{repo, insecure, requests.Registry(repo.RegistryStr(), insecure, c.isInsecure)}, nil
}

// isInsecure reports whether plain http may be used with a host: it is the
// machine itself, or an insecure registry of daemon.json.
func (c Config) isInsecure(host string) bool {
	if requests.Loopback(host) {
		return true
	}
	bare := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		bare = h
	}
	ip := net.ParseIP(strings.Trim(bare, "[]"))
	for _, entry := range c.insecure {
		if entry == host {
			return true
		}
		if _, block, err := net.ParseCIDR(entry); err == nil && ip != nil && block.Contains(ip) {
			return true
		}
	}
	return false
}
