// Package docker is the image store of a Docker engine, from 20.10 on: the
// classic overlay2 store and the containerd image store.
//
// It speaks the engine's API, and reads the engine's data root and the files of
// its containerd in place where they are on this machine. It must not know what
// an application is beyond the references imagestore gives its images, nor
// anything of Compose.
package docker

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/client"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules"
)

// Engine is a Docker engine.
type Engine struct {
	cli  *client.Client
	host string
	log  func(string)

	once sync.Once
	info system.Info
	err  error

	mu       sync.Mutex
	contents contentDirs             // once they are found
	configs  map[string]image.Digest // by the engine's ID, where docker save told them
}

// Open connects to the engine at host (a Docker host such as unix:///run/docker.sock;
// see Host), checks that it answers, and negotiates the API version. The error is a
// missing requirement. log gets messages for the operator; it may be nil.
func Open(ctx context.Context, host string, log func(string)) (*Engine, error) {
	if log == nil {
		log = func(string) {}
	}
	need := func(err error) error { return submodules.Mark(err, submodules.ErrRequirement) }
	opts := []client.Opt{client.WithTLSClientConfigFromEnv(), client.WithHost(host), client.WithVersionFromEnv(), client.WithAPIVersionNegotiation()}
	u, err := url.Parse(host)
	if err != nil {
		return nil, need(fmt.Errorf("docker host %q: %w", host, err))
	}
	switch u.Scheme {
	case "unix", "tcp", "http", "https":
	default:
		return nil, need(fmt.Errorf("docker host %q: %s is not supported; use unix:// or tcp://", host, u.Scheme))
	}
	cli, err := client.NewClientWithOpts(opts...)
	if err != nil {
		return nil, need(fmt.Errorf("docker host %q: %w", host, err))
	}
	e := &Engine{cli: cli, host: host, log: log}
	if _, err := cli.Ping(ctx); err != nil {
		cli.Close()
		if u.Scheme == "unix" {
			if _, serr := os.Stat(u.Path); errors.Is(serr, os.ErrNotExist) {
				return nil, need(fmt.Errorf("no docker engine: there is no socket %s; install and start Docker, or set DOCKER_HOST", u.Path))
			}
		}
		return nil, need(fmt.Errorf("no docker engine answers at %s: %w", host, err))
	}
	return e, nil
}

// Close ends the connection.
func (e *Engine) Close() error { return e.cli.Close() }

// Client is the API client, for calls that do not concern images.
func (e *Engine) Client() *client.Client { return e.cli }

// Host is the address of the engine.
func (e *Engine) Host() string { return e.host }

// system returns the engine's information about itself. It asks once.
func (e *Engine) system(ctx context.Context) (system.Info, error) {
	e.once.Do(func() {
		e.info, e.err = e.cli.Info(ctx)
	})
	if e.err != nil {
		return e.info, fmt.Errorf("docker info: %w", e.err)
	}
	return e.info, nil
}

// Remapped reports whether the engine or the root of its containers is not the root of
// the machine. Then directories that only root can enter cannot be mounted.
func (e *Engine) Remapped(ctx context.Context) (bool, error) {
	info, err := e.system(ctx)
	return slices.ContainsFunc(info.SecurityOptions, func(o string) bool {
		return strings.HasPrefix(o, "name=rootless") || strings.HasPrefix(o, "name=userns")
	}), err
}

// ContainerRoot returns the user of this machine that the root of containers is: that of
// a rootless engine, or the one that userns-remap names.
func (e *Engine) ContainerRoot(ctx context.Context) (int, error) {
	info, err := e.system(ctx)
	if err != nil {
		return 0, err
	}
	// With userns-remap the engine keeps everything in a directory UID.GID.
	if uid, _, ok := strings.Cut(filepath.Base(info.DockerRootDir), "."); ok {
		if n, err := strconv.Atoi(uid); err == nil && n > 0 {
			return n, nil
		}
	}
	socket, ok := strings.CutPrefix(e.host, "unix://")
	fi, err := os.Stat(socket)
	if !ok || err != nil {
		return 0, nil // on another machine
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid), nil
	}
	return 0, nil
}

// containerd reports whether the engine keeps its images in containerd.
func (e *Engine) containerd(ctx context.Context) (bool, error) {
	info, err := e.system(ctx)
	if err != nil {
		return false, err
	}
	for _, kv := range info.DriverStatus {
		if kv[0] == "driver-type" && strings.HasPrefix(kv[1], "io.containerd.snapshotter") {
			return true, nil
		}
	}
	return false, nil
}

// Podman reports whether the engine is Podman, which speaks Docker's API. An engine
// that does not tell its name counts as Docker.
func (e *Engine) Podman(ctx context.Context) bool {
	v, err := e.cli.ServerVersion(ctx)
	return err == nil && slices.ContainsFunc(v.Components, isPodman)
}

// Version returns the engine's name, docker or podman, and the version that it
// reports.
func (e *Engine) Version(ctx context.Context) (name, version string, err error) {
	v, err := e.cli.ServerVersion(ctx)
	if err != nil {
		return "", "", fmt.Errorf("docker version: %w", err)
	}
	name = "docker"
	if slices.ContainsFunc(v.Components, isPodman) {
		name = "podman"
	}
	return name, v.Version, nil
}

func isPodman(c types.ComponentVersion) bool { return c.Name == "Podman Engine" }

// root returns the engine's data root, or "" where it is not on this machine
// or cannot be read.
func (e *Engine) root(ctx context.Context) (string, error) {
	info, err := e.system(ctx)
	if err != nil {
		return "", err
	}
	if !strings.HasPrefix(e.host, "unix://") || info.DockerRootDir == "" {
		return "", nil
	}
	// A socket can be forwarded from another machine while the same path exists here
	// by chance. That does no harm: all content that is read there is verified, and
	// syncing it is only unnecessary.
	if _, err := os.ReadDir(info.DockerRootDir); err != nil {
		return "", nil
	}
	return info.DockerRootDir, nil
}

// Storage returns the directories of this machine that images are kept in, the
// largest first; none if they are elsewhere or cannot be reached.
func (e *Engine) Storage(ctx context.Context) ([]string, error) {
	dirs, err := e.dirs(ctx)
	if err != nil || len(dirs) == 0 {
		return nil, err
	}
	return slices.Concat(dirs[1:], dirs[:1]), nil // the data root has what is not containerd's
}

// IsNotFound reports whether an error of the API says that something does not exist.
func IsNotFound(err error) bool { return errdefs.IsNotFound(err) }

// IsConflict reports whether an error of the API says that something is in use,
// or being removed already.
func IsConflict(err error) bool { return errdefs.IsConflict(err) }

// Time reads a time as the engine writes it. What has not happened yet is in the year 1
// there, and zero here.
func Time(text string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || t.Year() < 1970 {
		return time.Time{}
	}
	return t.UTC()
}
