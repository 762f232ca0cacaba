package compose

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mender-app/mender-app/store/containermodules"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/compose/rules"
	"github.com/mender-app/mender-app/submodules/config"
	"github.com/mender-app/mender-app/submodules/level"
	"github.com/mender-app/mender-app/submodules/secrets"
)

// The defaults of the settings.
const (
	defaultDeadline = 120 * time.Second
	defaultWindow   = 5 * time.Second
	defaultLogLines = 20
)

const confName = rules.ConfName

// settings is mender-app-docker-compose.conf.
type settings struct {
	docker  []string // DOCKER_COMMAND
	compose []string // DOCKER_COMPOSE_COMMAND; nil: find one
	// restartEngine is ENGINE_RESTART_COMMAND; nil: find one.
	restartEngine []string
	deadline      time.Duration // HEALTH_DEADLINE: for a release to become healthy
	deadlineSaid  bool          // it is configured; otherwise health checks may ask for more
	outside       []string      // ALLOW_OUTSIDE: kinds of files that may lie outside the manifests
	refuse        []string      // REFUSE: what no service may have
	levels        level.Setting // LEVEL: what applications may reach on the device, such as confined or monitor:trusted
	others        level.Pairs   // ALLOW_OTHERS: which applications may use what others have, such as shop:kiosk
	store         string        // of the caller; "" if it is not known
	window        time.Duration // HEALTH_WINDOW: it must stay so for this long
	restarts      int64         // HEALTH_RESTARTS: of a container that are forgiven
	logLines      int64         // LOG_LINES: of a failing container that are shown
	secrets       secrets.Settings
	modules       containermodules.Store // whose projects are taken over
	sandbox       bool                   // SANDBOX: LOAD gives up the rights that it does not need
	xdelta3       string                 // XDELTA3_COMMAND: may read what our decoder of the shell reference's deltas cannot; "": nothing may
}

// defaultDocker is the docker command unless DOCKER_COMMAND names another.
const defaultDocker = "docker"

func readSettings(getenv func(string) string, warn func(string, ...any)) (settings, error) {
	dir := getenv(submodules.EnvConfigDir)
	if dir == "" {
		dir = submodules.DefaultConfigDir
	}
	f, err := config.Read(filepath.Join(dir, confName), "allow_outside", "allow_others", "level", "refuse")
	if err != nil {
		return settings{}, fmt.Errorf("configuration: %w", err)
	}
	var s settings
	if s.docker, err = config.Words(f.String(defaultDocker, "DOCKER_COMMAND")); err != nil {
		return s, fmt.Errorf("configuration: DOCKER_COMMAND: %w", err)
	}
	if len(s.docker) == 0 {
		s.docker = []string{defaultDocker}
	}
	if s.compose, err = config.Words(f.String("", "DOCKER_COMPOSE_COMMAND")); err != nil {
		return s, fmt.Errorf("configuration: DOCKER_COMPOSE_COMMAND: %w", err)
	}
	if s.restartEngine, err = config.Words(f.String("", "ENGINE_RESTART_COMMAND")); err != nil {
		return s, fmt.Errorf("configuration: ENGINE_RESTART_COMMAND: %w", err)
	}
	if s.deadline, err = f.Duration(-1, "HEALTH_DEADLINE", "health.deadline"); err != nil {
		return s, fmt.Errorf("configuration: %w", err)
	}
	if s.deadlineSaid = s.deadline >= 0; !s.deadlineSaid {
		s.deadline = defaultDeadline
	}
	if s.window, err = f.Duration(defaultWindow, "HEALTH_WINDOW", "health.window"); err != nil {
		return s, fmt.Errorf("configuration: %w", err)
	}
	if s.restarts, err = f.Int(0, "HEALTH_RESTARTS", "health.restarts"); err != nil {
		return s, fmt.Errorf("configuration: %w", err)
	}
	if s.logLines, err = f.Int(defaultLogLines, "LOG_LINES", "log_lines"); err != nil {
		return s, fmt.Errorf("configuration: %w", err)
	}
	if s.sandbox, err = f.Bool(true, "SANDBOX"); err != nil {
		return s, fmt.Errorf("configuration: %w", err)
	}
	if s.secrets, err = secrets.ReadSettings(f); err != nil {
		return s, fmt.Errorf("configuration: %w", err)
	}
	if s.modules, err = containermodules.Configured(dir); err != nil {
		warn("warning: %v", err)
	}
	s.xdelta3 = f.String("", "XDELTA3_COMMAND", "xdelta3")
	s.outside = f.Strings("ALLOW_OUTSIDE", "allow_outside")
	if err := checkWords("ALLOW_OUTSIDE", s.outside, rules.OutsideKinds); err != nil {
		return s, err
	}
	s.others = f.Strings("ALLOW_OTHERS", "allow_others")
	if err := s.others.Check(); err != nil {
		return s, err
	}
	s.levels = f.Strings("LEVEL", "level")
	if err := s.levels.Check(); err != nil {
		return s, err
	}
	s.store = getenv(submodules.EnvStore)
	s.refuse = f.Strings("REFUSE", "refuse")
	if err := checkWords("REFUSE", s.refuse, rules.ReachKinds); err != nil {
		return s, err
	}
	for _, line := range f.Unknown() {
		warn("warning: %s", line)
	}
	return s, nil
}

// rules are the settings that app-gen may be asked for too.
func (s settings) rules() rules.Settings {
	return rules.Settings{Outside: s.outside, Refuse: s.refuse}
}

// checkWords refuses unknown words in a setting: a typo must not leave something
// open.
func checkWords(key string, words, known []string) error {
	for _, w := range words {
		if !slices.Contains(known, w) {
			return fmt.Errorf("configuration: %s: %q is none of %s", key, w, strings.Join(known, ", "))
		}
	}
	return nil
}
