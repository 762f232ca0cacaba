package rules

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/submodules/level"
)

// The levels, as package level has them.
const (
	Confined    = level.Confined
	HostNetwork = level.HostNetwork
	Trusted     = level.Trusted
	never       = level.Never
)

// Need says which level something in a project needs, and for what.
type Need struct {
	Kind  string // service, network, volume; "" for the project
	Name  string
	Level level.Level
	What  string // such as "privileged" or "devices: /dev/ttyS0"
}

func (n Need) String() string { return strings.TrimSpace(n.Kind+" "+n.Name) + " has " + n.What }

// Needs lists what in a project needs more than Confined, in a fixed order. text is the
// project as Compose prints it in JSON, and dir has its manifests. A field that the table of
// fields does not have needs a level that no operator can give.
//
// written are directories in the manifests that running containers of the application may
// write.
func Needs(text []byte, dir string, written ...string) ([]Need, error) {
	var project map[string]any
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&project); err != nil {
		return nil, fmt.Errorf("docker compose config: %w", err)
	}
	w := &walker{dir: dir}
	w.object(projectFields, "", project)
	var m Model
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, fmt.Errorf("docker compose config: %w", err)
	}
	w.nested(&m, written)
	return w.needs, nil
}

// CheckLevel refuses a project that needs more than a level.
func CheckLevel(text []byte, dir string, given level.Level, written ...string) error {
	needs, err := Needs(text, dir, written...)
	if err != nil {
		return err
	}
	for _, n := range needs {
		switch {
		case n.Level == never:
			return refused("%s", n)
		case n.Level > given:
			return refused("%s, which needs the level %s, and LEVEL in %s gives this application %s", n, n.Level, ConfName, given)
		}
	}
	return nil
}

// walker goes through a project.
type walker struct {
	dir        string
	kind, name string // where it is
	needs      []Need
}

func (w *walker) need(at level.Level, format string, args ...any) {
	w.needs = append(w.needs, Need{w.kind, w.name, at, fmt.Sprintf(format, args...)})
}

// field is what is decided about a field of the model.
type field struct {
	// of are the fields below: those of the object, of each element of a list or of each
	// value of a map, as each says; nil: whatever there is below is harmless.
	of   fieldsOf
	each bool // of is of the elements or values
	// kind is what the values of a map are called.
	kind string
	// check notes what a value needs, which is not an empty one. nil: nothing.
	check func(w *walker, key string, value any)
}

type fieldsOf map[string]field

// object goes through an object. What begins with x- is an extension, which means nothing.
func (w *walker) object(fields fieldsOf, at string, object map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(object)) {
		value := object[key]
		if empty(value) || strings.HasPrefix(key, "x-") {
			continue
		}
		path := at + key
		f, ok := fields[key]
		if !ok {
			w.need(never, "%s, which this version of mender-app does not know, so nobody has decided what it may do to the device", path)
			continue
		}
		if f.check != nil {
			f.check(w, path, value)
		}
		if f.of != nil {
			w.below(f, path, value)
		}
	}
}

func (w *walker) below(f field, path string, value any) {
	switch value := value.(type) {
	case map[string]any:
		if !f.each {
			w.object(f.of, path+".", value)
			return
		}
		for _, key := range slices.Sorted(maps.Keys(value)) {
			if f.kind != "" {
				w.kind, w.name, path = f.kind, key, ""
			}
			if v, ok := value[key].(map[string]any); ok {
				w.object(f.of, prefix(path), v)
			}
		}
		if f.kind != "" {
			w.kind, w.name = "", ""
		}
	case []any:
		for _, v := range value {
			if v, ok := v.(map[string]any); ok && f.each {
				w.object(f.of, prefix(path), v)
			}
		}
	}
}

func prefix(path string) string {
	if path == "" {
		return ""
	}
	return path + "."
}

// empty reports whether a value is as if it were not there.
func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case bool:
		return !v
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

// texts are the texts of a value: its own, or those of a list.
func texts(v any) (all []string) {
	for _, e := range list(v) {
		if s, ok := e.(string); ok {
			all = append(all, s)
		} else {
			all = append(all, fmt.Sprint(e))
		}
	}
	return all
}

// needs makes a check that a value, whatever it is, needs a level.
func needs(at level.Level) func(*walker, string, any) {
	return func(w *walker, key string, v any) {
		if text, ok := v.(string); ok {
			w.need(at, "%s: %s", key, text)
			return
		}
		w.need(at, "%s", key)
	}
}

// but makes a check that all texts of a value but these need a level. A word that ends in :
// or / is a beginning.
func but(at level.Level, harmless ...string) func(*walker, string, any) {
	return func(w *walker, key string, v any) {
		for _, text := range texts(v) {
			is := func(h string) bool {
				return text == h || strings.HasSuffix(h, ":") && strings.HasPrefix(text, h)
			}
			if text != "" && !slices.ContainsFunc(harmless, is) {
				w.need(at, "%s: %s", key, text)
			}
		}
	}
}

func capabilities(w *walker, key string, v any) {
	for _, text := range texts(v) {
		if at := level.OfCapability(text); at > Confined {
			w.need(at, "%s: %s", key, text)
		}
	}
}

// namespaced are the kernel's parameters that each container has of its own (moby,
// opts/opts.go and runc's validator).
var namespaced = []string{"net.", "fs.mqueue.", "kernel.msgmax", "kernel.msgmnb", "kernel.msgmni", "kernel.sem", "kernel.shmall", "kernel.shmmax", "kernel.shmmni", "kernel.shm_rmid_forced"}

func sysctls(w *walker, key string, v any) {
	values, _ := v.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.ContainsFunc(namespaced, func(n string) bool {
			return name == n || strings.HasSuffix(n, ".") && strings.HasPrefix(name, n)
		}) {
			w.need(Trusted, "%s: %s", key, name)
		}
	}
}

// networkMode: another word is the name of a network.
func networkMode(w *walker, key string, v any) {
	switch mode := fmt.Sprint(v); {
	case mode == "host":
		w.need(HostNetwork, "%s: host", key)
	case strings.HasPrefix(mode, "container:"):
		w.need(Trusted, "%s: %s", key, mode)
	}
}

// ulimits: other processes wait for those that run in real time.
func ulimits(w *walker, key string, v any) {
	if limits, _ := v.(map[string]any); limits["rtprio"] != nil {
		w.need(Trusted, "%s: rtprio", key)
	}
}

func negative(w *walker, key string, v any) {
	if text := fmt.Sprint(v); strings.HasPrefix(text, "-") {
		w.need(Trusted, "%s: %s", key, text)
	}
}

func container(w *walker, key string, v any) {
	for _, text := range texts(v) {
		if strings.HasPrefix(text, "container:") {
			w.need(Trusted, "%s: %s", key, text)
		}
	}
}

// readable are files that containers often mount, and may read.
var readable = []string{"/etc/localtime", "/etc/timezone", "/usr/share/zoneinfo"}

// mounts: what a service mounts of the device lies in the manifests, links included, where
// the data of the application is too.
func mounts(w *walker, key string, v any) {
	for _, e := range list(v) {
		m, _ := e.(map[string]any)
		mount := Mount(m)
		switch source := mount.Text("source"); mount.Text("type") {
		case "volume", "tmpfs", "image":
		case "bind":
			readOnly, _ := m["read_only"].(bool)
			if readOnly && slices.Contains(readable, filepath.Clean(source)) || w.inside(source) {
				continue
			}
			w.need(Trusted, "%s: %s of the device", key, source)
		default:
			w.need(Trusted, "%s: %s of the type %s", key, source, mount.Text("type"))
		}
	}
}

// nested: who may write a directory may put a link into it, in the place of what is mounted
// from there. The engine follows it at each start, also when nobody checks.
func (w *walker) nested(m *Model, written []string) {
	type bind struct{ kind, name, source, real string }
	var all, writable []bind
	mount := func(kind, name, source string) bind {
		real := source
		if !filepath.IsAbs(real) {
			real = filepath.Join(w.dir, real)
		}
		if to, err := filepath.EvalSymlinks(real); err == nil {
			real = to
		}
		return bind{kind, name, source, filepath.Clean(real) + "/"}
	}
	for _, name := range m.names() {
		for _, c := range m.Services[name].Containers() {
			for _, v := range c.Volumes {
				if v.Text("type") != "bind" {
					continue
				}
				all = append(all, mount("service", name, v.Text("source")))
				if readOnly, _ := v["read_only"].(bool); !readOnly {
					writable = append(writable, all[len(all)-1])
				}
			}
		}
	}
	for i, files := range []map[string]File{m.Configs, m.Secrets} {
		kind := []string{"config", "secret"}[i]
		for _, name := range slices.Sorted(maps.Keys(files)) {
			if files[name].File != "" {
				all = append(all, mount(kind, name, files[name].File))
			}
		}
	}
	for _, dir := range written {
		writable = append(writable, mount("a running container", "", dir))
	}
	for _, b := range all {
		i := slices.IndexFunc(writable, func(above bind) bool { return above.real != b.real && strings.HasPrefix(b.real, above.real) })
		if i < 0 {
			continue
		}
		by := writable[i]
		w.kind, w.name = b.kind, b.name
		w.need(Trusted, "volumes: %s of the device, where %s may put a link, because it may write into %s; mount that one read_only, or another directory", b.source, strings.TrimSpace(by.kind+" "+by.name), by.source)
		w.kind, w.name = "", ""
	}
}

// inside reports whether a path leads nowhere but into the manifests.
func (w *walker) inside(path string) bool {
	if !filepath.IsAbs(path) {
		path = filepath.Join(w.dir, path)
	}
	c := fileCheck{dir: w.dir, real: w.dir}
	if real, err := filepath.EvalSymlinks(w.dir); err == nil {
		c.real = real
	}
	return c.inside(Reference{Kind: "mount", Name: path, Base: w.dir}) == nil
}

// network: the drivers of an engine that make a network of its own.
func networkDriver(w *walker, key string, v any) {
	but(HostNetwork, "bridge", "default", "none", "null", "overlay")(w, key, v)
}

func networkName(w *walker, key string, v any) {
	if v == "host" {
		w.need(HostNetwork, "%s: host", key)
	}
}

// private are the addresses that nobody on the Internet has.
var private = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("fc00::/7"),
}

// subnet: the device sends to a network's containers what anybody on it sends to the subnet,
// such as to a server.
func subnet(w *walker, key string, v any) {
	text := fmt.Sprint(v)
	p, err := netip.ParsePrefix(text)
	if err != nil || !slices.ContainsFunc(private, func(own netip.Prefix) bool { return own.Contains(p.Addr()) && p.Bits() >= own.Bits() }) {
		w.need(HostNetwork, "%s: %s", key, text)
	}
}

// networkOptions: an option such as com.docker.network.bridge.name names a bridge of the
// device.
func networkOptions(w *walker, key string, v any) {
	values, _ := v.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch name {
		case "com.docker.network.driver.mtu", "com.docker.network.bridge.enable_icc", "com.docker.network.bridge.enable_ip_masquerade", "com.docker.network.enable_ipv6":
		default:
			w.need(HostNetwork, "%s: %s", key, name)
		}
	}
}

// volumeOptions: with options, a volume of the local driver is a mount of any kind: of a
// directory, of a block device, of a directory through an overlay, or over the network. The
// type says nothing if a flag makes it a bind.
func volumeOptions(w *walker, key string, v any) {
	options, _ := v.(map[string]any)
	if words, ok := options["o"].(string); options["type"] == "tmpfs" && (options["o"] == nil || ok && onlyTmpfs(words)) {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(options)) {
		w.need(Trusted, "%s.%s: %v", key, name, options[name])
	}
}

// tmpfsWords are options of a tmpfs, and flags that make no other mount of it.
var tmpfsWords = []string{"", "defaults", "rw", "ro", "suid", "nosuid", "dev", "nodev", "exec", "noexec", "sync", "async", "atime", "noatime", "diratime", "nodiratime", "relatime", "norelatime", "strictatime", "nostrictatime",
	"size", "mode", "uid", "gid", "nr_blocks", "nr_inodes", "huge", "mpol"}

func onlyTmpfs(options string) bool {
	for o := range strings.SplitSeq(options, ",") {
		if name, _, _ := strings.Cut(o, "="); !slices.Contains(tmpfsWords, name) {
			return false
		}
	}
	return true
}
