package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/mender-app/mender-app/testdata/bed"
)

// findSets lists the directories that have Kubernetes manifests, or a kustomization. One in
// a directory that is listed is not: app-gen reads what is below a directory, too.
func findSets(dirs []string) (sets []string, err error) {
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != dir:
				return fs.SkipDir
			case !d.IsDir() && isManifest(path) && !slices.Contains(sets, filepath.Dir(path)):
				sets = append(sets, filepath.Dir(path))
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(sets)
	return sets, nil
}

// isManifest reports whether a file has an object of Kubernetes at its beginning.
func isManifest(path string) bool {
	if ext := filepath.Ext(path); ext != ".yaml" && ext != ".yml" {
		return false
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	var o struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string `yaml:"kind"`
	}
	return yaml.NewDecoder(bytes.NewReader(b)).Decode(&o) == nil && o.APIVersion != "" && o.Kind != ""
}

// setRow is what was seen of a set of manifests.
type setRow struct {
	set     string
	plain   string // why the API server does not take it; "" if it does
	refused string // what app-gen says; "" if it accepts it
	warned  bool   // app-gen says what a device has to allow
	checked string // what the device's check says; "" if it would be installed
	failed  string // what the device says; "" if it is deployed
	left    string // what purge leaves
	lost    string // claims that an update, a rollback or a purge without --data takes away
}

func (r setRow) line() string {
	return r.set + ": " + cmp.Or(said([]remark{
		{"Kubernetes does not take it", r.plain}, {"app-gen refuses it", r.refused}, {"check refuses it", r.checked}, {"the device fails", r.failed}, {"left over", r.left}, {"data lost", r.lost},
	}), "deployed")
}

// setTable adds the rows up.
func setTable(rows []setRow) string {
	count := counter(rows)
	runs := func(r setRow) bool { return r.plain == "" }
	accepted := func(r setRow) bool { return runs(r) && r.refused == "" }
	checks := func(r setRow) bool { return accepted(r) && r.checked == "" }
	deployed := func(r setRow) bool { return checks(r) && r.failed == "" }
	return totals("sets", []total{
		{"found", len(rows)},
		{"Kubernetes takes", count(runs)},
		{"of these app-gen accepts", count(accepted)},
		{"of these the device's check accepts", count(checks)},
		{"of these deployed", count(deployed)},
		{"accepted by app-gen without a word, and refused by check", count(func(r setRow) bool { return accepted(r) && !r.warned && r.checked != "" })},
		{"accepted by check, and failed on the device", count(func(r setRow) bool { return checks(r) && r.failed != "" })},
		{"something left after purge", count(func(r setRow) bool { return deployed(r) && r.left != "" })},
		{"data lost", count(func(r setRow) bool { return deployed(r) && r.lost != "" })},
	}) + "\n"
}

// node is a Kubernetes node (testdata/k8snode) and the product beside it.
type node struct {
	k8s      string // its directory
	dir      string // the product's files
	programs string
	standin  []byte
}

// newNode installs the product beside a running node. It allows all that app-gen warns of,
// so that what is refused has another reason.
func newNode(k8s string, standin []byte) (n *node, err error) {
	n = &node{k8s: k8s, standin: standin}
	if n.programs, err = bed.Programs(); err != nil {
		return nil, err
	}
	if n.dir, err = os.MkdirTemp("", "mender-app-public-"); err != nil {
		return nil, err
	}
	settings := []string{
		"K8S_KUBECONFIG=" + k8s + "/admin.kubeconfig", "K8S_CTR_ADDRESS=" + k8s + "/run/containerd.sock",
		"K8S_STABLE_TIME=1", "K8S_HEALTH_TIMEOUT=60", "K8S_ALLOW_CLUSTER_OBJECTS=yes", "K8S_ALLOW_NAMESPACES=*",
	}
	for name, text := range map[string]string{
		"etc/mender-app.conf":     fmt.Sprintf("persistent_store = %q\n", n.dir+"/store"),
		"etc/mender-app-k8s.conf": strings.Join(settings, "\n") + "\n",
		"data/device_type":        "device_type=" + bed.Type + "\n",
	} {
		path := filepath.Join(n.dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			return n, err
		}
	}
	for program, place := range map[string]string{"app": "share/modules/v3", "k8s": "share/app-modules/v1"} {
		if err := os.MkdirAll(filepath.Join(n.dir, place), 0o755); err != nil {
			return n, err
		}
		if out, err := exec.Command("cp", filepath.Join(n.programs, program), filepath.Join(n.dir, place, program)).CombinedOutput(); err != nil {
			return n, fmt.Errorf("%w: %s", err, out)
		}
	}
	return n, nil
}

// said runs a command where the product is installed, and returns what it says if it fails.
func (n *node) said(args ...string) (string, error) {
	// A Mender client of this machine would install instead.
	const script = `for c in mender mender-update; do c=$(command -v "$c") && mount --bind /dev/null "$c"; done; V=$(readlink -m /var/lib/mender) && mkdir -p /usr/share/mender /etc/mender "$V" && mount --bind "$D/share" /usr/share/mender && mount --bind "$D/etc" /etc/mender && mount --bind "$D/data" "$V" && exec "$@"`
	c := exec.Command("unshare", append([]string{"--mount", "--propagation", "private", "sh", "-c", script, "device"}, args...)...)
	c.Env = []string{"D=" + n.dir, "PATH=" + n.programs + ":" + os.Getenv("PATH"), "HOME=" + n.dir}
	return failure(c)
}

// failure runs a command, and returns what it says if it fails.
func failure(c *exec.Cmd) (string, error) {
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return lastLines(string(out)), nil
	}
	return "", err
}

func (n *node) kubectl(args ...string) *exec.Cmd {
	return exec.Command(filepath.Join(n.k8s, "bin/kubectl"), append([]string{"--kubeconfig", n.k8s + "/admin.kubeconfig"}, args...)...)
}

// set takes a set of manifests through its life.
func (n *node) set(app, from string) (r setRow, err error) {
	own := filepath.Join(n.dir, app)
	if err := os.CopyFS(own, os.DirFS(from)); err != nil {
		r.plain = "it cannot be copied: " + err.Error()
		return r, nil
	}
	defer func() {
		_, derr := failure(n.kubectl("delete", "namespace", app, "--ignore-not-found", "--wait=false"))
		err = errors.Join(err, derr, os.RemoveAll(own))
	}()
	if text, err := failure(n.kubectl("create", "namespace", app)); err != nil || text != "" {
		return r, fmt.Errorf("namespace %s: %s: %w", app, text, err)
	}
	what := []string{"--recursive", "-f", own}
	for _, name := range []string{"kustomization.yaml", "kustomization.yml", "Kustomization"} {
		if _, err := os.Stat(filepath.Join(own, name)); err == nil {
			what = []string{"-k", own}
		}
	}
	if r.plain, err = failure(n.kubectl(append([]string{"apply", "--dry-run=server", "-n", app}, what...)...)); err != nil {
		return r, err
	}
	c := n.kubectl(append([]string{"create", "--dry-run=client", "--validate=false", "-n", app, "-o", "json"}, what...)...)
	objects, _ := c.Output() // what plain Kubernetes does not take, it does not print
	m := modelOf(objects)
	one, two := filepath.Join(n.dir, app+"-1.tar"), filepath.Join(n.dir, app+"-2.tar")
	defer os.Remove(one)
	defer os.Remove(two)
	if len(m.images()) > 0 {
		if err := archive(one, n.standin, m, ""); err != nil {
			r.plain = err.Error()
			return r, nil
		}
	}
	said, refused, err := n.generate(app, own, "1", one, m)
	if err != nil {
		return r, err
	}
	defer os.Remove(n.release(app, "1"))
	r.warned = strings.Contains(said, "K8S_ALLOW_")
	if r.refused = refused; refused != "" || r.plain != "" {
		return r, nil
	}
	if r.checked, err = n.said("mender-app", "check", "--unsigned", n.release(app, "1")); err != nil || r.checked != "" {
		return r, err
	}
	if len(m.images()) > 0 {
		if err := archive(two, n.standin, m, m.images()[0]); err != nil {
			return r, err
		}
	}
	err = n.life(&r, app, own, two, m)
	return r, err
}

// life installs, updates, rolls back and purges a set, and notes what it sees.
func (n *node) life(r *setRow, app, own, second string, m model) (err error) {
	if r.failed, err = n.said("mender-app", "install", "--unsigned", "--commit", n.release(app, "1")); err != nil {
		return err
	}
	claims, err := n.claims(app)
	if err != nil {
		return err
	}
	if r.failed == "" && len(m.images()) > 0 {
		if _, r.failed, err = n.generate(app, own, "2", second, m); err != nil {
			return err
		}
		defer os.Remove(n.release(app, "2"))
		if r.failed == "" {
			if r.failed, err = n.said("mender-app", "install", "--unsigned", "--commit", n.release(app, "2")); err != nil {
				return err
			}
		}
		if r.failed == "" {
			if r.failed, err = n.said("mender-app", "rollback", app); err != nil {
				return err
			}
		}
	}
	text, err := n.said("mender-app", "purge", "--force", app)
	if err != nil {
		return err
	}
	if text != "" {
		r.left = "purge: " + text
	}
	kept, err := n.claims(app)
	if err != nil {
		return err
	}
	if r.failed == "" && kept != claims {
		r.lost = fmt.Sprintf("claims %s, and %s are there", claims, kept)
	}
	if claims != "" {
		if text, err := n.said("mender-app", "purge", "--force", "--data", app); err != nil || text != "" {
			r.left += " purge --data: " + text
		}
	}
	for _, what := range []string{"all,configmaps,secrets,ingresses,networkpolicies,persistentvolumeclaims,serviceaccounts,roles,rolebindings", "clusterroles,clusterrolebindings,persistentvolumes,customresourcedefinitions,storageclasses,namespaces"} {
		out, err := n.kubectl("get", what, "--all-namespaces", "-l", "mender-app.io/app="+app, "-o", "name").Output()
		if err != nil {
			return err
		}
		r.left += oneLine(string(out))
	}
	if _, err := os.Stat(filepath.Join(n.dir, "store", app)); err == nil {
		r.left += " its directory in the store"
	}
	return nil
}

// claims are the names of the claims in a namespace.
func (n *node) claims(app string) (string, error) {
	out, err := n.kubectl("get", "persistentvolumeclaims", "-n", app, "-o", "name").Output()
	return oneLine(string(out)), err
}

// generate makes a release. refused is what app-gen says if it refuses.
func (n *node) generate(app, dir, version, images string, m model) (said, refused string, err error) {
	args := []string{"-a", app, "-n", app + "-" + version, "-t", bed.Type, "-p", platform, "--orchestrator", "k8s", "--k8s-namespace", app,
		"-m", dir, "--output-path", n.release(app, version), "--no-cache", "--fast"}
	for _, image := range m.images() {
		args = append(args, "--image", "docker-archive:"+images+":"+image)
	}
	if len(m.images()) == 0 {
		args = append(args, "--skip-images")
	}
	return appGen(filepath.Join(n.programs, "app-gen"), n.dir, args)
}

func (n *node) release(app, version string) string {
	return filepath.Join(n.dir, app+"-"+version+".mender")
}

// modelOf finds the containers in objects that kubectl prints as JSON, one after the other.
func modelOf(objects []byte) model {
	m := model{Services: map[string]service{}}
	for dec := json.NewDecoder(bytes.NewReader(objects)); ; {
		var o any
		if dec.Decode(&o) != nil { // the end
			return m
		}
		m.containers(o)
	}
}

// containers adds the containers in a part of an object.
func (m model) containers(part any) {
	switch p := part.(type) {
	case []any:
		for _, v := range p {
			m.containers(v)
		}
	case map[string]any:
		if image, ok := p["image"].(string); ok && p["name"] != nil {
			s := service{Image: image}
			if command, ok := p["command"].([]any); ok {
				for _, word := range command {
					s.Entrypoint = append(s.Entrypoint, fmt.Sprint(word))
				}
			}
			m.Services[fmt.Sprint(len(m.Services))] = s
			for _, probe := range []string{"livenessProbe", "readinessProbe", "startupProbe"} {
				m.probe(image, p[probe])
			}
		}
		for _, v := range p {
			m.containers(v)
		}
	}
}

// probe adds the program that a probe runs in a container.
func (m model) probe(image string, part any) {
	p, _ := part.(map[string]any)
	exec, _ := p["exec"].(map[string]any)
	command, _ := exec["command"].([]any)
	if len(command) > 0 {
		m.Services[fmt.Sprint(len(m.Services))] = service{Image: image, Entrypoint: []string{fmt.Sprint(command[0])}}
	}
}
