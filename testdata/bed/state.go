package bed

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"
)

// State is what a device holds, to compare the state before with the state after.
// Two states are the same if their maps are equal.
type State struct {
	Containers map[string]Container // by name
	Health     map[string]string    // of containers with a check, by name: healthy, unhealthy or starting
	Images     map[string]string    // by ID: the tags, in order
	Volumes    map[string]string    // by name: digest of the content
	Networks   map[string]string    // by name: ID
	Files      map[string]string    // under /data, /etc/mender and /usr/share/mender: digest of each
	Provides   map[string]string    // what the Mender client believes
}

// Container is what matters about a container: a different ID or start means that it
// was recreated or restarted.
type Container struct {
	ID      string
	Image   string // image ID
	Ref     string // the reference it was made with
	Status  string // running, exited, …
	Started string
	Service string // compose's service
	Project string // compose's project
}

// Docker is a client of the device's engine; the caller closes it.
func (d *Device) Docker() (*client.Client, error) {
	return client.NewClientWithOpts(client.WithHost("unix://"+d.Path("/run/docker.sock")), client.WithAPIVersionNegotiation())
}

// State reads the state of the device. Files that name one of the substrings
// in except are left out.
func (d *Device) State(except ...string) (State, error) {
	s := State{Files: map[string]string{}, Health: map[string]string{}}
	ctx := context.Background()
	engine, err := d.Docker()
	if err != nil {
		return s, err
	}
	defer engine.Close()
	if s.Containers, err = containers(ctx, engine, s.Health); err != nil {
		return s, err
	}
	if s.Images, err = images(ctx, engine); err != nil {
		return s, err
	}
	if s.Networks, err = networks(ctx, engine); err != nil {
		return s, err
	}
	if s.Volumes, err = d.volumes(ctx, engine); err != nil {
		return s, err
	}
	for _, tree := range []string{"/data", "/etc/mender", "/usr/share/mender"} {
		if err := digestTree(d.Path(tree), tree, except, s.Files); err != nil {
			return s, err
		}
	}
	s.Provides, err = d.Provides()
	return s, err
}

// MustState is State in a test. It leaves out the Mender client's own files:
// Provides says what the client believes.
func (d *Device) MustState(t testing.TB, except ...string) State {
	t.Helper()
	s, err := d.State(append(except, "/data/mender/")...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Service finds the container of a compose service, or nil.
func (s State) Service(project, service string) *Container {
	for _, c := range s.Containers {
		if c.Project == project && c.Service == service {
			return &c
		}
	}
	return nil
}

func containers(ctx context.Context, engine *client.Client, health map[string]string) (map[string]Container, error) {
	list, err := engine.ContainerList(ctx, container.ListOptions{All: true})
	if err != nil {
		return nil, err
	}
	found := map[string]Container{}
	for _, c := range list {
		full, err := engine.ContainerInspect(ctx, c.ID)
		if err != nil {
			return nil, err
		}
		one := Container{
			ID: c.ID, Image: full.Image, Ref: full.Config.Image,
			Status: full.State.Status, Started: full.State.StartedAt,
			Service: c.Labels["com.docker.compose.service"], Project: c.Labels["com.docker.compose.project"],
		}
		name := strings.TrimPrefix(full.Name, "/")
		if full.State.Health != nil {
			health[name] = full.State.Health.Status
		}
		found[name] = one
	}
	return found, nil
}

func images(ctx context.Context, engine *client.Client) (map[string]string, error) {
	list, err := engine.ImageList(ctx, image.ListOptions{All: true})
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, i := range list {
		slices.Sort(i.RepoTags)
		found[i.ID] = strings.Join(i.RepoTags, " ")
	}
	return found, nil
}

func networks(ctx context.Context, engine *client.Client) (map[string]string, error) {
	list, err := engine.NetworkList(ctx, network.ListOptions{})
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, n := range list {
		found[n.Name] = n.ID
	}
	return found, nil
}

func (d *Device) volumes(ctx context.Context, engine *client.Client) (map[string]string, error) {
	list, err := engine.VolumeList(ctx, volume.ListOptions{})
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, v := range list.Volumes {
		files := map[string]string{}
		if err := digestTree(d.Path(v.Mountpoint), "", nil, files); err != nil {
			return nil, err
		}
		found[v.Name] = fmt.Sprint(files) // fmt sorts maps
	}
	return found, nil
}

// digestTree records the mode and the content of everything under root. shown is its
// path in the device.
func digestTree(root, shown string, except []string, into map[string]string) error {
	return filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) (done error) {
		// A program that runs may remove a file at any time.
		defer func() {
			if errors.Is(done, fs.ErrNotExist) && path != root {
				done = nil
			}
		}()
		if err != nil {
			return err
		}
		name := shown + strings.TrimPrefix(path, root)
		for _, x := range except {
			if strings.Contains(name, x) {
				return nil
			}
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		text := info.Mode().String()
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			text += " " + to
		case info.Mode().IsRegular():
			sum, err := digestFile(path)
			if err != nil {
				return err
			}
			text += " " + sum
		}
		into[name] = text
		return nil
	})
}

func digestFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8]), nil
}
