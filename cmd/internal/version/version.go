// Package version tells a program its own version. Every program answers
// --version with one line: its name and the version.
package version

import "runtime/debug"

// Template makes cobra print that line.
const Template = "{{.Name}} {{.Version}}\n"

// String returns the version that the Go tool stamped in: the module's version, or
// "devel-" and the first 12 digits of the commit, or "devel".
func String() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel-" + s.Value[:12]
		}
	}
	return "devel"
}
