package k8s

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/config"
	"github.com/mender-app/mender-app/submodules/imagestore/containerd"
	"github.com/mender-app/mender-app/submodules/level"
	"github.com/mender-app/mender-app/submodules/secrets"
)

// Settings are the operator's settings, and the choices of the artifact's metadata
// within these limits. The zero value is not complete; see ReadSettings.
type Settings struct {
	Kubeconfig string // "" looks in the usual places
	Namespace  string // of objects that name none; "" is default
	// Asked is true if the environment, which an artifact's metadata sets, names
	// another Namespace than the operator's configuration.
	Asked       bool
	Containerd  string // the socket; "" looks in the usual places
	Snapshotter string // "" takes that of the node's containers
	// Registry is where other nodes get the images; with nil the images are only in this
	// node's containerd.
	Registry     *containerd.Registry
	Cluster      string        // cluster-wide objects: "no", "yes", or the kinds allowed
	Levels       level.Setting // what applications may reach on the node
	Others       level.Pairs   // which applications may use what others have
	Xdelta3      string        // the xdelta3 command, for deltas of the shell reference that our decoder cannot read; "" never runs it
	Sandbox      bool          // LOAD gives up the rights it does not need
	Namespaces   string        // beside Namespace that manifests and metadata may name: words, or *
	Pull         string        // images the node may pull: "no", "yes", or registries and repositories
	Secrets      secrets.Settings
	TempDir      string
	Deadline     time.Duration // how long a release may take to become healthy
	Connect      time.Duration // how long to wait for an API server that does not answer
	Stable       time.Duration // how long a container without a readiness probe must have run
	Restarts     int64         // of a container in a new pod before it counts as failed
	TerminateFor time.Duration // how long to wait for objects being deleted
	Unknown      []string      // warnings about unknown settings in the file
}

// ConfigName is the file of the settings, below the configuration directory.
const ConfigName = "mender-app-k8s.conf"

// ReadSettings reads the configuration file and the environment. The environment
// wins.
func ReadSettings(getenv func(string) string) (Settings, error) {
	dir := getenv(submodules.EnvConfigDir)
	if dir == "" {
		dir = submodules.DefaultConfigDir
	}
	path := filepath.Join(dir, ConfigName)
	f, err := config.Read(path, "level", "allow_others")
	if err != nil {
		return Settings{}, err
	}
	// The shell reference's commands are no longer needed.
	f.String("", "KUBECTL_COMMAND")
	f.String("", "CTR_COMMAND")
	str := func(def, key string) string {
		v := f.String(def, key)
		if e := getenv(key); e != "" {
			v = e
		}
		return v
	}
	s := Settings{
		Kubeconfig:  str(getenv("KUBECONFIG"), "K8S_KUBECONFIG"),
		Namespace:   f.String("", "K8S_NAMESPACE"),
		Containerd:  str(getenv("CONTAINERD_ADDRESS"), "K8S_CTR_ADDRESS"),
		Snapshotter: f.String("", "K8S_SNAPSHOTTER"),
		Cluster:     f.String("no", "K8S_ALLOW_CLUSTER_OBJECTS"),
		Namespaces:  f.String("", "K8S_ALLOW_NAMESPACES"),
		Xdelta3:     f.String("", "XDELTA3_COMMAND"),
		Pull:        f.String("no", "K8S_ALLOW_PULL"),
		TempDir:     getenv(submodules.EnvTempDir),
	}
	if ns := getenv("K8S_NAMESPACE"); ns != "" && ns != cmp.Or(s.Namespace, defaultNamespace) {
		s.Namespace, s.Asked = ns, true
	}
	s.Levels = f.Strings("LEVEL", "level")
	if err := s.Levels.Check(); err != nil {
		return s, err
	}
	s.Others = f.Strings("ALLOW_OTHERS", "allow_others")
	if err := s.Others.Check(); err != nil {
		return s, err
	}
	if _, ok := yesNo(s.Pull); !ok {
		for _, from := range words(s.Pull) {
			if !strings.ContainsAny(from, "./:") {
				return s, fmt.Errorf("K8S_ALLOW_PULL: %q is neither yes nor no, nor a registry or repository such as docker.io/library/redis", from)
			}
		}
	}
	ca := f.String("", "K8S_REGISTRY_CA")
	if target := f.String("containerd", "K8S_IMAGE_TARGET"); target != "containerd" {
		if strings.Contains(target, "@") { // it has a password, also if it is not a registry
			if err := config.Protect(path); err != nil {
				return s, err
			}
		}
		if s.Registry, err = containerd.NewRegistry(target, ca); err != nil {
			return s, fmt.Errorf("K8S_IMAGE_TARGET is neither containerd nor a registry: %w", err)
		}
	}
	if s.Sandbox, err = f.Bool(true, "SANDBOX"); err != nil {
		return s, err
	}
	if s.Secrets, err = secrets.ReadSettings(f); err != nil {
		return s, err
	}
	if s.Restarts, err = f.Int(2, "K8S_RESTART_LIMIT"); err != nil {
		return s, err
	}
	for _, d := range []struct {
		to  *time.Duration
		def time.Duration
		key string
	}{
		{&s.Deadline, 10 * time.Minute, "K8S_HEALTH_TIMEOUT"},
		{&s.Connect, 2 * time.Minute, "K8S_CONNECT_TIMEOUT"},
		{&s.Stable, 5 * time.Second, "K8S_STABLE_TIME"},
		{&s.TerminateFor, time.Minute, "K8S_TERMINATE_TIMEOUT"},
	} {
		if *d.to, err = f.Duration(d.def, d.key); err != nil {
			return s, err
		}
	}
	s.Unknown = f.Unknown()
	return s, nil
}

// clusterAllowed reports whether the policy allows cluster-wide objects of a kind.
func (s *Settings) clusterAllowed(kind string) bool {
	if all, ok := yesNo(s.Cluster); ok {
		return all
	}
	return slices.Contains(words(s.Cluster), kind)
}

// pullAllowed reports whether the node may pull an image. annotated says that the
// author asked for it. If the setting lists registries and repositories, both are
// needed.
func (s *Settings) pullAllowed(image string, annotated bool) bool {
	if all, ok := yesNo(s.Pull); ok {
		return all
	}
	name := containerd.Canonical(image)
	return annotated && slices.ContainsFunc(words(s.Pull), func(from string) bool {
		rest, ok := strings.CutPrefix(name, strings.TrimSuffix(from, "/"))
		return ok && rest != "" && strings.ContainsRune("/:@", rune(rest[0]))
	})
}

// yesNo reads a setting that is a boolean or, if ok is false, a list.
func yesNo(value string) (yes, ok bool) {
	switch strings.ToLower(value) {
	case "", "no", "false", "off", "0":
		return false, true
	case "yes", "true", "on", "1":
		return true, true
	}
	return false, false
}

// defaultNamespace is the cluster's own default.
const defaultNamespace = "default"

// namespaceAllowed reports whether manifests may put objects into a namespace other
// than the application's.
func (s *Settings) namespaceAllowed(ns string) bool {
	w := words(s.Namespaces)
	return slices.Contains(w, ns) || slices.Contains(w, "*")
}

func words(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || r == ',' || r == '\t' })
}
