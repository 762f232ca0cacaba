package device

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/mender-app/mender-app/artifact/input"
	"github.com/mender-app/mender-app/modules/client"
	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/store"
)

// MenderClients are the programs of the Mender client.
var MenderClients = []string{"mender-update", "mender"}

// MenderClient finds the Mender client that manages this device; name is "" if none does.
func MenderClient() (name, path string) {
	for _, name := range MenderClients {
		if path, err := exec.LookPath(name); err == nil {
			return name, path
		}
	}
	return "", ""
}

// Bounds on reading about the operating system.
const (
	maxSystemFile = 64 << 10 // bytes of a file, and of what the client prints
	providesLimit = 30 * time.Second
)

// system describes the operating system for policies. Its version is the first
// that exists of: rootfs-image.version in Mender's provides, artifact_name in the
// system image's artifact_info, and VERSION_ID in os-release. The artifact name
// that Mender shows is not used: after the first update it is the application's.
func (c *Config) system(ctx context.Context, files []string) (policy.Platform, error) {
	p := policy.Platform{Files: map[string]bool{}}
	var err error
	if p.Provides, err = c.provides(ctx); err != nil {
		return p, err
	}
	for _, file := range files {
		_, err := os.Stat(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return p, err
		}
		p.Files[file] = err == nil
	}
	if p.Version = p.Provides["rootfs-image.version"]; p.Version != "" {
		return p, nil
	}
	for _, from := range []struct{ file, key string }{
		{c.ArtifactInfo, "artifact_name"}, {c.OSRelease, "VERSION_ID"},
	} {
		values, err := readAssignments(from.file)
		if err != nil {
			return p, err
		}
		if p.Version = values[from.key]; p.Version != "" {
			return p, nil
		}
	}
	return p, nil
}

// OSVersion returns the version of the operating system; "" if unknown.
func (c *Config) OSVersion(ctx context.Context) string {
	p, err := c.system(ctx, nil)
	if err != nil {
		return ""
	}
	return p.Version
}

// provides returns the device's provides: from the Mender client, or from
// mender-app's record if there is no client.
func (c *Config) provides(ctx context.Context) (map[string]string, error) {
	if managed, provides, err := menderProvides(ctx); managed {
		return provides, err
	}
	installed, err := c.Recorded()
	return installed.Provides, err
}

// MenderInstalled is what the Mender client has recorded as installed; managed is false
// if there is no client.
func MenderInstalled(ctx context.Context) (managed bool, installed client.Installed, err error) {
	managed, provides, err := menderProvides(ctx)
	return managed, client.Installed{ArtifactName: provides["artifact_name"], Provides: provides}, err
}

func menderProvides(ctx context.Context) (managed bool, provides map[string]string, err error) {
	name, path := MenderClient()
	if name == "" {
		return false, nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, providesLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "show-provides")
	cmd.WaitDelay = time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return true, nil, err
	}
	if err := cmd.Start(); err != nil {
		return true, nil, fmt.Errorf("what this device provides: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(out, maxSystemFile+1))
	if len(data) > maxSystemFile {
		cancel() // the rest is not read
		err = fmt.Errorf("more than %d bytes", maxSystemFile)
	}
	if werr := cmd.Wait(); err == nil {
		err = werr
	}
	if err != nil {
		return true, nil, fmt.Errorf("what this device provides: %s show-provides: %w", path, err)
	}
	return true, assignments(data), nil
}

// Recorded is what mender-app has recorded as installed, as the store says that it is now.
func (c *Config) Recorded() (client.Installed, error) {
	s := c.OpenStore()
	r, err := (&client.Client{Dir: s.Meta("client")}).Read()
	if err != nil {
		return client.Installed{}, err
	}
	if r.Open != nil {
		return r.Installed, nil
	}
	running, err := Running(s)
	return r.Installed.Of(running), err
}

// Running reads what the current release of each application provides. One that cannot be
// read has unknown provides.
func Running(s *store.Store) (map[string]client.Running, error) {
	names, err := s.Apps()
	if err != nil {
		return nil, err
	}
	running := map[string]client.Running{}
	for _, name := range names {
		a, err := s.App(name)
		if err == nil && a.Current == "" {
			continue // its first installation is open
		}
		running[name] = client.Running{}
		if err != nil {
			continue
		}
		if r, err := a.Release(a.Current); err == nil {
			running[name] = client.Running{ArtifactName: r.ArtifactName, Provides: r.Provides}
		}
	}
	return running, nil
}

// readAssignments reads a file of KEY=VALUE lines; a missing one has none.
func readAssignments(file string) (map[string]string, error) {
	data, err := input.Read(file, maxSystemFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return assignments(data), nil
}

// assignments reads KEY=VALUE lines; values may be quoted, as in os-release(5).
func assignments(data []byte) map[string]string {
	values := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, maxSystemFile+1)
	for lines.Scan() {
		key, value, ok := strings.Cut(strings.TrimSpace(lines.Text()), "=")
		if !ok || strings.HasPrefix(key, "#") {
			continue
		}
		if n := len(value); n >= 2 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
			value = value[1 : n-1]
		}
		values[key] = value
	}
	return values
}
