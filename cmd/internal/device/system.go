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

	"github.com/mender-app/mender-app/modules/client"
	"github.com/mender-app/mender-app/modules/policy"
)

// MenderClients are the programs of the Mender client.
var MenderClients = []string{"mender-update", "mender"}

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
	for _, name := range MenderClients {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, providesLimit)
		defer cancel()
		cmd := exec.CommandContext(ctx, path, "show-provides")
		cmd.WaitDelay = time.Second
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		if err := cmd.Start(); err != nil {
			return nil, fmt.Errorf("what this device provides: %w", err)
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
			return nil, fmt.Errorf("what this device provides: %s show-provides: %w", path, err)
		}
		return assignments(data), nil
	}
	recorded, err := (&client.Client{Dir: c.OpenStore().Meta("client")}).Read()
	if err != nil {
		return nil, err
	}
	return recorded.Installed.Provides, nil
}

// readAssignments reads a file of KEY=VALUE lines; a missing one has none.
func readAssignments(file string) (map[string]string, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSystemFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxSystemFile {
		return nil, fmt.Errorf("%s is larger than %d bytes", file, maxSystemFile)
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
