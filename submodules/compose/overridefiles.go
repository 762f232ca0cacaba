package compose

import (
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/mender-app/mender-app/artifact/clip"
	"github.com/mender-app/mender-app/submodules"
)

// layerKeys are what an override may have at its top level. A name or an include would
// make another project of it.
var layerKeys = []string{"services", "networks", "volumes", "configs", "secrets"}

// imageKeys are what an override may not have in a service: the images of a release are
// those that its artifact brings.
var imageKeys = []string{"image", "build", "extends", "pull_policy"}

// writeLayers writes overrides into files for Compose, and refuses those that do more
// than change what the manifests have.
func writeLayers(layers []submodules.Override, tempDir string) (files []string, err error) {
	if len(layers) == 0 {
		return nil, nil
	}
	dir := filepath.Join(tempDir, "layers")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	for _, o := range layers {
		if err := checkLayer(o); err != nil {
			return nil, err
		}
		name := filepath.Join(dir, filepath.Base(o.Name))
		if err := os.WriteFile(name, []byte(o.Text), 0o600); err != nil {
			return nil, err
		}
		files = append(files, name)
	}
	return files, nil
}

// checkLayer refuses an override that does more than change what the manifests have.
// What it changes is checked with the manifests (checkFiles, checkModel).
func checkLayer(o submodules.Override) error {
	for dec, some := yaml.NewDecoder(strings.NewReader(o.Text)), false; ; some = true {
		var doc map[string]any
		if err := dec.Decode(&doc); errors.Is(err, io.EOF) && some {
			return nil
		} else if errors.Is(err, io.EOF) {
			return invalid("override %s is empty", o.Name)
		} else if err != nil {
			return invalid("override %s: %s", o.Name, clip.YAML(err))
		}
		for _, key := range slices.Sorted(maps.Keys(doc)) {
			if !slices.Contains(layerKeys, key) && !strings.HasPrefix(key, "x-") {
				return invalid("override %s has %s: it may have %s", o.Name, key, strings.Join(layerKeys, ", "))
			}
		}
		services, ok := doc["services"].(map[string]any)
		if !ok && doc["services"] != nil {
			return invalid("override %s: services is no mapping", o.Name)
		}
		for _, name := range slices.Sorted(maps.Keys(services)) {
			svc, _ := services[name].(map[string]any)
			for _, key := range imageKeys {
				if _, has := svc[key]; has {
					return invalid("override %s: service %s has %s, but the images of a release must come from its artifact", o.Name, name, key)
				}
			}
		}
	}
}
