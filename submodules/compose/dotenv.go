package compose

import (
	"maps"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/mender-app/mender-app/submodules/compose/rules"
)

// variables are those of the .env in dir and the values of the device, which win; nil if there
// are none.
func variables(dir string, values map[string]string) (map[string]string, error) {
	env, err := rules.Variables(dir)
	if env == nil && len(values) > 0 {
		env = map[string]string{}
	}
	maps.Copy(env, values)
	return env, content(err)
}

// writeEnv writes the shipped variables for Compose, without those that programs read. It
// returns "" if there is no .env.
func writeEnv(env map[string]string, tempDir string) (string, error) {
	if env == nil {
		return "", nil
	}
	var lines []string
	for k, v := range env {
		if k == "COMPOSE_FILE" || k == "COMPOSE_PATH_SEPARATOR" {
			continue // the files are named on the command line
		}
		if rules.VariableReader(k) == "" {
			lines = append(lines, k+"="+quoteEnv(v)+"\n")
		}
	}
	sort.Strings(lines)
	name := filepath.Join(tempDir, "mender-app.env")
	return name, os.WriteFile(name, []byte(strings.Join(lines, "")), 0o600)
}

// quoteEnv quotes a value so that all its characters are taken literally: with
// single quotes, or with double quotes if it contains a single one.
func quoteEnv(v string) string {
	if !strings.Contains(v, "'") {
		return "'" + v + "'"
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `$`, `\$`, "\n", `\n`, "\r", `\r`).Replace(v) + `"`
}
