package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/BurntSushi/toml"
	"gopkg.in/yaml.v3"

	"github.com/mender-app/mender-app/generator/manifests"
)

// composeFile is the Compose file of a project that app-gen.toml names, or that docker compose
// finds.
func composeFile(dir string) (string, error) {
	if files := configured("compose-file"); len(files) > 0 {
		return files[0], nil
	}
	file, _, err := manifests.ComposeProject(dir)
	if err == nil && file == "" {
		err = errors.New("the release has no Compose file")
	}
	return file, err
}

// policyOption names the policy of the project, which app-gen would look for beside other
// manifests; nothing if app-gen.toml does, or if there is none.
func policyOption() []string {
	dir := "."
	if dirs := configured("manifests-dir"); len(dirs) > 0 {
		dir = dirs[0]
	}
	file := filepath.Join(dir, "app.toml")
	if _, err := os.Stat(file); err != nil || len(configured("policy")) > 0 {
		return nil
	}
	return []string{"--policy", file}
}

// configured are the values of an option in app-gen.toml.
func configured(option string) []string {
	var options map[string]any
	if _, err := toml.DecodeFile(configFile, &options); err != nil {
		return nil // making the first release has said so
	}
	switch v := options[option].(type) {
	case string:
		return []string{v}
	case []any:
		var list []string
		for _, x := range v {
			list = append(list, fmt.Sprint(x))
		}
		return list
	}
	return nil
}

// labelled gives the first service of a Compose file a label more.
func labelled(compose []byte) ([]byte, error) {
	return changed(compose, func(service *yaml.Node) {
		labels := value(service, "labels")
		if labels != nil && labels.Kind == yaml.SequenceNode {
			labels.Content = append(labels.Content, text("mender-app.try=2"))
			return
		}
		if labels == nil || labels.Kind != yaml.MappingNode {
			labels = &yaml.Node{Kind: yaml.MappingNode}
			set(service, "labels", labels)
		}
		set(labels, "mender-app.try", text("2"))
	})
}

// broken makes the first service of a Compose file run a program that its image does not have.
func broken(compose []byte) ([]byte, error) {
	return changed(compose, func(service *yaml.Node) {
		set(service, "entrypoint", &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{text("/broken-on-purpose")}})
		set(service, "command", &yaml.Node{Kind: yaml.SequenceNode})
	})
}

// changed changes the first service of a Compose file.
func changed(compose []byte, change func(service *yaml.Node)) ([]byte, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(compose, &doc); err != nil {
		return nil, err
	}
	if len(doc.Content) == 0 {
		return nil, errors.New("it is empty")
	}
	services := value(doc.Content[0], "services")
	if services == nil || len(services.Content) < 2 {
		return nil, errors.New("it has no services of its own to change")
	}
	service := services.Content[1]
	if service.Kind == yaml.AliasNode {
		service = service.Alias
	}
	if service.Kind != yaml.MappingNode {
		return nil, errors.New("its first service is not a mapping")
	}
	change(service)
	return yaml.Marshal(&doc)
}

// value is the value of a key of a mapping; nil if there is none.
func value(mapping *yaml.Node, key string) *yaml.Node {
	if mapping.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return nil
}

// set sets a key of a mapping.
func set(mapping *yaml.Node, key string, to *yaml.Node) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			mapping.Content[i+1] = to
			return
		}
	}
	mapping.Content = append(mapping.Content, text(key), to)
}

func text(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s} }
