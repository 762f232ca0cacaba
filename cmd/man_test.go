package cmd

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	longFlag = regexp.MustCompile(`--([a-z0-9][a-z0-9-]+)`)
	command  = regexp.MustCompile(`(?m)^  ([a-z]+)  +[A-Z]`)
	verb     = regexp.MustCompile(`(?m)^  ([A-Z][A-Z_]+|[A-Z][a-z]+[A-Z]\w*|Download|Cleanup)(?: |$)`) // or variable of a sub-module, or state of app
	exitCode = regexp.MustCompile(`(?m)^  (\d+)  `)
)

// The manual pages name every option, command and exit code that the programs
// themselves tell of.
func TestManualsAreComplete(t *testing.T) {
	pages := map[string]string{
		"mender-app": "mender-app.8", "app-gen": "app-gen.1", "app-conformance": "app-conformance.1", "app": "mender-app-module.8",
		"docker-compose": "mender-app-docker-compose.8", "k8s": "mender-app-k8s.8",
	}
	require.Len(t, pages, len(programs))
	for program, page := range pages {
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
					for _, v := range command.FindAllSubmatch(more, -1) { // verbs below a noun
						if name == "completion" {
							break
						}
						require.Regexp(t, `(?m)^\.(It )?Cm `+name+` (.* )?`+string(v[1])+`\b`, string(manual))
						of, err := exec.Command(binary, name, string(v[1]), "--help").Output()
						require.NoError(t, err)
						help = append(help, of...)
					}
				}
			}
			if program != "app-gen" && program != "mender-app" && program != "app-conformance" { // they have no verbs
				found := verb.FindAllSubmatch(help, -1)
				require.Greater(t, len(found), 10)
				for _, c := range found {
					require.Regexp(t, `(Cm|Ev) `+string(c[1])+`\b`, string(manual))
				}
			}
			for _, f := range longFlag.FindAllSubmatch(help, -1) {
				require.Regexp(t, `(Fl (. , )?-|\\-\\-)`+string(f[1])+`\b`, string(manual))
			}
			for _, c := range exitCode.FindAllSubmatch(help, -1) {
				require.Contains(t, string(manual), "\n.It "+string(c[1])+"\n")
			}
		})
	}
}

// The page of a configuration file has every setting of the file as it is
// installed, with the same default.
func TestManualsHaveEverySetting(t *testing.T) {
	files, err := filepath.Glob("../packaging/etc/*.conf")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	setting := regexp.MustCompile(`(?m)^#(\[\[\w+\]\]|\w+)(?: ?= ?(.*))?$`)
	for _, file := range files {
		sample, err := os.ReadFile(file)
		require.NoError(t, err)
		manual, err := os.ReadFile(filepath.Join("../packaging/man", filepath.Base(file)+".5"))
		require.NoError(t, err)
		table := false
		for _, m := range setting.FindAllStringSubmatch(string(sample), -1) {
			want := ".It Va " + m[1]
			if value := strings.Trim(m[2], `"`); value != "" && value != "[]" {
				want += " Pq Li " + value
			}
			if table { // its settings are examples
				want = ".Va " + m[1]
			}
			table = table || strings.HasPrefix(m[1], "[[")
			require.Regexp(t, `(?m)^`+regexp.QuoteMeta(want), string(manual), file)
		}
	}
}

// mandoc has nothing to say about any page, and the pages that they name exist.
func TestManualsAreClean(t *testing.T) {
	pages, err := filepath.Glob("../packaging/man/*.[1-8]")
	require.NoError(t, err)
	require.Greater(t, len(pages), 7)
	reference := regexp.MustCompile(`(?m)^\.Xr (\S+) (\d)`)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		found := reference.FindAllSubmatch(text, -1)
		require.NotEmpty(t, found, page)
		for _, r := range found {
			require.FileExists(t, filepath.Join("../packaging/man", string(r[1])+"."+string(r[2])), page)
		}
	}
	mandoc, err := exec.LookPath("mandoc")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("missing in CI: mandoc")
		}
		t.Skip("needs mandoc (make setup)")
	}
	out, _ := exec.Command(mandoc, append([]string{"-Tlint"}, pages...)...).CombinedOutput() // its exit code is that of the worst line
	for line := range strings.Lines(string(out)) {
		// The pages are not installed; the references were checked above.
		if !strings.Contains(line, "referenced manual not found") && !strings.Contains(line, "outdated mandoc.db") {
			t.Error(line)
		}
	}
}
