package submodules

import (
	"fmt"
	"io"
	"strings"
)

// codeText says what each exit code means, as --help and PROTOCOL.md do.
var codeText = []struct {
	code int
	text string
}{
	{CodeDone, "done; ALIVE, HEALTHY: true"},
	{CodeFailed, "failed; ALIVE, HEALTHY: false; VERIFY: something is damaged or missing"},
	{CodeUsage, "unknown verb or wrong arguments"},
	{CodeRequirement, "something needed is missing or too old"},
	{CodeNotFound, "component not found"},
	{CodeContent, "the content is wrong (digest, verification, platform)"},
	{CodeUnhealthy, "started, but not healthy"},
	{CodeSpace, "no space left"},
	{CodeBase, "the base of a delta is missing or damaged"},
	{CodeDeadline, "the deadline passed, or a signal ended the call"},
}

var envText = []struct{ name, text string }{
	{EnvTempDir, "directory for temporary files (default: a new one)"},
	{EnvOptions, "words: deep_delta, delta, stage, distrust, finish, secrets, follow, remove, make, probe"},
	{EnvPlatform, "platform the content must be for, such as linux/arm/v7"},
	{EnvComponents, "JSON file with the release's components and their digests"},
	{EnvDeadline, "time limit of the call in seconds"},
	{EnvPurgeData, "1: PURGE also removes the application's data"},
	{EnvRecipients, "age recipients of the secrets, for REQS with the option secrets"},
	{EnvLogLines, fmt.Sprintf("lines of each instance, for LOGS (default %d)", DefaultLogLines)},
	{EnvDisabled, "switched-off services, for sub-modules with the feature services/1"},
	{EnvOverrides, "directory of override files, for sub-modules with the feature overrides/1"},
	{EnvValues, "file of lines NAME='VALUE', for sub-modules with the feature values/1"},
	{EnvCPUSet, "reserved processors, and the services that run on them, for sub-modules with the feature cpuset/1"},
	{EnvOldVersion, "version of the previous release, for RUN"},
	{EnvNewVersion, "version of the release with RUN's command"},
	{EnvStore, "the directory of all applications, which no application may mount"},
	{EnvConfigDir, "directory of the configuration (default " + DefaultConfigDir + ")"},
}

func (f frame) usage(w io.Writer) {
	var b strings.Builder
	fmt.Fprintf(&b, "usage: %s VERB ARGUMENTS\n\nA sub-module of mender-app, protocol %s. %s is called by the update module\n\"app\", or by hand.\n\nverbs:\n", f.name, Protocol, f.name)
	for _, v := range verbs() {
		if f.has(v) {
			fmt.Fprintf(&b, "  %-34s %s\n", v.name+" "+v.args, v.about)
		}
	}
	fmt.Fprintf(&b, "  %-34s %s\n", "completion", "print a completion script for bash")
	b.WriteString("\nenvironment:\n")
	for _, e := range envText {
		if e.name == EnvLogLines && !f.has(verbSpec{name: VerbLogs}) {
			continue
		}
		fmt.Fprintf(&b, "  %-34s %s\n", e.name, e.text)
	}
	fmt.Fprintf(&b, "\nexamples:\n"+
		"  docker save web:2 | %[1]s LOAD shop web:2 -    load an image\n"+
		"  %[1]s ROLLOUT shop /home/me/shop               start the release with these manifests\n"+
		"  %[1]s HEALTHY shop && %[1]s LIST shop            is it healthy; its components\n"+
		"  %[1]s STOP shop /home/me/shop                  stop it; START takes the same\n", f.name)
	b.WriteString("\nexit status:\n")
	for _, c := range codeText {
		fmt.Fprintf(&b, "  %-4d %s\n", c.code, c.text)
	}
	_, _ = io.WriteString(w, b.String())
}

func (f frame) verbUsage(v verbSpec) {
	fmt.Fprintf(f.out, "usage: %s\n\n%s.\nSee %s --help for the environment and the exit status.\n",
		strings.TrimSpace(f.name+" "+v.name+" "+v.args), strings.ToUpper(v.about[:1])+v.about[1:], f.name)
}

func (f frame) completion() error {
	var names []string
	for _, v := range verbs() {
		if f.has(v) {
			names = append(names, v.name)
		}
	}
	id := strings.ReplaceAll(f.name, "-", "_")
	_, err := fmt.Fprintf(f.out, `_mender_app_%[1]s() {
    local words=%[2]q
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "$words --help --version" -- "${COMP_WORDS[1]}"))
    else
        COMPREPLY=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"))
    fi
}
complete -o filenames -F _mender_app_%[1]s /usr/share/mender/app-modules/v1/%[3]s
`, id, strings.Join(names, " "), f.name)
	return err
}
