// Package level names how much of a device an application may reach. Each sub-module says
// in its own table what needs which level.
//
// It knows names, capabilities and the setting LEVEL, and nothing else of what applications
// are made of.
package level

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact/names"
)

// Level is how much of the device an application may reach. Each level allows what the
// ones before it allow.
type Level int

const (
	// Confined: its own containers, volumes, networks, ports and files.
	Confined Level = iota
	// HostNetwork: also the network of the device.
	HostNetwork
	// Trusted: also everything else that containers can be given. That is root on the
	// device.
	Trusted
	// Never is above all levels.
	Never
)

var levelNames = []string{Confined: "confined", HostNetwork: "host-network", Trusted: "trusted", Never: "none"}

func (l Level) String() string { return levelNames[l] }

// MarshalText implements encoding.TextMarshaler.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// Names are the names of the levels, the lowest first.
func Names() []string { return levelNames[:Never] }

// Parse reads the name of a level.
func Parse(name string) (Level, error) {
	if i := slices.Index(Names(), name); i >= 0 {
		return Level(i), nil
	}
	return Confined, fmt.Errorf("%q is none of %s", name, strings.Join(Names(), ", "))
}

// defaultCapabilities are those that an engine or containerd gives every container (moby,
// oci/caps/defaults.go; containerd, oci/spec.go).
var defaultCapabilities = []string{
	"CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "MKNOD", "NET_RAW", "SETGID", "SETUID", "SETFCAP", "SETPCAP",
	"NET_BIND_SERVICE", "SYS_CHROOT", "KILL", "AUDIT_WRITE",
}

// OfCapability is the level that a capability needs, which may begin with CAP_.
func OfCapability(name string) Level {
	switch name = strings.TrimPrefix(strings.ToUpper(name), "CAP_"); {
	case slices.Contains(defaultCapabilities, name):
		return Confined
	case name == "NET_ADMIN", name == "NET_BROADCAST":
		return HostNetwork
	}
	return Trusted
}

// Setting are the words of LEVEL: a level for all applications, and levels of some, such as
// confined or monitor:trusted.
type Setting []string

// Check refuses what LEVEL cannot have.
func (s Setting) Check() error {
	all := ""
	for _, w := range s {
		app, level, ok := strings.Cut(w, ":")
		if !ok {
			app, level = "", w
		}
		if _, err := Parse(level); err != nil {
			return fmt.Errorf("configuration: LEVEL: %w", err)
		}
		switch err := names.Check(app); {
		case ok && err != nil:
			return fmt.Errorf("configuration: LEVEL: %w", err)
		case !ok && all != "":
			return fmt.Errorf("configuration: LEVEL: %s and %s cannot both be that of all applications: write APPLICATION:%s", all, level, level)
		case !ok:
			all = level
		}
	}
	return nil
}

// Of is what an application may reach on the device. Without the setting that is what it
// was before there were levels. Check has accepted the setting.
func (s Setting) Of(app string) Level {
	level := Trusted
	for _, w := range s {
		of, name, ok := strings.Cut(w, ":")
		if !ok {
			level, _ = Parse(w)
		}
		if ok && of == app {
			level, _ = Parse(name)
			return level
		}
	}
	return level
}
