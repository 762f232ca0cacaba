package bed

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/network"

	"github.com/mender-app/mender-app/submodules/imagestore"
)

// LeftBehind lists what the engine still has of applications that are not installed:
// references to images, containers and, if none is installed, networks. Volumes may be
// there, because a purge keeps data.
func (d *Device) LeftBehind() (left []string, err error) {
	if !d.HasEngine() {
		return nil, nil
	}
	engine, err := d.Docker()
	if err != nil {
		return nil, err
	}
	defer engine.Close()
	ctx := context.Background()
	if _, err := engine.Ping(ctx); err != nil {
		return nil, nil // the test stopped it
	}
	store := d.Path("/data/mender-app")
	// What is loaded of a staged artifact waits for its installation.
	if loaded, err := filepath.Glob(filepath.Join(store, ".mender-app/staged/*.loaded")); err != nil || len(loaded) > 0 {
		return nil, err
	}
	states, err := filepath.Glob(filepath.Join(store, "*", "app.json*")) // those that are corrupt too
	if err != nil {
		return nil, err
	}
	installed := map[string]bool{}
	for _, s := range states {
		installed[filepath.Base(filepath.Dir(s))] = true
	}
	images, err := engine.ImageList(ctx, image.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, i := range images {
		for _, tag := range i.RepoTags {
			if !imagestore.IsOwnRef(tag) {
				continue
			}
			ours := false
			for app := range installed {
				ours = ours || strings.HasPrefix(tag, imagestore.OwnRepository(app)+":")
			}
			if !ours {
				left = append(left, "the reference "+tag)
			}
		}
	}
	list, err := engine.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", "com.docker.compose.project"))})
	if err != nil {
		return nil, err
	}
	for _, c := range list {
		app := c.Labels["mender-app.application"]
		if dir := c.Labels["com.docker.compose.project.working_dir"]; strings.HasPrefix(dir, "/data/mender-app/") && app == "" {
			app = filepath.Base(filepath.Dir(dir))
		}
		if _, err := os.Stat(filepath.Join(store, app, "manifests")); app != "" && !installed[app] && err != nil {
			left = append(left, fmt.Sprintf("the container %s", strings.Join(c.Names, " ")))
		}
	}
	if len(installed) > 0 {
		return left, nil
	}
	networks, err := engine.NetworkList(ctx, network.ListOptions{Filters: filters.NewArgs(filters.Arg("label", "mender-app.content"))})
	if err != nil {
		return nil, err
	}
	for _, n := range networks {
		left = append(left, "the network "+n.Name)
	}
	return left, nil
}
