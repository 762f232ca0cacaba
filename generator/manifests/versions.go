package manifests

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"gopkg.in/yaml.v3"
)

// This file knows what older versions of Docker Compose do not read. compose-go, which
// app-gen reads the files with, is as new as the newest Compose.

// firstIn says in which version of Docker Compose a key of Compose files was first read:
// * is any name or entry, and KEY=VALUE a value. What is below such a key is as new.
//
// Source: schema/compose-spec.json of the compose-go that the go.mod of each tag of
// github.com/docker/compose names, from v2.0.0 to v5.5.0. Debian builds its Compose with a
// newer compose-go than upstream did: its 2.26.1 reads the keys up to 2.33 and does nothing
// with some of them.
var firstIn = map[string][]string{
	"2.0.1":  {"services.*.storage_opt"},
	"2.3.0":  {"name", "services.*.deploy.resources.limits.pids", "services.*.volumes.*.bind.selinux"},
	"2.4.0":  {"services.*.build.cache_to", "services.*.build.no_cache", "services.*.build.pull", "services.*.build.ssh"},
	"2.5.0":  {"services.*.build.secrets"},
	"2.5.1":  {"services.*.build.tags"},
	"2.6.0":  {"secrets.*.environment"},
	"2.10.0": {"services.*.build.platforms"},
	"2.14.0": {"services.*.volumes.*.tmpfs.mode"},
	"2.15.0": {"services.*.build.privileged"},
	"2.15.1": {"services.*.uts"},
	"2.16.0": {"services.*.cgroup"},
	"2.17.0": {"services.*.build.additional_contexts", "services.*.build.dockerfile_inline", "services.*.depends_on.*.restart"},
	"2.18.0": {"services.*.annotations"},
	"2.19.1": {"include"},
	"2.20.0": {"services.*.attach", "services.*.depends_on.*.required"},
	"2.20.2": {"services.*.healthcheck.start_interval"},
	"2.22.0": {"services.*.develop"},
	"2.23.1": {"configs.*.content", "configs.*.environment", "services.*.build.ulimits"},
	"2.23.2": {"services.*.networks.*.mac_address"},
	"2.24.0": {"services.*.env_file.*.path", "services.*.env_file.*.required"},
	"2.25.0": {"services.*.ports.*.app_protocol", "services.*.ports.*.name", "services.*.volumes.*.volume.subpath"},
	"2.27.0": {"services.*.build.entitlements"},
	"2.27.1": {"services.*.networks.*.driver_opts"},
	"2.29.3": {"services.*.devices.*.permissions", "services.*.devices.*.source", "services.*.devices.*.target"},
	"2.30.0": {"services.*.env_file.*.format", "services.*.gpus", "services.*.post_start", "services.*.pre_stop", "services.*.volumes.*.bind.recursive"},
	"2.32.0": {"services.*.develop.watch.*.exec", "services.*.label_file"},
	"2.33.0": {"networks.*.enable_ipv4", "services.*.networks.*.gw_priority"},
	"2.34.0": {"services.*.develop.watch.*.include", "services.*.pull_refresh_after"},
	"2.35.0": {"services.*.provider", "services.*.volumes.*.image", "services.*.volumes.*.type=image", "services.*.volumes.*.volume.labels"},
	"2.36.0": {"services.*.networks.*.interface_name"},
	"2.37.2": {"services.*.use_api_socket"},
	"2.38.0": {"models", "services.*.models"},
	"2.38.1": {"services.*.models.*.model_var"},
	"2.39.0": {"services.*.build.provenance", "services.*.build.sbom"},
	"2.39.4": {"services.*.develop.watch.*.initial_sync"},
	"5.0.0":  {"services.*.build.no_cache_filter"},
	"5.3.0":  {"services.*.pre_start"},
	unread:   {"jobs", "services.*.networks.*.use_service_name_alias", "services.*.umask"},
}

// unread stands for the version of keys that compose-go reads and no Docker Compose yet.
const unread = "none"

// newestRead is the newest Docker Compose that firstIn was made from.
const newestRead = "5.5"

// What no schema says: the tags of values, from their implementation in compose-go, and an
// include beside a definition of the same thing, from its loader/include.go.
const (
	resetSince    = "2.18.0"
	overrideSince = "2.24.4"
	includeSince  = "5.0.0"
)

// oldestTested is the oldest Docker Compose that mender-app is tested with. What is read
// since then needs no word.
const oldestTested = "2.26"

// keyTree is firstIn by the parts of its keys.
type keyTree struct {
	since string
	below map[string]*keyTree
}

var newKeys = sync.OnceValue(func() *keyTree {
	root := &keyTree{below: map[string]*keyTree{}}
	for since, keys := range firstIn {
		for _, key := range keys {
			at := root
			for _, part := range strings.Split(key, ".") {
				next := at.below[part]
				if next == nil {
					next = &keyTree{below: map[string]*keyTree{}}
					at.below[part] = next
				}
				at = next
			}
			at.since = since
		}
	}
	return root
})

// part returns what is known of a part of a key.
func (t *keyTree) part(name string) *keyTree {
	if next := t.below[name]; next != nil {
		return next
	}
	return t.below["*"]
}

// newer is something that only some versions of Docker Compose read.
type newer struct {
	what, since string
	place       Place
}

// newerIn lists what the Compose files have that not every Docker Compose reads.
func (c *composer) newerIn() (list []newer) {
	for _, file := range c.sources {
		b, err := readManifest(c.dir, file)
		if err != nil {
			continue // the loader reports it
		}
		v := &versionWalk{file: file}
		for dec := yaml.NewDecoder(bytes.NewReader(b)); ; {
			var doc yaml.Node
			if dec.Decode(&doc) != nil { // the loader reports what is not YAML
				break
			}
			v.tags(&doc)
			for _, n := range doc.Content {
				v.walk(n, nil, newKeys())
			}
		}
		list = append(list, v.found...)
	}
	return append(list, c.includedTwice()...)
}

// maxWalked bounds the nodes of a file that are looked at: aliases can name each other many
// times over.
const maxWalked = 1 << 20

type versionWalk struct {
	file   string
	found  []newer
	walked int
}

func (v *versionWalk) add(what, since string, line int) {
	v.found = append(v.found, newer{what: what, since: since, place: Place{File: v.file, Line: line}})
}

// walk looks for keys of the tree in a node.
func (v *versionWalk) walk(n *yaml.Node, at []string, tree *keyTree) {
	if v.walked++; v.walked > maxWalked {
		return
	}
	switch n.Kind {
	case yaml.AliasNode:
		v.walk(n.Alias, at, tree)
	case yaml.SequenceNode:
		if next := tree.below["*"]; next != nil {
			for i, item := range n.Content {
				v.walk(item, append(at, strconv.Itoa(i)), next)
			}
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			v.entry(n.Content[i], n.Content[i+1], at, tree)
		}
	}
}

func (v *versionWalk) entry(key, value *yaml.Node, at []string, tree *keyTree) {
	if key.Tag == "!!merge" {
		for value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		merged := []*yaml.Node{value}
		if value.Kind == yaml.SequenceNode {
			merged = value.Content
		}
		for _, m := range merged {
			v.walk(m, at, tree)
		}
		return
	}
	here := append(slices.Clone(at), key.Value)
	if said := tree.below[key.Value+"="+value.Value]; said != nil && value.Kind == yaml.ScalarNode {
		v.add(strings.Join(here, ".")+": "+value.Value, said.since, key.Line)
	}
	next := tree.part(key.Value)
	if next == nil {
		return
	}
	if next.since != "" {
		v.add(strings.Join(here, "."), next.since, key.Line)
	}
	v.walk(value, here, next)
}

// tags looks for the tags of values that later files replace.
func (v *versionWalk) tags(n *yaml.Node) {
	switch n.Tag {
	case "!reset":
		v.add(n.Tag, resetSince, n.Line)
	case "!override":
		v.add(n.Tag, overrideSince, n.Line)
	}
	for _, child := range n.Content {
		v.tags(child)
	}
}

// resources are the kinds of things that a Compose file may define.
var resources = []string{"services", "networks", "volumes", "configs", "secrets"}

// definitions are what a Compose file defines, by kind and name.
type definitions map[string]map[string]any

// includedTwice lists what a file defines although one that it includes does. An older
// Compose refuses that for services, and for others if they are not the same.
func (c *composer) includedTwice() (list []newer) {
	for _, file := range c.sources {
		own := c.defined(file)
		var of []string
		for _, included := range c.includes[file] {
			of = append(of, c.with(included, 0)...)
		}
		for _, other := range of {
			theirs := c.defined(other)
			for _, kind := range resources {
				for _, name := range slices.Sorted(maps.Keys(own[kind])) {
					that, has := theirs[kind][name]
					if !has || kind != "services" && reflect.DeepEqual(own[kind][name], that) {
						continue
					}
					at := newIndex(c.dir, []string{file}).find(kind, name)
					list = append(list, newer{what: fmt.Sprintf("%s.%s, which the included %s defines too,", kind, name, other), since: includeSince, place: at})
				}
			}
		}
	}
	return list
}

// with is an included file with those that it includes.
func (c *composer) with(file string, depth int) []string {
	list := []string{file}
	if depth > maxLinks {
		return list
	}
	for _, included := range c.includes[file] {
		list = append(list, c.with(included, depth+1)...)
	}
	return list
}

func (c *composer) defined(file string) definitions {
	b, err := readManifest(c.dir, file)
	if err != nil {
		return nil
	}
	var doc map[string]any
	_ = yaml.Unmarshal(b, &doc) // the loader reports what is not YAML
	out := definitions{}
	for _, kind := range resources {
		out[kind], _ = doc[kind].(map[string]any)
	}
	return out
}

// checkVersions refuses what the Compose of the devices does not read. Where that is not
// said, it notes the newest version that is needed.
func (c *composer) checkVersions() error {
	has, err := composeVersion(c.opts.Version)
	if err != nil {
		return err
	}
	said := c.opts.Version != ""
	if !said {
		has, _ = composeVersion(oldestTested)
	}
	var wrong []*Error
	var newest newer
	for _, n := range c.newerIn() {
		if n.since == unread {
			wrong = append(wrong, &Error{Place: n.place, Text: fmt.Sprintf("no Docker Compose up to %s reads %s", newestRead, n.what), Hint: "leave it out"})
			continue
		}
		since, err := composeVersion(n.since)
		if err != nil {
			return err
		}
		if slices.Compare(since, has) <= 0 {
			continue
		}
		if said {
			wrong = append(wrong, &Error{Place: n.place, Text: fmt.Sprintf("%s needs Docker Compose %s, and the devices have %s", n.what, n.since, c.opts.Version), Hint: "leave it out, or update Docker Compose on the devices"})
		}
		if before, _ := composeVersion(newest.since); newest.since == "" || slices.Compare(since, before) > 0 {
			newest = n
		}
	}
	if newest.since != "" && !said {
		c.note(newest.place, "%s needs Docker Compose %s on the devices; --compose-version says which they have", newest.what, newest.since)
	}
	if len(wrong) > 0 {
		return together(wrong)
	}
	return nil
}

// composeVersion reads a version of Docker Compose, such as 2.26, v2.40.3 or 2.26.1-4: its
// three numbers. What is not said is 0.
func composeVersion(text string) ([]int, error) {
	numbers := []int{0, 0, 0}
	if text == "" {
		return numbers, nil
	}
	plain, _, _ := strings.Cut(strings.TrimPrefix(text, "v"), "-")
	plain, _, _ = strings.Cut(plain, "+")
	parts := strings.Split(plain, ".")
	for i, part := range parts {
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 || i >= len(numbers) {
			return nil, &VersionError{Version: text}
		}
		numbers[i] = n
	}
	if numbers[0] < 2 {
		return nil, &VersionError{Version: text}
	}
	return numbers, nil
}

// VersionError reports that a text is not a version of Docker Compose that a device may have.
type VersionError struct{ Version string }

func (e *VersionError) Error() string {
	return fmt.Sprintf("%q is no version of Docker Compose from 2 on", e.Version)
}
