package cmd

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// make install installs the programs that are chosen and what belongs to them,
// or names what is missing and installs nothing.
func TestInstall(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("this test needs make")
	}
	full := t.TempDir()
	for _, p := range []string{"app", "docker-compose", "k8s", "mender-app", "app-gen", "app-conformance"} {
		require.NoError(t, os.WriteFile(filepath.Join(full, p), []byte("#!/bin/sh\necho complete\n"), 0o755))
	}
	part := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(part, "app"), []byte("#!/bin/sh\n"), 0o755))
	const (
		app     = "usr/share/mender/modules/v3/app"
		compose = "usr/share/mender/app-modules/v1/docker-compose"
		kube    = "usr/share/mender/app-modules/v1/k8s"
		client  = "usr/bin/mender-app"
		host    = "usr/bin/app-gen"
		test    = "usr/bin/app-conformance"
		scripts = "usr/share/mender/app-modules/v1/"
		script  = "usr/share/mender/inventory/mender-inventory-app"
		second  = "usr/share/mender/modules/v3/docker-compose"
		face    = "usr/share/mender-orchestrator/interfaces/v1/app"
	)
	for name, c := range map[string]struct {
		args       []string
		want, none []string // files
		said       string   // it fails and says this
	}{
		"all but k8s": {
			args: []string{"install", "FROM=" + full},
			want: []string{app, compose, client, host, test, "etc/mender/mender-app.conf", "usr/share/man/man1/app-gen.1", "usr/lib/systemd/system/mender-app-resume.service", "usr/share/bash-completion/completions/app-gen", "usr/share/zsh/site-functions/_app-gen", "usr/share/zsh/site-functions/_mender-app", "usr/share/fish/vendor_completions.d/app-gen.fish", "usr/share/fish/vendor_completions.d/mender-app.fish"},
			none: []string{kube, "etc/mender/mender-app-k8s.conf", "usr/share/man/man8/mender-app-k8s.8"},
		},
		"device": {
			args: []string{"install-device", "FROM=" + full},
			want: []string{app, compose, client, script, "etc/mender/mender-app-docker-compose.conf", "usr/share/man/man8/mender-app.8", "usr/share/man/man8/mender-app-module.8", "usr/share/man/man8/mender-app-docker-compose.8", "usr/share/man/man5/mender-app.conf.5", "usr/share/man/man5/mender-app-docker-compose.conf.5"},
			none: []string{second, face, kube, host, test, "usr/share/man/man1/app-conformance.1", "usr/share/man/man5/mender-app-k8s.conf.5", "usr/share/man/man1/app-gen.1", "etc/mender/mender-app-k8s.conf"},
		},
		"host": {
			args: []string{"install-host", "FROM=" + full},
			want: []string{host, test, "usr/share/man/man1/app-conformance.1", "usr/share/zsh/site-functions/_app-conformance", "usr/share/man/man1/app-gen.1", "usr/share/zsh/site-functions/_app-gen", "usr/share/fish/vendor_completions.d/app-gen.fish"},
			none: []string{app, client, "usr/share/zsh/site-functions/_mender-app", script, "etc/mender/mender-app.conf", "usr/lib/systemd/system/mender-app-resume.service", "usr/share/man/man8/mender-app.8"},
		},
		"k8s when asked": {
			args: []string{"install", "FROM=" + full, "PROGRAMS=app k8s mender-app"},
			want: []string{app, kube, client, "etc/mender/mender-app-k8s.conf", "usr/share/man/man8/mender-app-k8s.8"},
			none: []string{compose, host, test, "etc/mender/mender-app-docker-compose.conf"},
		},
		"for the artifacts of mender-container-modules and for Mender Orchestrator": {
			args: []string{"install-device", "FROM=" + full, "COMPOSE_MODULE=yes", "ORCHESTRATOR=yes"},
			want: []string{app, second, face},
		},
		"sub-modules that are scripts": {
			args: []string{"install-device", "FROM=" + full, "SUBMODULES=deb systemd python executable"},
			want: []string{app, compose, scripts + "deb", scripts + "systemd", scripts + "python", scripts + "executable"},
		},
		"one of them": {
			args: []string{"install-device", "FROM=" + full, "SUBMODULES=systemd"},
			want: []string{app, scripts + "systemd"},
			none: []string{scripts + "deb", scripts + "python"},
		},
		"sub-module unknown": {args: []string{"install", "FROM=" + full, "SUBMODULES=deb shop"}, said: "there is no sub-module shop"},
		"sub-modules alone": {
			args: []string{"install", "FROM=" + full, "PROGRAMS=", "SUBMODULES=deb systemd python executable"},
			want: []string{"usr/share/mender/app-modules/v1/systemd", "usr/share/doc/mender-app/LICENSE"},
			none: []string{app, compose, kube, client, host, test, script, "etc/mender/mender-app.conf"},
		},
		"an interface without app": {args: []string{"install", "FROM=" + full, "PROGRAMS=mender-app", "ORCHESTRATOR=yes"}, said: "COMPOSE_MODULE and ORCHESTRATOR need the program app"},
		"no directory":             {args: []string{"install", "FROM=/nonexist"}, said: "there is no directory /nonexist"},
		"program missing":          {args: []string{"install-device", "FROM=" + part}, said: part + " has no docker-compose"},
		"program unknown":          {args: []string{"install", "FROM=" + full, "PROGRAMS=app shop"}, said: "there is no program shop"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dest := t.TempDir()
			cmd := exec.Command("make", append([]string{"-s", "-C", "..", "DESTDIR=" + dest}, c.args...)...)
			for _, v := range os.Environ() {
				if !strings.HasPrefix(v, "MAKE") && !strings.HasPrefix(v, "MFLAGS") && !strings.HasPrefix(v, "PROGRAMS=") {
					cmd.Env = append(cmd.Env, v)
				}
			}
			out, err := cmd.CombinedOutput()
			if c.said != "" {
				require.Error(t, err)
				require.Contains(t, string(out), "install: "+c.said)
				require.NoError(t, filepath.WalkDir(dest, func(path string, e fs.DirEntry, err error) error {
					require.True(t, e.IsDir(), path)
					return err
				}))
				return
			}
			require.NoError(t, err, "%s", out)
			for _, f := range c.want {
				require.FileExists(t, filepath.Join(dest, f))
			}
			for _, f := range c.none {
				require.NoFileExists(t, filepath.Join(dest, f))
			}
		})
	}
}
