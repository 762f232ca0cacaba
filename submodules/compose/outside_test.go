package compose

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/compose/rules"
)

// reader reads projects with the real Compose, which needs no engine for it.
type reader struct {
	*testing.T
	s   *session
	c   *command
	dir string
}

func newReader(t *testing.T) *reader {
	t.Helper()
	if err := exec.Command("docker", "compose", "version").Run(); err != nil {
		missing(t, "this test needs docker compose: %v", err)
	}
	r := &reader{T: t, dir: filepath.Join(t.TempDir(), "evil", "manifests")}
	require.NoError(t, os.MkdirAll(r.dir, 0o755))
	r.s = &session{req: submodules.Request{App: "evil", Dir: r.dir, TempDir: t.TempDir()}}
	r.c = &command{words: []string{"docker", "compose"}, env: composeEnv("unix:///nonexistent/docker.sock")}
	return r
}

func (r *reader) write(name, text string) string {
	name = filepath.Join(r.dir, name)
	require.NoError(r, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(r, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func (r *reader) read() (*project, error) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Minute)
	defer cancel()
	p, err := r.s.readProject(ctx, r.c, r.dir, "", true)
	if err != nil {
		return nil, err
	}
	if err := p.checkModel(r.s.set); err != nil {
		return p, err
	}
	return p, r.s.checkLevel(p, nil)
}

// Every Compose gets the same PWD: the project's directory, or what a .env says. Some would set
// it themselves.
func TestPWD(t *testing.T) {
	if testing.Short() {
		t.Skip("asks Compose; left out of -short")
	}
	r := newReader(t)
	r.write("compose.yaml", "services:\n  web: {image: web, volumes: [\"${PWD}/data:/data\"], environment: {AT: \"${PWD}\"}}\n")
	for env, want := range map[string]string{"": r.dir + "/data", "PWD=/srv/shop\n": "/srv/shop/data"} {
		r.write(".env", env)
		p, err := r.read()
		require.NoError(t, err)
		require.Len(t, p.model.Services["web"].Volumes, 1)
		require.Equal(t, want, p.model.Services["web"].Volumes[0].Text("source"))
	}
}

// TestOutside: Compose reads no file that is not the application's.
func TestOutside(t *testing.T) {
	if testing.Short() {
		t.Skip("asks Compose for each case; left out of -short")
	}
	other := filepath.Join(t.TempDir(), "shop")
	require.NoError(t, os.MkdirAll(other, 0o755))
	secret := filepath.Join(other, "secret.env")
	require.NoError(t, os.WriteFile(secret, []byte("PASSWORD=hunter2\n"), 0o600))
	whole := filepath.Join(other, "compose.yaml")
	require.NoError(t, os.WriteFile(whole, []byte("services:\n  db: {image: db, environment: {PASSWORD: hunter2}}\n"), 0o600))
	base := "services:\n  web:\n    image: web\n"
	for name, c := range map[string]struct{ text, kind string }{
		"env_file":           {base + "    env_file: " + secret + "\n", "env-file"},
		"env_file of a list": {base + "    env_file: [{path: " + secret + ", required: false}]\n", "env-file"},
		"env_file, relative": {base + "    env_file: ../../../../../../../../../.." + secret + "\n", "env-file"},
		"env_file, link":     {base + "    env_file: link.env\n", "env-file"},
		"env_file, variable": {base + "    env_file: ${WHERE}/secret.env\n", "env-file"},
		"env_file, anchor":   {"x-a: &a {env_file: " + secret + "}\nservices:\n  web: {<<: *a, image: web}\n", "env-file"},
		"include":            {"include: [" + whole + "]\n" + base, "include"},
		"include, map":       {"include: [{path: [inside.yaml, " + whole + "]}]\n" + base, "include"},
		"include, env_file":  {"include: [{path: inside.yaml, env_file: " + secret + "}]\n" + base, "env-file"},
		"include, nested":    {"include: [nested.yaml]\n" + base, "env-file"},
		"extends":            {base + "    extends: {file: " + whole + ", service: db}\n", "extends"},
		"secret":             {base + "    secrets: [s]\nsecrets: {s: {file: " + secret + "}}\n", "secret"},
		"config":             {base + "    configs: [s]\nconfigs: {s: {file: " + secret + "}}\n", "config"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReader(t)
			r.write("compose.yaml", c.text)
			r.write(".env", "WHERE="+other+"\n")
			r.write("inside.yaml", "services: {in: {image: in}}\n")
			r.write("nested.yaml", "services: {in: {image: in, env_file: "+secret+"}}\n")
			require.NoError(t, os.Symlink(secret, filepath.Join(r.dir, "link.env")))
			_, err := r.read()
			require.ErrorIs(t, err, submodules.ErrContent)
			require.ErrorContains(t, err, "ALLOW_OUTSIDE in mender-app-docker-compose.conf has "+c.kind)
			require.NotContains(t, err.Error(), "hunter2")
			r.s.set.outside = []string{c.kind}
			_, err = r.read()
			require.NoError(t, err, "the operator may allow it")
		})
	}
	t.Run("inside", func(t *testing.T) {
		r := newReader(t)
		r.write("compose.yaml", "include: [sub/inside.yaml]\n"+base+"    env_file: [own.env]\n    volumes: [/etc/hostname:/etc/hostname]\n    secrets: [s]\nsecrets: {s: {file: ./own.env}}\n")
		r.write("sub/inside.yaml", "services: {in: {image: in, env_file: in.env}}\n")
		r.write("sub/in.env", "A=1\n")
		r.write("own.env", "B=2\n")
		p, err := r.read()
		require.NoError(t, err)
		require.Equal(t, []string{"in", "web"}, p.model.names())
	})
	for _, url := range []string{"https://git.example/x.git", "git@git.example:x.git", "oci://registry.example/x:1", "github.com/x/y"} {
		t.Run("remote", func(t *testing.T) {
			r := newReader(t)
			r.s.set.outside = rules.OutsideKinds
			r.write(".env", "COMPOSE_EXPERIMENTAL_GIT_REMOTE=true\nCOMPOSE_EXPERIMENTAL_OCI_REMOTE=true\n")
			r.write("compose.yaml", "include: ['"+url+"']\n"+base)
			_, err := r.read()
			require.ErrorContains(t, err, "nothing is fetched from elsewhere")
		})
	}
}

// TestShippedEnvironment: a shipped .env sets variables of the files, and none
// that programs read for themselves; the caller's are not seen at all.
func TestShippedEnvironment(t *testing.T) {
	t.Setenv("HOME", "/home/caller")
	t.Setenv("SECRET", "caller")
	r := newReader(t)
	r.write(".env", "OWN=\"it's $$ \\\"5\\\"\"\nMORE='a\nb'\nGIT_SSH_COMMAND=evil\nDOCKER_CONTEXT=evil\nCOMPOSE_EXPERIMENTAL_GIT_REMOTE=true\nCOMPOSE_PROFILES=extra\nCOMPOSE_PROJECT_NAME=mine\n")
	r.write("compose.yaml", `services:
  web:
    image: web
    labels:
      own: "${OWN}"
      more: "${MORE}"
      home: "x${HOME}"
      secret: "x${SECRET}"
      git: "x${GIT_SSH_COMMAND}"
      context: "x${DOCKER_CONTEXT}"
  more: {image: more, profiles: [extra]}
`)
	p, err := r.read()
	require.NoError(t, err)
	require.Equal(t, "mine", p.name)
	require.Equal(t, []string{"more", "web"}, p.model.names())
	labels := p.model.Services["web"].Labels
	require.Equal(t, "a\nb", labels["more"])
	require.Contains(t, labels["own"], `it's`)
	require.Contains(t, labels["own"], `"5"`)
	for _, k := range []string{"home", "secret", "git", "context"} {
		require.Equal(t, "x", labels[k], k)
	}
	text, err := os.ReadFile(p.env)
	require.NoError(t, err)
	for _, gone := range []string{"GIT_", "DOCKER_", "REMOTE"} {
		require.NotContains(t, string(text), gone)
	}
}

// TestVariablesOfServices: a name that only begins like those of Docker's programs is a
// variable as any other.
func TestVariablesOfServices(t *testing.T) {
	r := newReader(t)
	r.write(".env", "DOCKER_INFLUXDB_INIT_USERNAME=admin\nDOCKER_VOLUME_STORAGE=/mnt\nGIT_SERVER=forge\nCOMPOSE_TAG=3\n")
	r.write("compose.yaml", `services:
  db:
    image: "influxdb:${COMPOSE_TAG}"
    labels: {user: "${DOCKER_INFLUXDB_INIT_USERNAME}", at: "${DOCKER_VOLUME_STORAGE}", git: "${GIT_SERVER}"}
`)
	p, err := r.read()
	require.NoError(t, err)
	require.Equal(t, "influxdb:3", p.model.Services["db"].Image)
	require.Equal(t, map[string]string{"user": "admin", "at": "/mnt", "git": "forge"}, p.model.Services["db"].Labels)
}

// TestRefuse: what the operator refuses is refused by name.
func TestRefuse(t *testing.T) {
	if testing.Short() {
		t.Skip("asks Compose for each case; left out of -short")
	}
	for kind, text := range map[string]string{
		"privileged":   "privileged: true",
		"host-pid":     "pid: host",
		"host-network": "network_mode: host",
		"mount-root":   "volumes: ['/:/host:ro']",
	} {
		r := newReader(t)
		r.write("compose.yaml", "services:\n  web:\n    image: web\n    "+text+"\n")
		_, err := r.read()
		require.NoError(t, err, kind)
		r.s.set.refuse = []string{kind}
		_, err = r.read()
		require.ErrorContains(t, err, "service web has "+kind+", and REFUSE in mender-app-docker-compose.conf refuses that")
		require.ErrorIs(t, err, submodules.ErrContent)
	}
	t.Run("ways around", func(t *testing.T) {
		r := newReader(t)
		r.s.set.refuse = rules.ReachKinds
		require.NoError(t, os.Symlink("/", filepath.Join(r.dir, "link")))
		for _, text := range []string{
			"services: {web: {image: web, volumes: ['/etc/..:/host']}}",
			"services: {web: {image: web, volumes: ['./link:/host']}}",
			"services: {web: {image: web, volumes: ['vol:/host']}}\nvolumes: {vol: {driver_opts: {type: none, o: bind, device: /}}}",
			"services: {web: {image: web, volumes: ['vol:/host']}}\nvolumes: {vol: {driver_opts: {type: overlay, device: overlay, o: 'lowerdir=/etc:/'}}}",
			"services: {web: {image: web, volumes: ['vol:/host']}}\nvolumes: {vol: {driver_opts: {type: none, o: bind, device: .}}}",
			"services: {web: {image: web, networks: [n]}}\nnetworks: {n: {external: true, name: host}}",
		} {
			r.write("compose.yaml", text+"\n")
			_, err := r.read()
			require.ErrorContains(t, err, "service web has ", text)
		}
	})
	for text, want := range map[string]string{
		`refuse = ["privilegd"]` + "\n":              `REFUSE: "privilegd" is none of`,
		`allow_outside = ["all"]` + "\n":             `ALLOW_OUTSIDE: "all" is none of`,
		`refuse = ["privileged", "host-pid"]` + "\n": "",
	} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, confName), []byte(text), 0o600))
		s, err := readSettings(func(k string) string { return map[string]string{submodules.EnvConfigDir: dir}[k] }, t.Logf)
		if want != "" {
			require.ErrorContains(t, err, want)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, []string{"privileged", "host-pid"}, s.refuse)
	}
}

// TestLevel: the level that the operator gives bounds what Compose itself prints, for all
// applications or for one. The old words of REFUSE mean what they meant.
func TestLevel(t *testing.T) {
	if testing.Short() {
		t.Skip("asks Compose for each case; left out of -short")
	}
	r := newReader(t)
	require.NoError(t, os.MkdirAll(filepath.Join(r.dir, "conf"), 0o755))
	text := func(more string) {
		r.write("compose.yaml", `services:
  web:
    image: web
    ports: ["8080:80"]
    environment: {A: b}
    command: ["a", "b"]
    volumes: ["data:/data", "./conf:/etc/web:ro", "./kept:/kept"]
    tmpfs: [/tmp]
    networks: [lan]
    restart: unless-stopped
    healthcheck: {test: ["CMD", "true"], interval: 5s}
    deploy: {resources: {limits: {memory: 50M, cpus: "0.5"}}}
    ulimits: {nofile: {soft: 10, hard: 20}}
    blkio_config: {weight: 300, device_read_bps: [{path: /dev/sda, rate: 1mb}]}
    logging: {driver: json-file, options: {max-size: 1m}}
    depends_on: [db]
    x-own: {a: b}
`+more+`
  db: {image: db, stop_grace_period: 3s, cap_drop: [ALL], security_opt: ["no-new-privileges:true"], read_only: true}
networks: {lan: {internal: true, ipam: {config: [{subnet: 10.9.0.0/24}]}}}
volumes: {data: {labels: {a: b}}}
`)
	}
	for level, says := range map[string]string{
		"confined": "service web has privileged, which needs the level trusted, and LEVEL in mender-app-docker-compose.conf gives this application confined",
		"confined other:trusted evil:host-network": "which needs the level trusted, and LEVEL in mender-app-docker-compose.conf gives this application host-network",
		"confined evil:trusted":                    "",
		"trusted evil:confined":                    "gives this application confined",
		"trusted":                                  "",
		"":                                         "",
	} {
		r.s.set.levels = strings.Fields(level)
		require.NoError(t, r.s.set.levels.Check())
		text("    user: \"1000\"")
		_, err := r.read()
		require.NoError(t, err, level)
		text("    privileged: true")
		if _, err = r.read(); says == "" {
			require.NoError(t, err, level)
			continue
		}
		require.ErrorIs(t, err, submodules.ErrContent, level)
		require.ErrorContains(t, err, says, level)
	}
	for _, bad := range []string{"privileged", "none", "confined trusted", ":trusted", "evil:", "../x:trusted"} {
		r.s.set.levels = strings.Fields(bad)
		require.Error(t, r.s.set.levels.Check(), bad)
	}
}

// TestProvider: no service has Compose run a program on the device. The text is what Compose 5
// prints; Compose before 2.36 refuses the key.
func TestProvider(t *testing.T) {
	dir := t.TempDir()
	for text, refused := range map[string]bool{
		`{"services": {"stock": {"image": "stock:1"}, "web": {"image": "web:1", "provider": {"type": "/data/mender-app/shop/manifests/evil", "options": {"a": ["b"]}}}}}`: true,
		`{"services": {"web": {"image": "web:1", "provider": {"type": "model"}}}}`:                                                                                        true,
		`{"services": {"web": {"image": "web:1", "provider": null, "models": null}}}`:                                                                                     false,
		`{"services": {"web": {"image": "web:1"}}}`:                                                                                                                       false,
	} {
		p := &project{dir: dir}
		require.NoError(t, json.Unmarshal([]byte(text), &p.model))
		err := p.checkModel(settings{})
		if !refused {
			require.NoError(t, err, text)
			continue
		}
		require.ErrorIs(t, err, submodules.ErrContent, text)
		require.ErrorContains(t, err, "service web has a provider", text)
	}
	p := &project{dir: dir}
	require.NoError(t, json.Unmarshal([]byte(`{"services": {"web": {"image": "web:1", "models": {"llm": null}}}, "models": {"llm": {"model": "ai/x"}}}`), &p.model))
	require.ErrorContains(t, p.checkModel(settings{}), "service web has models: Compose would run docker model")
}

// TestAliases: a few lines of YAML do not take the device's memory.
func TestAliases(t *testing.T) {
	if testing.Short() {
		t.Skip("lets Compose work until its bounds end it; left out of -short")
	}
	r := newReader(t)
	var b strings.Builder
	b.WriteString("x-a: &a [" + strings.Repeat("x,", 30) + "x]\n")
	for c := 'b'; c <= 'g'; c++ {
		p := string(c - 1)
		b.WriteString("x-" + string(c) + ": &" + string(c) + " [" + strings.Repeat("*"+p+",", 30) + "*" + p + "]\n")
	}
	b.WriteString("services: {web: {image: web}}\n")
	r.write("compose.yaml", b.String())
	_, err := r.read()
	require.ErrorIs(t, err, submodules.ErrContent)
	require.ErrorContains(t, err, "excessive aliasing", "our own reader takes it")
	// Compose itself is bounded too, whatever our own reader let through.
	p := &project{dir: r.dir, files: []string{filepath.Join(r.dir, "compose.yaml")}}
	out := submodules.Capped{Max: 1 << 20}
	err = p.run(t.Context(), r.c.limited(readProcessor), &out, &tail{}, "config", "--format", "json")
	require.ErrorIs(t, err, errOverrun)
}

// Aliases that Compose's own check lets through cost 360 MiB and 40 s of the
// processor's time. Each bound ends Compose once over, and the error names it.
func TestAliasBomb(t *testing.T) {
	if testing.Short() {
		t.Skip("lets Compose work until its bounds end it; left out of -short")
	}
	r := newReader(t)
	var b strings.Builder
	b.WriteString("x-a: &a [" + strings.Repeat("x,", 9) + "x]\n")
	for c := 'b'; c <= 'f'; c++ {
		p := string(c - 1)
		b.WriteString("x-" + string(c) + ": &" + string(c) + " [" + strings.Repeat("*"+p+",", 9) + "*" + p + "]\n")
	}
	b.WriteString("services: {web: {image: web}}\n")
	r.write("compose.yaml", b.String())
	p := &project{dir: r.dir, files: []string{filepath.Join(r.dir, "compose.yaml")}}
	for _, c := range []struct {
		bounds bounds
		args   []string
		says   string
	}{
		{bounds{Memory: 160 << 20, Processor: time.Minute}, []string{"config", "--format", "json"}, "needed more than 160 MiB of memory"},
		{bounds{Memory: 1 << 30, Processor: 2 * time.Second}, []string{"config", "--format", "json"}, "after 2s of the processor's time"},
		{bounds{Memory: 160 << 20, Processor: time.Minute}, []string{"up", "--detach", "--pull", "never", "--no-build"}, "needed more than 160 MiB of memory"},
		{bounds{Memory: 1 << 30, Processor: 2 * time.Second}, []string{"up", "--detach", "--pull", "never", "--no-build"}, "after 2s of the processor's time"},
	} {
		l := *r.c
		l.bounds = &c.bounds
		out := submodules.Capped{Max: 1 << 20}
		err := l.run(t.Context(), r.dir, &out, &tail{}, p.args(c.args...)...)
		require.ErrorIs(t, err, errOverrun, "%v", c.args)
		require.ErrorIs(t, err, submodules.ErrContent)
		require.ErrorContains(t, err, c.says)
	}
}
