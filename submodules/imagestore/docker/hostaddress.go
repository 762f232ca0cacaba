package docker

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/docker/docker/client"
)

// Host returns the address of the engine that the docker command would speak
// to: the options -H and --context in command (the words of DOCKER_COMMAND),
// then DOCKER_HOST, DOCKER_CONTEXT and the current context of the command's
// configuration, then the default socket.
func Host(command []string, getenv func(string) string) (string, error) {
	host, name := commandHost(command)
	if host == "" && name == "" {
		host = getenv("DOCKER_HOST")
	}
	if host != "" {
		return host, nil
	}
	dir := getenv("DOCKER_CONFIG")
	if dir == "" {
		dir = filepath.Join(getenv("HOME"), ".docker")
	}
	if name == "" {
		name = getenv("DOCKER_CONTEXT")
	}
	if name == "" {
		var err error
		if name, err = currentContext(dir); err != nil {
			return "", err
		}
	}
	if name == "" || name == "default" {
		return client.DefaultDockerHost, nil
	}
	return contextHost(dir, name)
}

// commandHost finds -H/--host and -c/--context among the words of a command.
func commandHost(words []string) (host, context string) {
	for i := 1; i < len(words); i++ {
		key, value, has := strings.Cut(words[i], "=")
		if !has && i+1 < len(words) {
			value = words[i+1]
		}
		switch key {
		case "-H", "--host":
			host = value
		case "-c", "--context":
			context = value
		}
	}
	return host, context
}

func currentContext(dir string) (string, error) {
	var conf struct {
		CurrentContext string `json:"currentContext"`
	}
	name := filepath.Join(dir, "config.json")
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err == nil {
		err = json.Unmarshal(b, &conf)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return conf.CurrentContext, nil
}

// contextHost reads a context as the docker command stores it:
// contexts/meta/<sha256 of the name>/meta.json.
func contextHost(dir, name string) (string, error) {
	sum := sha256.Sum256([]byte(name))
	b, err := os.ReadFile(filepath.Join(dir, "contexts", "meta", hex.EncodeToString(sum[:]), "meta.json"))
	if err != nil {
		return "", fmt.Errorf("docker context %q: %w", name, err)
	}
	var meta struct {
		Endpoints map[string]struct{ Host string }
	}
	if err := json.Unmarshal(b, &meta); err != nil {
		return "", fmt.Errorf("docker context %q: %w", name, err)
	}
	host := meta.Endpoints["docker"].Host
	if host == "" {
		return "", fmt.Errorf("docker context %q has no docker endpoint", name)
	}
	return host, nil
}
