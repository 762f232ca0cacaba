package compose

import (
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/mender-app/mender-app/artifact/clip"
	"github.com/mender-app/mender-app/submodules"
)

// Docker 20.10 and 26.1 write down that they have published a port before they write
// down for which container. If the power fails in between, the restarted engine takes
// the port and then drops the container's record: it holds the port for nobody. Each
// container that publishes the port fails to start with "port is already allocated", and
// what arrives at the port may reach another service. `docker network inspect` does not
// show it. Removing the network and making the containers anew does not give the port
// back; a restart of the engine does.
//
// docs/DOCKER-COMPOSE.md has how often that was seen.

var heldPort = regexp.MustCompile(`Bind for \S*:(\d+) failed: port is already allocated`)

// stalePort returns the port of which Compose said that it is allocated, if no
// container publishes it.
func (s *session) stalePort(ctx context.Context, said string) (port uint16, stale bool) {
	m := heldPort.FindStringSubmatch(said)
	if m == nil {
		return 0, false
	}
	n, err := strconv.ParseUint(m[1], 10, 16)
	if err != nil {
		return 0, false
	}
	port = uint16(n)
	running, err := s.engine.Client().ContainerList(ctx, container.ListOptions{})
	if err != nil {
		return 0, false
	}
	return port, !slices.ContainsFunc(running, func(c container.Summary) bool {
		return slices.ContainsFunc(c.Ports, func(p container.Port) bool { return p.PublicPort == port })
	})
}

// What the engine says when the machine has lost what it made once, when it started.
var lostByMachine = []struct{ said, what string }{
	{"No chain/target/match by that name", "the engine's rules of the firewall are gone"},
	{"could not find bridge docker0", "the engine's bridge docker0 is gone"},
}

// brokenEngine says why Compose failed, if a restart of the engine helps; "" if not.
func (s *session) brokenEngine(ctx context.Context, said string) string {
	if port, stale := s.stalePort(ctx, said); stale {
		return fmt.Sprintf("the engine holds port %d for a container that is gone", port)
	}
	for _, l := range lostByMachine {
		if strings.Contains(said, l.said) {
			return l.what
		}
	}
	return ""
}

// isAlone reports whether the engine runs nothing but what this call has started: a
// restart of the engine stops nobody else's containers then.
func (s *session) isAlone(ctx context.Context, pl *plan) bool {
	running, err := s.engine.Client().ContainerList(ctx, container.ListOptions{})
	return err == nil && len(pl.existing) == 0 && !slices.ContainsFunc(running, func(c container.Summary) bool {
		return c.Labels[labelProject] != pl.name
	})
}

// noRestart as ENGINE_RESTART_COMMAND means that the operator restarts the engine.
const noRestart = "none"

// The files by which a machine shows how its services are restarted.
const (
	systemdRuns = "/run/systemd/system"
	initScript  = "/etc/init.d/docker"
)

// restartCommand is the command that restarts the engine at a host; nil if there is
// none. set is what ENGINE_RESTART_COMMAND says, and exists reports whether a file is
// there.
func restartCommand(set []string, host string, exists func(string) bool) []string {
	switch {
	case slices.Equal(set, []string{noRestart}):
		return nil
	case len(set) > 0:
		return set
	case host != "unix:///var/run/docker.sock" && host != "unix:///run/docker.sock":
		return nil // remote, or a user's
	case exists(systemdRuns):
		return []string{"systemctl", "restart", "docker"}
	case exists(initScript):
		return []string{initScript, "restart"}
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// engineStart is how long the engine may take until it answers again.
const engineStart = 2 * time.Minute

// restartEngine restarts the engine and waits until it answers.
func (s *session) restartEngine(ctx context.Context, words []string) error {
	ctx, cancel := context.WithTimeout(ctx, engineStart)
	defer cancel()
	said := submodules.Capped{Max: 4 << 10}
	restart := &command{words: words, env: composeEnv(s.engine.Host())}
	if err := restart.run(ctx, "", io.Discard, &said); err != nil {
		return fmt.Errorf("restart the engine: %s: %w: %s", strings.Join(words, " "), err, clip.Line(string(said.Bytes()), maxSaid))
	}
	for {
		_, err := s.engine.Client().Ping(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the restarted engine does not answer: %w", err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}
