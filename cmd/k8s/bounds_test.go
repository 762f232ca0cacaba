package main

import (
	"bytes"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/bed/kube"
)

// maxResident is what the sub-module may ever take on amd64, in KiB.
const maxResident = 96 << 10

// TestBadManifests: whatever a release is made of, the sub-module says what is
// wrong with it in one line, within its bounds.
func TestBadManifests(t *testing.T) {
	t.Parallel()
	node := kube.Start(t) // the kinds are the cluster's
	programs, err := bed.Programs()
	require.NoError(t, err)
	configMap := func(name, data string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\ndata: {k: \"" + data + "\"}\n"
	}
	many := func(n int, data string) []byte {
		var b bytes.Buffer
		for i := range n {
			b.WriteString("---\n" + configMap(fmt.Sprint("c", i), data))
		}
		return b.Bytes()
	}
	// Text that no compression makes small.
	noise := make([]byte, 1<<20)
	for i, r := 0, rand.New(rand.NewSource(1)); i < len(noise); i++ {
		noise[i] = 'a' + byte(r.Intn(26))
	}
	anchors := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\nx:\n- &a [x, x, x, x, x, x, x, x, x, x]\n"
	for i := 'b'; i < 'k'; i++ {
		anchors += fmt.Sprintf("- &%c [%s]\n", i, strings.TrimSuffix(strings.Repeat("*"+string(i-1)+", ", 10), ", "))
	}
	unknown := []byte("---\napiVersion: x.example/v1\nkind: Thing\nmetadata: {name: last}\n")
	for name, c := range map[string]struct {
		files map[string][]byte
		want  string
	}{
		"50 MB in one file": {map[string][]byte{"a.yaml": many(50, string(noise))}, "a.yaml: larger than 16 MiB"},
		"14 MB in one line": {map[string][]byte{"a.yaml": []byte(configMap("x", strings.Repeat(string(noise), 14)))}, "a.yaml:4: a line of more than 2 MiB"},
		"50 MB of JSON":     {map[string][]byte{"a.json": []byte(`{"a":"` + strings.Repeat(string(noise), 50) + `"}`)}, "a.json: larger than 16 MiB"},
		"50 MB in files": {func() map[string][]byte {
			m := map[string][]byte{}
			for i := range 5 {
				m[fmt.Sprintf("%d.yaml", i)] = bytes.ReplaceAll(many(10, string(noise)), []byte("name: c"), fmt.Appendf(nil, "name: c%d-", i))
			}
			return m
		}(), "the manifests are larger than 16 MiB together"},
		"as much JSON":          {map[string][]byte{"a.json": fmt.Appendf(nil, `{"a":"%s"}`, strings.Repeat(string(noise), 15))}, "a.json: a document of more than 2 MiB"},
		"as much as is read":    {map[string][]byte{"a.yaml": append(many(14, string(noise)), unknown...)}, "a.yaml:72: Thing/last: this cluster has no kind Thing"},
		"10000 documents":       {map[string][]byte{"a.yaml": append(many(9999, "v"), unknown...)}, "a.yaml:49997: Thing/last: this cluster has no kind Thing"},
		"10001 documents":       {map[string][]byte{"a.yaml": many(10001, "v")}, "a.yaml:50002: more than 10000 objects"},
		"anchors that explode":  {map[string][]byte{"a.yaml": []byte(anchors)}, "a.yaml:1: its anchors and aliases grow beyond all bounds"},
		"more items than lines": {map[string][]byte{"a.yaml": []byte("x: [" + strings.Repeat("1,", 1<<19) + "1]")}, "a.yaml:1: more than 200000 lines and items in one document"},
		"deeper than anything":  {map[string][]byte{"a.yaml": []byte(strings.Repeat("[", 199_999))}, "a.yaml:1: "},
	} {
		t.Run(name, func(t *testing.T) {
			dir, conf := t.TempDir(), t.TempDir()
			for file, data := range c.files {
				require.NoError(t, os.WriteFile(filepath.Join(dir, file), data, 0o644))
			}
			cmd := exec.Command(filepath.Join(programs, "k8s"), "ROLLOUT", "bounds", dir)
			cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "MENDER_APP_CONFIG_DIR=" + conf, "KUBECONFIG=" + node.Kubeconfig(), "CONTAINERD_ADDRESS=" + node.Containerd()}
			out, took, err := measure(cmd)
			require.Error(t, err)
			require.Equal(t, 5, cmd.ProcessState.ExitCode(), out)
			require.Contains(t, out, c.want)
			require.Less(t, took.peak, int64(maxResident), "KiB resident")
			t.Logf("%d MiB resident, %s: %s", took.peak>>10, took.wall, strings.TrimSpace(out))
		})
	}
}

// TestManyObjects holds what 200 objects cost the sub-module itself, as they are
// made, changed and looked at: processor time, which does not depend on what
// else the machine does, and memory. The wall time is in docs/BENCHMARKS.md.
func TestManyObjects(t *testing.T) {
	t.Parallel()
	d := newDevice(t)
	for i, version := range []string{"1", "2"} {
		var objects []string
		for i := range 200 {
			objects = append(objects, fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c%d}\ndata: {k: %q}\n", i, version))
		}
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "app.yaml"), []byte(strings.Join(objects, "---\n")), 0o644))
		verbs := [][]string{{"ROLLOUT", d.app, dir}, {"HEALTHY", d.app}}
		if i > 0 {
			verbs = append(verbs, []string{"STOP", d.app, dir}, []string{"START", d.app, dir}, []string{"PURGE", d.app})
		}
		for _, args := range verbs {
			out, took, err := measure(d.command(append([]string{d.submodule()}, args...)...))
			require.NoError(t, err, "%s", out)
			require.Less(t, took.cpu, 5*time.Second, "of %s's own", args[0])
			require.Less(t, took.peak, int64(maxResident), "KiB resident in %s", args[0])
			t.Logf("%s: %s s, %s s of its own, %d MiB resident", args[0], fmt.Sprintf("%.2f", took.wall.Seconds()), fmt.Sprintf("%.2f", took.cpu.Seconds()), took.peak>>10)
		}
	}
}

// TestImageMemory holds the memory of LOAD, whole and by delta, and of SAVE.
func TestImageMemory(t *testing.T) {
	t.Parallel()
	d := newDevice(t)
	noise := make([]byte, 24<<20)
	_, _ = rand.New(rand.NewSource(2)).Read(noise)
	image := func(version string) string {
		files := map[string][]byte{"usr/lib/noise": noise, "etc/version": []byte(version + d.ns)}
		return d.Image(t, d.ref(version), files, "VERSION="+version).File(t)
	}
	v1 := image("1")
	copy(noise[12<<20:], "another program in the middle of it")
	v2 := image("2")
	delta := filepath.Join(t.TempDir(), "delta")
	out, err := exec.Command(filepath.Join(d.dir, "bin/app-gen"), "delta", "encode", v1, v2, "-o", delta).CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Cleanup(func() { _ = d.command(d.submodule(), "DELETE", d.ref("2"), d.app).Run() })
	for _, c := range []struct {
		what, option string
		args         []string
	}{
		{"whole", "", []string{"LOAD", d.app, d.ref("1"), v1}},
		{"as a delta", "OPTIONS=deep_delta", []string{"LOAD", d.app, d.ref("2"), delta, d.ref("1")}},
		{"", "", []string{"SAVE", d.app, d.ref("2"), filepath.Join(t.TempDir(), "saved")}},
		{"", "", []string{"DELETE", d.ref("1"), d.app}},
	} {
		cmd := d.command(append([]string{d.submodule()}, c.args...)...)
		cmd.Env = append(cmd.Env, c.option)
		out, took, err := measure(cmd)
		require.NoError(t, err, "%s", out)
		require.Less(t, took.peak, int64(maxResident), "KiB resident in %s %s", c.args[0], c.what)
		t.Logf("%s %s: %d MiB resident", c.args[0], c.what, took.peak>>10)
	}
}
