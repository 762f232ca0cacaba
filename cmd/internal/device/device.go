// Package device has the code that the programs app and mender-app share: the
// configuration, the engine it configures, log lines, and exit codes. It must not
// know the arguments of either program.
package device

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/cmd/internal/sdjournal"
	"github.com/mender-app/mender-app/modules/deploy"
	"github.com/mender-app/mender-app/modules/diskspace"
	"github.com/mender-app/mender-app/modules/hold"
	"github.com/mender-app/mender-app/modules/hooks"
	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/modules/settings"
	"github.com/mender-app/mender-app/modules/staging"
	"github.com/mender-app/mender-app/modules/view"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/store/containermodules"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/config"
)

// ConfigEnv is the variable that names a configuration file other than
// DefaultConfig.
const (
	ConfigEnv     = "MENDER_APP_CONFIG"
	DefaultConfig = "/etc/mender/mender-app.conf"
)

// Config is the content of mender-app.conf, with defaults for missing settings.
type Config struct {
	File          string                 // the file it was read from
	Store         string                 // persistent_store
	Modules       containermodules.Store // of mender-container-modules, to adopt from
	SubmodulesDir string                 // app_modules_dir
	UpdateModule  string                 // update_module: the program `app`
	Keep          int                    // keep
	Platforms     []image.Platform       // platform
	DataRoot      string                 // data_root
	Timeouts      deploy.Timeouts        // load_timeout, rollout_timeout
	DeviceType    string                 // device_type_file
	Signatures    Signatures             // artifact_verify_key, artifact_verify_keys, [[keys]], allow_unsigned, require_statement, require_unexpired
	RefuseOlder   bool                   // refuse_older
	// CommitOnInstall makes an installation by hand with the Mender client final.
	CommitOnInstall    bool // commit_on_install
	deploy.Environment      // allow_env, application_cpuset
	SystemFiles
	Hooks      HookSettings
	Staging    StagingSettings
	Windows    WindowSettings
	Content    ContentSettings
	MaxRate    int64      // max_rate, in bytes a second; 0 means no bound
	MenderConf string     // mender_conf
	LogLevel   slog.Level // log_level
	Warnings   []string   // unknown settings, one line each
}

// SystemFiles describe the operating system.
type SystemFiles struct {
	OSRelease    string // os_release_file
	ArtifactInfo string // artifact_info_file
}

// WindowSettings say when updates may be installed.
type WindowSettings struct {
	Texts     []string       // windows; none: at any time
	List      policy.Windows // what they say
	NeedClock bool           // windows_need_clock: not before the machine's clock is set
}

// ContentSettings say where images are that artifacts do not carry.
type ContentSettings struct {
	Mirrors   []string // content_mirrors: directories and URLs
	CAFile    string   // content_ca: certificates that are trusted beside the system's
	TokenFile string   // content_token_file: for the servers of Mirrors
}

// HookSettings say which hooks run, what the device changes in applications, and
// whether applications may refuse updates.
type HookSettings struct {
	Allow     bool   // allow_hooks: of applications
	Dir       string // hooks_dir: of the device
	Overrides string // overrides_dir: of the device
	Values    string // values_dir: of the device
	AppLocks  string // app_locks_dir; "" with allow_app_locks = false
}

// StagingSettings bound the staged artifacts, in MiB.
type StagingSettings struct {
	Most int64 // staging_mib: all staged artifacts together
	Free int64 // staging_free_mib: stays free on the store's file system
}

// killAfter is the time that a sub-module has to exit after TERM. The client gives
// this program at least 10 seconds, of which this program needs 5 itself.
const killAfter = 3 * time.Second

// Load reads the configuration. A missing file counts as an empty one; a broken
// file is an error with the line's number.
func Load() (*Config, error) {
	name := os.Getenv(ConfigEnv)
	if name == "" {
		name = DefaultConfig
	}
	f, err := config.Read(name, append([]string{"allow_env", "windows", "content_mirrors"}, signatureArrays...)...)
	if err != nil {
		return nil, err
	}
	c := &Config{
		File:          name,
		Store:         f.String("/data/mender-app", "persistent_store"),
		SubmodulesDir: f.String(submodules.DefaultDir, "app_modules_dir", "app_module_dir"),
		UpdateModule:  f.String("/usr/share/mender/modules/v3/app", "update_module"),
		DataRoot:      f.String("", "data_root"),
		DeviceType:    f.String("/var/lib/mender/device_type", "device_type_file"),
		SystemFiles: SystemFiles{
			OSRelease:    f.String("/etc/os-release", "os_release_file"),
			ArtifactInfo: f.String("/etc/mender/artifact_info", "artifact_info_file"),
		},
		Hooks:      HookSettings{Dir: f.String("/etc/mender/mender-app/hooks.d", "hooks_dir"), Overrides: f.String("/etc/mender/mender-app/overrides.d", "overrides_dir"), Values: f.String("/etc/mender/mender-app/values.d", "values_dir")},
		MenderConf: f.String(menderConf, "mender_conf"),
	}
	keep, err := f.Int(deploy.DefaultKeep, "keep")
	if err != nil {
		return nil, err
	}
	if keep < 0 || keep > 1000 {
		return nil, fmt.Errorf("%s: keep = %d is not between 0 and 1000", name, keep)
	}
	c.Keep = int(keep)
	if c.Timeouts.LoadTimeout, err = f.Duration(deploy.DefaultLoadTimeout, "load_timeout"); err != nil {
		return nil, err
	}
	if c.Timeouts.RolloutTimeout, err = f.Duration(deploy.DefaultRolloutTimeout, "rollout_timeout"); err != nil {
		return nil, err
	}
	if c.Staging.Most, err = mebibytes(f, 1024, "staging_mib"); err != nil {
		return nil, err
	}
	if c.Staging.Free, err = mebibytes(f, 256, "staging_free_mib"); err != nil {
		return nil, err
	}
	if err := c.LogLevel.UnmarshalText([]byte(f.String("info", "log_level"))); err != nil {
		return nil, fmt.Errorf("%s: log_level: %w", name, err)
	}
	if c.Platforms, err = platforms(f.String("", "platform")); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for _, path := range []string{c.Store, c.SubmodulesDir} {
		if !filepath.IsAbs(path) {
			return nil, fmt.Errorf("%s: %q is not an absolute path", name, path)
		}
	}
	if c.DataRoot == "" {
		c.DataRoot = dockerRoot("/")
	}
	if c.RefuseOlder, err = f.Bool(false, "refuse_older"); err != nil {
		return nil, err
	}
	if c.CommitOnInstall, err = f.Bool(false, "commit_on_install"); err != nil {
		return nil, err
	}
	if c.Hooks.Allow, err = f.Bool(true, "allow_hooks"); err != nil {
		return nil, err
	}
	c.Hooks.AppLocks = f.String("/run/mender-app", "app_locks_dir")
	if asks, err := f.Bool(true, "allow_app_locks"); err != nil {
		return nil, err
	} else if !asks {
		c.Hooks.AppLocks = ""
	}
	c.Windows.Texts = append([]string{}, f.List("windows")...)
	if c.Windows.List, err = policy.ParseWindows(c.Windows.Texts); err != nil {
		return nil, fmt.Errorf("%s: windows: %w", name, err)
	}
	if c.Windows.NeedClock, err = f.Bool(true, "windows_need_clock"); err != nil {
		return nil, err
	}
	c.Content = ContentSettings{Mirrors: f.List("content_mirrors"), CAFile: f.String("", "content_ca"), TokenFile: f.String("", "content_token_file")}
	for _, m := range c.Content.Mirrors {
		if err := checkMirror(m); err != nil {
			return nil, fmt.Errorf("%s: content_mirrors: %w", name, err)
		}
	}
	if c.MaxRate, err = parseRate(f.String("", "max_rate")); err != nil {
		return nil, fmt.Errorf("%s: max_rate: %w", name, err)
	}
	if c.CPUs = f.String("", "application_cpuset"); c.CPUs != "" {
		if err := submodules.CheckCPUs(c.CPUs); err != nil {
			return nil, fmt.Errorf("%s: application_cpuset: %w", name, err)
		}
	}
	c.AllowEnv = f.Strings("allow_env")
	for _, name := range c.AllowEnv {
		if err := names.CheckEnv(name); err != nil {
			return nil, fmt.Errorf("%s: allow_env: %w", name, err)
		}
	}
	c.Signatures = readSignatures(f)
	c.Signatures.Learnt = c.OpenStore().Trust
	var broken error
	c.Modules, broken = containermodules.Configured(filepath.Dir(name))
	if err := f.RefuseUnknown("refuse_", "require"); err != nil {
		return nil, err
	}
	c.Warnings = f.Unknown()
	if broken != nil { // another program's file is not a reason to refuse updates
		c.Warnings = append(c.Warnings, broken.Error())
	}
	return c, nil
}

// mebibytes reads a setting that is a number of MiB.
func mebibytes(f *config.File, def int64, key string) (int64, error) {
	const most = 1 << 30
	n, err := f.Int(def, key)
	if err == nil && (n < 0 || n > most) {
		err = fmt.Errorf("%s = %d is not between 0 and %d", key, n, most)
	}
	return n, err
}

// dockerRoot finds the Docker engine's data root below root: the one in the
// engine's configuration, or the default if an engine has used it; "" otherwise.
// A check of the space of an unused directory could refuse an artifact that fits.
func dockerRoot(root string) string {
	var daemon struct {
		DataRoot string `json:"data-root"`
	}
	if data, err := os.ReadFile(filepath.Join(root, "etc/docker/daemon.json")); err == nil {
		if json.Unmarshal(data, &daemon) == nil && filepath.IsAbs(daemon.DataRoot) {
			return filepath.Join(root, daemon.DataRoot)
		}
	}
	dir := filepath.Join(root, "var/lib/docker")
	// The engine makes this directory when it starts.
	if st, err := os.Stat(filepath.Join(dir, "containers")); err == nil && st.IsDir() {
		return dir
	}
	return ""
}

// platforms reads the setting "platform", which overrides the platforms that the
// kernel reports. "any" turns the check off.
func platforms(value string) ([]image.Platform, error) {
	switch value {
	case "":
		return deploy.Platforms(), nil
	case "any":
		return nil, nil
	}
	var list []image.Platform
	for _, word := range strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' }) {
		p, err := image.ParsePlatform(word)
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

// OpenStore returns the store that the configuration describes.
func (c *Config) OpenStore() *store.Store { return store.At(c.Store).Beside(c.Modules) }

// Values returns the source of values that the configuration describes.
func (c *Config) Values() settings.Values {
	return settings.Values{Store: c.OpenStore(), Dir: c.Hooks.Values}
}

// StagingArea returns the place of staged artifacts that the configuration describes.
func (c *Config) StagingArea() *staging.Area {
	s := c.OpenStore()
	return &staging.Area{
		Store: s, Limit: c.Staging.Most << 20, Margin: c.Staging.Free << 20, Free: diskspace.Free,
		Loaded: func(artifact digest.Digest) int64 { return s.LoadedBytes(artifact) },
	}
}

// Engine makes the deployment engine that the configuration describes.
func (c *Config) Engine(log *slog.Logger, driver string) *deploy.Engine {
	transcript := journal.NewTranscript(log.Handler(), func(r slog.Record) string { return text(r, nil) })
	log = slog.New(transcript)
	var clockSet func() bool
	if c.Windows.NeedClock {
		clockSet = hold.ClockSet
	}
	return &deploy.Engine{
		Store: c.OpenStore(),
		Find: func(name string) (submodules.Client, error) {
			return c.submodule(name, log)
		},
		Installed:    c.Submodules,
		Log:          log,
		Keep:         c.Keep,
		Platforms:    c.Platforms,
		DataRoot:     c.DataRoot,
		Timeouts:     c.Timeouts,
		RefuseOlder:  c.RefuseOlder,
		Environment:  c.Environment,
		Caller:       journal.Caller{Driver: driver, Asked: asked(os.Getenv), Transcript: transcript, Tell: sdjournal.Tell()},
		System:       c.system,
		AppLocks:     c.Hooks.AppLocks,
		Content:      &contentFetcher{c, log},
		Learn:        &learning{c.Signatures, c.OpenStore(), log},
		MayGoBack:    c.Signatures.MayGoBack,
		Verified:     c.Signatures.Verified,
		Windows:      c.Windows.List,
		ClockSet:     clockSet,
		OverridesDir: c.Hooks.Overrides,
		Values:       c.Values(),
		Staged:       &stagedArtifacts{c, log},
		Hooks:        &hooks.Runner{Dir: c.Hooks.Dir, Forbidden: !c.Hooks.Allow, Log: log, KillAfter: killAfter},
	}
}

// asked says who asks for a deployment other than the Mender client.
func asked(getenv func(string) string) store.Asked {
	if getenv("INVOCATION_ID") != "" { // systemd sets it for processes of a unit
		return store.Asked{How: store.AskedByUnit}
	}
	return store.Asked{How: store.AskedByHand, User: cmp.Or(getenv("SUDO_USER"), getenv("LOGNAME"), getenv("USER"))}
}

// Viewer makes the viewer that the configuration describes.
func (c *Config) Viewer(log *slog.Logger) *view.Viewer {
	return &view.Viewer{
		Find:         func(name string) (view.Submodule, error) { return c.submodule(name, log) },
		AllowEnv:     c.AllowEnv,
		OverridesDir: c.Hooks.Overrides,
		Values:       c.Values(),
		Staging:      c.StagingArea(),
		Waits:        c.Engine(log, "").UpdatesWait,
	}
}

// Submodules are the names of the installed sub-modules.
func (c *Config) Submodules() (names []string) {
	entries, _ := os.ReadDir(c.SubmodulesDir)
	for _, entry := range entries {
		if _, err := submodules.Find(c.SubmodulesDir, entry.Name()); err == nil {
			names = append(names, entry.Name())
		}
	}
	return names
}

// submodule finds a sub-module. log gets what it says on standard error.
func (c *Config) submodule(name string, log *slog.Logger) (submodules.Client, error) {
	m, err := submodules.Find(c.SubmodulesDir, name)
	if err != nil {
		return submodules.Client{}, err
	}
	m.Config = submodules.Config{
		Log:       withoutLastError(func(line string) { log.Info(line, "orchestrator", name) }),
		KillAfter: killAfter,
		Store:     c.Store,
	}
	return m.Client(), nil
}

// withoutLastError passes lines on, except for an error on the last line, which the
// call returns as its error.
func withoutLastError(log func(string)) func(string) {
	held := ""
	return func(line string) {
		if held != "" {
			log(held)
			held = ""
		}
		if strings.HasPrefix(line, "error: ") {
			held = line
			return
		}
		log(line)
	}
}
