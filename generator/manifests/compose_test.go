package manifests

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	logrus.SetOutput(io.Discard)
	os.Exit(m.Run())
}

// tree writes files (name, content pairs) into a new directory.
func tree(t testing.TB, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		path := filepath.Join(dir, files[i])
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(files[i+1]), 0o644))
	}
	return dir
}

func TestComposeImages(t *testing.T) {
	cases := []struct {
		name   string
		files  []string
		opts   ComposeOptions
		images []string
		ship   []Variable
		note   string
	}{
		{
			name: "one file",
			files: []string{"docker-compose.yml", `
services:
  web: {image: "web:1"}
  side: {image: "side:1"}
`},
			images: []string{"side:1", "web:1"},
		},
		{
			name: "default and override file",
			files: []string{
				"compose.yaml", "services: {web: {image: 'web:1'}}\n",
				"compose.override.yaml", "services: {web: {image: 'web:2'}}\n",
			},
			images: []string{"web:2"},
		},
		{
			name: ".env is shipped as it is",
			files: []string{
				"compose.yaml", "services: {web: {image: 'web:${TAG}'}}\n",
				".env", "TAG=3\n",
			},
			images: []string{"web:3"},
		},
		{
			name: "the environment is stronger than .env, and shipped",
			files: []string{
				"compose.yaml", "services: {web: {image: 'web:${TAG}'}}\n",
				".env", "TAG=3\n",
			},
			opts:   ComposeOptions{Environ: []string{"TAG=4", "UNUSED=x", "HOME=/root"}},
			images: []string{"web:4"},
			ship:   []Variable{{"TAG", "4"}},
		},
		{
			name:   "default value",
			files:  []string{"compose.yaml", "services: {web: {image: 'web:${TAG:-9}'}}\n"},
			images: []string{"web:9"},
		},
		{
			name: "passed-on variable",
			files: []string{"compose.yaml", `
services:
  web:
    image: web:1
    environment: [TOKEN, OTHER=2]
`},
			opts:   ComposeOptions{Environ: []string{"TOKEN=t"}},
			images: []string{"web:1"},
			ship:   []Variable{{"TOKEN", "t"}},
		},
		{
			name: "profiles",
			files: []string{"compose.yaml", `
services:
  web: {image: "web:1"}
  debug: {image: "debug:1", profiles: [dev]}
`},
			images: []string{"web:1"},
		},
		{
			name: "a chosen profile is shipped",
			files: []string{"compose.yaml", `
services:
  web: {image: "web:1"}
  debug: {image: "debug:1", profiles: [dev]}
`},
			opts:   ComposeOptions{Profiles: []string{"dev"}},
			images: []string{"debug:1", "web:1"},
			ship:   []Variable{{"COMPOSE_PROFILES", "dev"}},
		},
		{
			name: "several files by COMPOSE_FILE",
			files: []string{
				"a.yaml", "services: {web: {image: 'web:1'}}\n",
				"b/b.yaml", "services: {web: {image: 'web:5'}, x: {image: 'x:1'}}\n",
				".env", "COMPOSE_FILE=a.yaml:b/b.yaml\n",
			},
			images: []string{"web:5", "x:1"},
		},
		{
			name: "several files by option",
			files: []string{
				"a.yaml", "services: {web: {image: 'web:1'}}\n",
				"b.yaml", "services: {x: {image: 'x:1'}}\n",
			},
			opts:   ComposeOptions{Files: []string{"a.yaml", "b.yaml"}},
			images: []string{"web:1", "x:1"},
			ship:   []Variable{{"COMPOSE_FILE", "a.yaml:b.yaml"}},
		},
		{
			name: "include and extends inside",
			files: []string{
				"compose.yaml", "include: [sub/inc.yaml]\nservices: {web: {extends: {file: base.yaml, service: base}}}\n",
				"sub/inc.yaml", "services: {inc: {image: 'inc:${V}'}}\n",
				"base.yaml", "services: {base: {image: 'base:1'}}\n",
			},
			opts:   ComposeOptions{Environ: []string{"V=7"}},
			images: []string{"inc:7", "base:1"},
			ship:   []Variable{{"V", "7"}},
		},
		{
			name: "files from Windows",
			files: []string{
				"compose.yaml", "\uFEFFname: shop\r\nservices:\r\n  web:\r\n    image: web:${TAG}\r\n    env_file: [own.env]\r\n",
				".env", "\uFEFFTAG=5\r\n",
				"own.env", "\uFEFFA=b\r\n",
			},
			images: []string{"web:5"},
		},
		{
			name: "build beside image",
			files: []string{"compose.yaml", `
services:
  web:
    image: web:1
    build: .
`},
			images: []string{"web:1"},
			note:   `compose.yaml:5: service "web": build is ignored`,
		},
		{
			name: "bind mount of a file that is not there",
			files: []string{"compose.yaml", `
services:
  web:
    image: web:1
    volumes: ["./conf:/etc/conf", "/dev/null:/x", "data:/data"]
volumes: {data: {}}
`},
			images: []string{"web:1"},
			note:   `compose.yaml:5: service "web": bind mount ./conf is not in the manifests directory`,
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := tree(t, c.files...)
			found, err := Compose(t.Context(), dir, c.opts)
			require.NoError(t, err)
			require.Equal(t, c.images, found.Images())
			require.NoError(t, AddVariables(dir, found.Ship))
			require.NoError(t, Judge(t.Context(), dir, nil))
			require.Equal(t, c.ship, found.Ship)
			require.Empty(t, found.Warnings)
			if c.note == "" {
				require.Empty(t, found.Notes)
			} else {
				require.Len(t, found.Notes, 1)
				require.Contains(t, found.Notes[0], c.note)
			}
			for _, u := range found.Uses {
				require.NotEmpty(t, u.By)
				require.NotEmpty(t, u.Place.File)
			}
		})
	}
}

func TestComposeRefuses(t *testing.T) {
	cases := []struct {
		name  string
		files []string
		want  string
	}{
		{"no file", nil, ".: no compose file"},
		{"not yaml", []string{"compose.yaml", "services:\n  web:\n    image: w\n   bad: [\n"}, "compose.yaml:"},
		{"unknown key", []string{"compose.yaml", "services:\n  web:\n    imag: web\n"}, "compose.yaml:3: services.web.imag"},
		{"wrong type", []string{"compose.yaml", "services:\n  web:\n    image: web\n    ports: 5\n"}, "compose.yaml:4: services.web.ports"},
		{"required variable", []string{"compose.yaml", "services:\n  web:\n    image: web:${TAG:?set it}\n"}, "compose.yaml:3: error while interpolating services.web.image: required variable TAG is missing a value: set it"},
		{"bad variable", []string{"compose.yaml", "services:\n  web:\n    image: web:${TAG\n"}, "compose.yaml:3: invalid interpolation"},
		{"undefined dependency", []string{"compose.yaml", "services:\n  web:\n    image: web\n    depends_on: [db]\n"}, `compose.yaml:2: service "web" depends on undefined service`},
		{"twice the same key", []string{"compose.yaml", "services:\n  web:\n    image: w\n    pull_policy: never\n    pull_policy: never\n"}, "compose.yaml:4: "},
		{"error in the second file", []string{"compose.yaml", "services: {web: {image: w}}\n", "compose.override.yaml", "services:\n  web:\n    ports: 5\n"}, "compose.override.yaml:3: services.web.ports"},
		{"always", []string{"compose.yaml", "services:\n  web:\n    image: w\n    pull_policy: always\n"}, `compose.yaml:4: service "web" has pull_policy: always`},
		{"daily", []string{"compose.yaml", "services:\n  web:\n    image: w\n    pull_policy: daily\n"}, `compose.yaml:4: service "web" has pull_policy: daily`},
		{"build only", []string{"compose.yaml", "services:\n  web:\n    build: .\n"}, `compose.yaml:3: service "web" has build but no image`},
		{"no image", []string{"compose.yaml", "services:\n  web: {command: x}\n"}, `compose.yaml:2: service "web" has neither an image nor a build`},
		{"bind out", []string{"compose.yaml", "services:\n  web:\n    image: w\n    volumes: ['../x:/y']\n"}, `compose.yaml:4: service "web": bind mount ../x leaves`},
		{"env_file missing", []string{"compose.yaml", "services:\n  web:\n    image: w\n    env_file: none.env\n"}, `compose.yaml:4: service "web": env_file none.env does not exist`},
		{"env_file out", []string{"compose.yaml", "services:\n  web:\n    image: w\n    env_file: ../none.env\n"}, `env_file ../none.env leaves`},
		{"env_file broken", []string{"compose.yaml", "services:\n  web:\n    image: w\n    env_file: a.env\n", "a.env", "A=\"x\n"}, `a.env: `},
		{"secret missing", []string{"compose.yaml", "services: {web: {image: w, secrets: [s]}}\nsecrets:\n  s: {file: ./s.txt}\n"}, `compose.yaml:3: secret s ./s.txt does not exist`},
		{"include out", []string{"compose.yaml", "include: [../other.yaml]\nservices: {}\n"}, "compose.yaml: ../other.yaml is outside the manifests directory"},
		{"extends out", []string{"compose.yaml", "services:\n  web:\n    extends: {file: ../b.yaml, service: b}\n"}, "../b.yaml is outside the manifests directory"},
		{"remote include", []string{"compose.yaml", "include: ['https://example.com/x.git']\nservices: {}\n"}, "is outside the manifests directory"},
		{"compose file out", []string{".env", "COMPOSE_FILE=../compose.yaml\n"}, "../compose.yaml: compose file named by COMPOSE_FILE is outside"},
		{"compose file missing", []string{".env", "COMPOSE_FILE=a.yaml\n"}, "a.yaml: no such file"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := tree(t, c.files...)
			_, err := Compose(t.Context(), dir, ComposeOptions{})
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), dir, "the directory is known")
			require.NotContains(t, err.Error(), "\n")
			var e *Error
			require.True(t, errors.As(err, &e))
		})
	}
}

// A device does not take what Docker's programs read from a .env; all else it does.
func TestVariablesForPrograms(t *testing.T) {
	found, err := Compose(t.Context(), tree(t, ".env", "DOCKER_HOST=tcp://build:2375\nDOCKER_BUILDKIT=1\nDOCKER_INFLUXDB_INIT_USERNAME=admin\n",
		"compose.yaml", "services:\n  db:\n    image: influxdb:2\n    environment: [\"AT=${DOCKER_HOST}\", \"DOCKER_INFLUXDB_INIT_USERNAME=${DOCKER_INFLUXDB_INIT_USERNAME}\"]\n"), ComposeOptions{})
	require.NoError(t, err)
	require.Equal(t, []string{".env: DOCKER_HOST is empty on the device, because the docker command reads it: give the variable another name"}, found.Warnings)
	require.Equal(t, []string{".env: DOCKER_BUILDKIT has no effect on the device: it would set how the docker command works there"}, found.Notes,
		"what changes nothing of the application")
	require.Empty(t, found.Ship)
}

// What depends on the person who starts a project is refused: a device has none.
func TestPersonalPaths(t *testing.T) {
	for name, c := range map[string]struct{ volume, env, want string }{
		"tilde":         {"~/data:/data", "", "compose.yaml:4: service \"web\": bind mount ~/data is below a home directory"},
		"HOME":          {"${HOME}/x:/x", "", "compose.yaml:4: ${HOME} is empty on the device"},
		"PWD":           {"$PWD/y:/y", "", ""},
		"through .env":  {"${AT}:/x", "A=1\nAT=${HOME}/x\n", ".env:2: AT needs a variable of the person"},
		"set in .env":   {"${HOME}/x:/x", "HOME=/opt/shop\n", ""},
		"with default":  {"${HOME:-/root}/x:/x", "", ""},
		"of no service": {"./x:/x", "AT=${HOME}/x\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := tree(t, "compose.yaml", "services:\n  web:\n    image: web:1\n    volumes: [\""+c.volume+"\"]\n", ".env", c.env)
			_, err := Compose(t.Context(), dir, ComposeOptions{Environ: []string{"HOME=/home/me", "PWD=/home/me/shop"}})
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Contains(t, e.Hint, "./data")
		})
	}
}

// A device has ${PWD} where it begins a path of the project, and where a .env sets it.
func TestPWD(t *testing.T) {
	const rest = "services:\n  web:\n    image: web:1\n"
	for name, c := range map[string]struct {
		files []string
		want  string
	}{
		"in a variable":    {[]string{"compose.yaml", rest + "    environment: [\"AT=$PWD\"]\n"}, "compose.yaml:4: ${PWD} begins no path"},
		"as a variable":    {[]string{"compose.yaml", rest + "    environment: {AT: \"${PWD:-/x}\"}\n"}, "compose.yaml:4: ${PWD} begins no path"},
		"twice":            {[]string{"compose.yaml", rest + "    volumes: [\"$PWD:$PWD\"]\n"}, "compose.yaml:4: ${PWD} begins no path"},
		"later":            {[]string{"compose.yaml", rest + "    volumes: [\"/srv$PWD:/x\"]\n"}, "compose.yaml:4: ${PWD} begins no path"},
		"in a driver":      {[]string{"compose.yaml", rest + "volumes: {a: {driver_opts: {device: \"$PWD/a\"}}}\n"}, "compose.yaml:4: ${PWD} begins no path"},
		"longer":           {[]string{"compose.yaml", rest + "    volumes: [\"$PWDX/a:/a\", \"${PWD}b:/b\"]\n"}, "compose.yaml:4: ${PWD} begins no path"},
		"of another":       {[]string{"compose.yaml", rest + "    volumes: [\"$PWDX/a:/a\"]\n"}, ""},
		"included":         {[]string{"compose.yaml", "include: [sub/more.yaml]\n" + rest, "sub/more.yaml", "services:\n  db: {image: 'db:1', volumes: [\"$PWD/x:/x\"]}\n"}, "sub/more.yaml:2: ${PWD} begins no path"},
		"another's":        {[]string{"compose.yaml", "include: [{path: more.yaml, project_directory: sub}]\n" + rest, "sub/x", "", "more.yaml", "services:\n  db: {image: 'db:1', volumes: [\"$PWD/x:/x\"]}\n"}, "more.yaml:2: ${PWD} begins no path"},
		"through .env":     {[]string{".env", "AT=${PWD}/x\n", "compose.yaml", rest + "    volumes: [\"$AT:/x\"]\n"}, ".env:1: AT needs a variable of the person"},
		"escaped":          {[]string{"compose.yaml", rest + "    command: \"ls $$PWD $$$$PWD\"\n"}, ""},
		"of the container": {[]string{"compose.yaml", rest + "    environment: [PWD]\n"}, ""},
		"set":              {[]string{".env", "PWD=/srv\n", "compose.yaml", rest + "    environment: [\"AT=$PWD\"]\n"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := Compose(t.Context(), tree(t, c.files...), ComposeOptions{Environ: []string{"PWD=/home/me/shop"}})
			if c.want != "" {
				require.ErrorContains(t, err, c.want)
				return
			}
			require.NoError(t, err)
			require.Empty(t, found.Ship)
		})
	}
	file := filepath.Join(t.TempDir(), "device.env")
	require.NoError(t, os.WriteFile(file, []byte("HOME=/opt/shop\nPWD=/srv\nUSER=me\n"), 0o600))
	found, err := Compose(t.Context(), tree(t, "compose.yaml", rest+"    volumes: [\"$PWD/a:/a\", \"$HOME/b:/b\", \"/$USER:/c\"]\n"), ComposeOptions{EnvFiles: []string{file}})
	require.NoError(t, err)
	require.Equal(t, []Variable{{"HOME", "/opt/shop"}, {"PWD", "/srv"}}, found.Ship)
}

// A file of the first version of Compose is not taken for one with misspelt keys.
func TestServicesAtTop(t *testing.T) {
	for text, want := range map[string]string{
		"web: {image: 'web:1'}\ndb: {build: .}\n":               "put services below services:",
		"servces:\n  web: {image: 'web:1'}\n":                   "did you mean services?",
		"services: {a: {image: a}}\nweb: {image: 'web:1'}\n":    "",
		"services: {a: {image: a}}\nvolume: {image: 'web:1'}\n": "did you mean volumes?",
	} {
		_, err := Compose(t.Context(), tree(t, "compose.yaml", text), ComposeOptions{})
		require.ErrorContains(t, err, "of Compose files")
		var e *Error
		require.ErrorAs(t, err, &e)
		require.True(t, want == "" && e.Hint == "" || want != "" && strings.Contains(e.Hint, want), "%q", e.Hint)
	}
}

func TestNoReplicas(t *testing.T) {
	zero := "services:\n  web: {image: 'web:1', deploy: {replicas: 0}}\n  db: {image: 'db:1', scale: 0}\n"
	_, err := Compose(t.Context(), tree(t, "compose.yaml", zero), ComposeOptions{})
	require.ErrorContains(t, err, "compose.yaml:1: no service has a container")
	_, err = Compose(t.Context(), tree(t, "compose.yaml", zero+"  on: {image: 'on:1'}\n"), ComposeOptions{})
	require.NoError(t, err)
}

// TestComposeInterpolationIsBounded: a text whose variables take minutes is refused at once.
func TestComposeInterpolationIsBounded(t *testing.T) {
	bad := strings.Repeat("${A:-", 3200) + strings.Repeat("}", 3200)
	for name, files := range map[string]map[string]string{
		"compose":  {"compose.yaml": "services: {web: {image: web, command: ['" + bad + "']}}\n"},
		"env":      {"compose.yaml": "services: {web: {image: web}}\n", ".env": "A=" + bad + "\n"},
		"env file": {"compose.yaml": "services: {web: {image: web, env_file: [web.env]}}\n", "web.env": "A=" + bad + "\n"},
	} {
		dir := t.TempDir()
		for file, text := range files {
			require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
		}
		start := time.Now()
		_, err := Compose(t.Context(), dir, ComposeOptions{})
		require.ErrorContains(t, err, "the variables take too long to fill in", name)
		require.Less(t, time.Since(start), 5*time.Second, name)
	}
}
