// Package version tells a program its own version. Every program answers
// --version with one line: its name and the version.
package version

import (
	"runtime/debug"
	"strings"
)

// Number is the version that this tree is, or becomes with its next release. Packages
// have it, too.
const Number = "1.0.0-rc1"

// Template makes cobra print that line.
const Template = "{{.Name}} {{.Version}}\n"

// String returns Number if the program was built from the commit of that release. For
// another commit its first 12 digits follow, as in 1.0.0-rc1+0123456789ab, and "+devel" if
// the Go tool has stamped no commit in.
func String() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Number + "+devel"
	}
	return of(info)
}

func of(info *debug.BuildInfo) string {
	switch v := info.Main.Version; {
	case v == "v"+Number:
		return Number
	case v != "" && v != "(devel)" && setting(info, "vcs") == "": // go install MODULE@VERSION
		return strings.TrimPrefix(v, "v")
	}
	if commit := setting(info, "vcs.revision"); len(commit) >= 12 {
		return Number + "+" + commit[:12]
	}
	return Number + "+devel"
}

func setting(info *debug.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}
