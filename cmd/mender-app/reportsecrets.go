package main

import (
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/mender-app/mender-app/submodules/config"
	"github.com/mender-app/mender-app/submodules/secrets"
)

// This file finds the secrets of a device, so that a report has none of them.

// The settings that a report shows. The values of all others, commands too, are
// removed.
var (
	appSettings = []string{
		"persistent_store", "app_modules_dir", "app_module_dir", "update_module", "keep", "platform", "data_root", "load_timeout",
		"rollout_timeout", "device_type_file", "artifact_verify_key", "artifact_verify_keys", "mender_conf", "allow_unsigned",
		"require_statement", "require_unexpired", "refuse_older", "commit_on_install", "allow_env", "application_cpuset", "allow_hooks", "hooks_dir", "overrides_dir", "values_dir", "allow_app_locks", "app_locks_dir", "windows", "windows_need_clock", "content_mirrors", "content_ca", "content_token_file", "max_rate", "staging_mib", "staging_free_mib", "os_release_file", "artifact_info_file", "log_level", "file", "files", "applications", "threshold",
	}
	moduleSettings = []string{
		"docker_command", "docker_compose_command", "health_deadline", "health_window", "health_restarts", "log_lines", "allow_outside", "allow_others", "level",
		"refuse", "sandbox", "secrets_identity", "secrets_dir", "k8s_kubeconfig", "k8s_ctr_address", "k8s_namespace", "k8s_image_target",
		"k8s_registry_ca", "k8s_snapshotter", "k8s_allow_cluster_objects", "k8s_allow_namespaces", "k8s_allow_pull", "k8s_health_timeout",
		"k8s_stable_time", "k8s_restart_limit", "k8s_connect_timeout", "k8s_terminate_timeout",
	}
	menderSettings = []string{
		"ServerURL", "UpdatePollIntervalSeconds", "InventoryPollIntervalSeconds", "RetryPollIntervalSeconds", "RetryPollCount",
		"ArtifactVerifyKey", "ArtifactVerifyKeys", "RootfsPartA", "RootfsPartB", "DeviceTypeFile", "ModuleTimeoutSeconds",
		"UpdateLogPath", "StateScriptTimeoutSeconds", "StateScriptRetryTimeoutSeconds", "DaemonLogLevel",
	}
)

// proxyFiles may hold the password of a proxy.
var proxyFiles = []string{
	"/etc/environment", "/etc/docker/daemon.json", "/etc/default/docker", "/etc/systemd/system/docker.service.d/*.conf",
	"/etc/systemd/system/mender*.service.d/*.conf", "/etc/apt/apt.conf.d/*",
}

// The bounds of the search in the files of an application.
const (
	maxFiles     = 5000
	maxFileBytes = 64 << 20
)

// addSecrets collects the secrets of the device.
func (r *report) addSecrets(apps []string) {
	for _, kv := range os.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		if strings.HasSuffix(strings.ToLower(name), "_proxy") {
			r.secrets.AddURL(value)
		}
		r.secrets.AddNamed(kv)
	}
	for _, pattern := range proxyFiles {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			text, _ := readSome(file)
			r.secrets.AddNamed(text)
		}
	}
	r.addRegistries()
	text, doc := r.menderConfig()
	r.secrets.AddNamed(text)
	for key, value := range doc {
		if !slices.Contains(menderSettings, key) {
			eachText(value, func(_, text string) {
				r.secrets.Add(text)
				r.secrets.AddNamed(text)
			})
		}
	}
	dir := filepath.Dir(r.p.config.File)
	decrypted := []string{secrets.DefaultTmpfs}
	identities := []string{secrets.DefaultIdentity, "/var/lib/mender/mender-agent.pem"}
	for _, name := range []string{"mender-app-docker-compose.conf", "mender-app-k8s.conf"} {
		text, _ := readSome(filepath.Join(dir, name))
		r.secrets.AddNamed(text)
		if f, err := config.Parse(name, []byte(text)); err == nil {
			decrypted = append(decrypted, f.String(secrets.DefaultTmpfs, "SECRETS_DIR", "secrets.dir"))
			identities = append(identities, f.String(secrets.DefaultIdentity, "SECRETS_IDENTITY", "secrets.identity"))
		}
	}
	for _, file := range identities {
		text, _ := readSome(file)
		r.secrets.Add(text)
	}
	for _, dir := range decrypted {
		eachFile(dir, func(_, text string) { r.secrets.Add(text) })
	}
	for _, app := range apps {
		r.secrets.Keep(app)
		eachFile(filepath.Join(r.p.config.Store, app), r.addManifest)
	}
	if other := r.p.config.Modules.Dir(); other != "" { // of mender-container-modules
		eachFile(other, r.addManifest)
	}
}

// envFile is the name of a file of variables.
var envFile = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)(^|[._-])env([._-]|$)`)
})

// secretFile is the path of a file whose content is a secret.
var secretFile = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)secret|passw|token|\.key$|credential`)
})

// addManifest adds the secrets in a file of an application.
func (r *report) addManifest(path, text string) {
	name := filepath.Base(path)
	switch {
	case envFile().MatchString(name):
		r.secrets.AddAssignments(text)
	case strings.HasSuffix(name, ".age"): // nobody can read it without the key
	case secretFile().MatchString(path):
		r.secrets.Add(text)
	default:
		r.secrets.AddNamed(text)
	}
}

// eachFile calls each for the text files of a tree. Links are not followed.
func eachFile(root string, each func(path, text string)) {
	files, size := 0, 0
	_ = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return nil // what cannot be read cannot get into the report
		}
		text, err := readSome(path)
		if files, size = files+1, size+len(text); files > maxFiles || size > maxFileBytes {
			return fs.SkipAll
		}
		if err == nil && !strings.Contains(text, "\x00") {
			rel, _ := filepath.Rel(root, path)
			each(rel, text)
		}
		return nil
	})
}

// addRegistries adds the credentials that docker login stored.
func (r *report) addRegistries() {
	dirs := []string{os.Getenv("DOCKER_CONFIG"), "/root/.docker"}
	if home, err := os.UserHomeDir(); err == nil {
		dirs = append(dirs, filepath.Join(home, ".docker"))
	}
	for _, dir := range dirs {
		if dir == "" {
			continue
		}
		text, _ := readSome(filepath.Join(dir, "config.json"))
		var doc any
		if json.Unmarshal([]byte(text), &doc) != nil {
			continue
		}
		eachText(doc, func(key, value string) {
			switch key {
			case "auth":
				r.secrets.Add(value)
				if plain, err := base64.StdEncoding.DecodeString(value); err == nil {
					_, password, _ := strings.Cut(string(plain), ":")
					r.secrets.Add(password)
				}
			case "identitytoken", "registrytoken", "password":
				r.secrets.Add(value)
			}
			r.secrets.AddURL(value)
		})
	}
}

// addConfig adds a configuration file with the settings that may be shown.
func (r *report) addConfig(path string, show []string) {
	text, err := readSome(path)
	if err != nil {
		return
	}
	r.add("config/"+filepath.Base(path), r.secrets.Assignments(text, func(key string) bool { return slices.Contains(show, key) }))
}

// menderConfig reads the Mender client's configuration. It is nil if there is none,
// or if it is no JSON.
func (r *report) menderConfig() (text string, doc map[string]any) {
	text, _ = readSome(r.p.config.MenderConf)
	if json.Unmarshal([]byte(text), &doc) != nil {
		return text, nil
	}
	return text, doc
}

// addMenderConfig adds the Mender client's configuration. Of what may not be shown
// only the name is there.
func (r *report) addMenderConfig() {
	text, doc := r.menderConfig()
	switch {
	case text == "":
		return
	case doc == nil:
		r.add("config/mender.conf", "(it is no JSON)\n")
		return
	}
	for key := range doc {
		if !slices.Contains(menderSettings, key) {
			doc[key] = removedSecret
		}
	}
	r.addJSON("config/mender.conf", doc, nil)
}

// addJSON adds a document, or why there is none.
func (r *report) addJSON(name string, doc any, err error) {
	var text strings.Builder
	enc := json.NewEncoder(&text)
	enc.SetIndent("", "  ")
	if eerr := enc.Encode(doc); eerr != nil {
		err = eerr
	}
	if err != nil {
		r.add(strings.TrimSuffix(name, ".json")+".problem.txt", r.secrets.Text(err.Error())+"\n")
	}
	r.add(name, r.secrets.JSON(text.String()))
}
