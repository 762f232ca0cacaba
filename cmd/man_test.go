package cmd

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	longFlag = regexp.MustCompile(`--([a-z0-9][a-z0-9-]+)`)
	command  = regexp.MustCompile(`(?m)^  ([a-z]+)  +[A-Z]`)
	exitCode = regexp.MustCompile(`(?m)^  (\d+)  `)
)

// The manual pages name every option, command and exit code that the programs
// themselves tell of.
func TestManualsAreComplete(t *testing.T) {
	programs := map[string]string{"mender-app": "mender-app.8", "app-gen": "app-gen.1", "k8s": "mender-app-k8s.8"}
	for program, page := range programs {
		t.Run(program, func(t *testing.T) {
			binary := built(t, program)
			manual, err := os.ReadFile(filepath.Join("..", "packaging", "man", page))
			require.NoError(t, err)

			help, err := exec.Command(binary, "--help").Output()
			require.NoError(t, err)
			for _, c := range command.FindAllSubmatch(help, -1) {
				name := string(c[1])
				if name != "help" {
					require.Regexp(t, `(?m)^\.It Cm .*\b`+name+`\b|^\.Cm .*\b`+name+`\b`, string(manual))
				}
				if program == "mender-app" {
					more, err := exec.Command(binary, name, "--help").Output()
					require.NoError(t, err)
					help = append(help, more...)
				}
			}
			for _, f := range longFlag.FindAllSubmatch(help, -1) {
				require.Regexp(t, `Fl (. , )?-`+string(f[1])+`\b`, string(manual))
			}
			for _, c := range exitCode.FindAllSubmatch(help, -1) {
				require.Contains(t, string(manual), "\n.It "+string(c[1])+"\n")
			}
		})
	}
}
