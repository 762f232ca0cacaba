package manifests

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/composefiles"
)

// realComposes are the Docker Composes of this machine and of testdata/engines, by version.
func realComposes(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, program := range []string{"/usr/libexec/docker/cli-plugins/docker-compose", "sid/usr/libexec/docker/cli-plugins/docker-compose", "compose-5/docker-compose"} {
		if !filepath.IsAbs(program) {
			var err error
			program, err = bed.EngineTree(program)
			require.NoError(t, err)
		}
		if out, err := exec.Command(program, "version", "--short").Output(); err == nil {
			all[strings.TrimSpace(string(out))] = program
		}
	}
	if len(all) == 0 {
		t.Skip("needs Docker Compose (make setup, make engines)")
	}
	return all
}

// config is what a Compose says of the project in dir.
func config(t *testing.T, program, dir string) (string, error) {
	t.Helper()
	c := exec.Command(program, "config", "--quiet")
	c.Dir, c.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	out, err := c.CombinedOutput()
	return string(out), err
}

// listed are the keys whose entries are items of a list.
var listed = []string{"services.*.volumes", "services.*.ports", "services.*.env_file", "services.*.devices", "services.*.gpus", "services.*.develop.watch"}

// projectWith is a project that has a key of firstIn.
func projectWith(t *testing.T, key string) string {
	t.Helper()
	parts := strings.Split(key, ".")
	var value any = "x"
	for i, part := range slices.Backward(parts) {
		switch {
		case part != "*":
			value = map[string]any{part: value}
		case slices.Contains(listed, strings.Join(parts[:i], ".")):
			value = []any{value}
		default:
			value = map[string]any{"a": value}
		}
	}
	text, err := yaml.Marshal(value)
	require.NoError(t, err)
	return string(text)
}

// The table agrees with real Composes: what one does not know is newer than it. Debian's are
// built with a newer compose-go, so they may know more.
func TestVersionsOfCompose(t *testing.T) {
	if testing.Short() {
		t.Skip("asks several Composes for each key; left out of -short")
	}
	for version, program := range realComposes(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			for since, keys := range firstIn {
				for _, key := range keys {
					if strings.Contains(key, "=") {
						continue
					}
					dir := t.TempDir()
					require.NoError(t, os.WriteFile(filepath.Join(dir, "compose.yaml"), []byte(projectWith(t, key)), 0o600))
					said, _ := config(t, program, dir)
					last := regexp.QuoteMeta(key[strings.LastIndex(key, ".")+1:])
					unknown := regexp.MustCompile(`dditional propert(y ` + last + ` is|ies .*'` + last + `'.*) not allowed`).MatchString(said)
					newer := since == unread || compareVersions(t, version, since) < 0
					if unknown != newer && (unknown || !strings.Contains(version, "-")) {
						t.Errorf("%s says of %s, new in %s: %s", version, key, since, said)
					}
				}
			}
		})
	}
}

// With --compose-version, app-gen accepts a project as that Compose does.
func TestVersionsJudgeAlike(t *testing.T) {
	if testing.Short() {
		t.Skip("asks several Composes for each case; left out of -short")
	}
	for version, program := range realComposes(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			for _, c := range composefiles.Read(t) {
				if c.Verdict != composefiles.Newer {
					continue
				}
				dir := t.TempDir()
				c.Write(t, dir)
				said, err := config(t, program, dir)
				_, refused := Compose(t.Context(), dir, ComposeOptions{Version: version})
				require.Equal(t, err == nil, refused == nil, "%s: %s %v", c.Name, said, refused)
			}
		})
	}
}

// A file may spell things in several ways.
func TestVersionsFindsKeys(t *testing.T) {
	for text, want := range map[string]string{
		"x-a: &a\n  gpus: all\nservices:\n  web: {image: web, <<: *a}\n":                                 "compose.yaml:2: services.web.gpus needs Docker Compose 2.30.0",
		"x-a: &a {image: web}\nx-b: &b {label_file: x}\nservices:\n  web: {<<: [*a, *b]}\n":              "compose.yaml:2: services.web.label_file needs Docker Compose 2.32.0",
		"x-v: &v [{type: image, source: web, target: /x}]\nservices: {web: {image: web, volumes: *v}}\n": "compose.yaml:1: services.web.volumes.0.type: image needs Docker Compose 2.35.0",
		"services: {web: {image: web}}\n---\nservices:\n  web: {use_api_socket: true}\n":                 "compose.yaml:4: services.web.use_api_socket needs Docker Compose 2.37.2",
		"include: [sub/more.yaml]\nservices: {web: {image: web}}\n":                                      "sub/more.yaml:2: services.more.gpus needs Docker Compose 2.30.0",
		"services: {web: {extends: {file: sub/more.yaml, service: more}}}\n":                             "sub/more.yaml:2: services.more.gpus needs Docker Compose 2.30.0",
	} {
		dir := writeFiles(t, map[string]string{"compose.yaml": text, "sub/more.yaml": "services:\n  more: {image: more, gpus: all}\n", "x": "a=b\n"})
		_, err := Compose(t.Context(), dir, ComposeOptions{Version: "2.26"})
		require.ErrorContains(t, err, want+", and the devices have 2.26", text)
		found, err := Compose(t.Context(), dir, ComposeOptions{})
		require.NoError(t, err, text)
		require.Contains(t, strings.Join(found.Notes, "\n"), want+" on the devices; --compose-version says which they have", text)
	}
	for _, wrong := range []string{"1.29", "two", "2.x", "2.26.1.4"} {
		var version *VersionError
		dir := writeFiles(t, map[string]string{"compose.yaml": "services: {web: {image: web}}\n"})
		_, err := Compose(t.Context(), dir, ComposeOptions{Version: wrong})
		require.ErrorAs(t, err, &version, wrong)
	}
}
