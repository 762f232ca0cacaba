package main

import (
	"fmt"
	"maps"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBench measures what the calls of the sub-module cost on a real node, for
// docs/BENCHMARKS.md: `make bench`.
func TestBench(t *testing.T) {
	if os.Getenv("MENDER_APP_BENCH") == "" {
		t.Skip("measures for docs/BENCHMARKS.md: set MENDER_APP_BENCH")
	}
	d := newDevice(t)
	image := func(version string, noise []byte) string {
		files := map[string][]byte{"usr/lib/noise": noise, "etc/version": []byte(version)}
		return "docker-archive:" + d.Image(t, d.ref(version), files, "VERSION="+version).File(t)
	}
	noise := make([]byte, 64<<20)
	_, _ = rand.New(rand.NewSource(1)).Read(noise)
	v1 := image("1", noise)
	copy(noise[32<<20:], "another program in the middle of it")
	v2 := image("2", noise)
	var objects []string
	for i := range 200 {
		objects = append(objects, fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c%d}\ndata: {k: \"VERSION\"}\n", i))
	}
	dir := filepath.Join(d.dir, "store", d.app, "manifests")
	for _, step := range []struct {
		what string
		do   func()
	}{
		{"70 MB image, whole", func() { d.installs(d.artifact("1", manifests("1"), "--image="+v1)) }},
		{"the same as a deep delta", func() {
			d.installs(d.artifact("2", manifests("2"), "--deep-delta", "--image="+v1+","+v2))
		}},
		{"200 objects more", func() { d.installs(d.artifact("4", manifests("4", objects...), "--image="+d.image("4"))) }},
		{"200 objects changed", func() { d.installs(d.artifact("5", manifests("5", objects...), "--image="+d.image("5"))) }},
		{"by hand", func() {
			for _, args := range [][]string{{"HEALTHY", d.app}, {"STOP", d.app, dir}, {"START", d.app, dir}, {"PURGE", d.app}} {
				require.NoError(t, exec.Command("sync").Run())
				d.byHand(append([]string{d.submodule()}, args...)...)
			}
		}},
	} {
		stop := calls(d.submodule())
		step.do()
		all := stop()
		for _, verb := range slices.Sorted(maps.Keys(all)) {
			if c := all[verb]; c.cpu > 0 && verb != "PROTOCOL" && verb != "REQS" {
				fmt.Printf("| %s | %s | %s |\n", step.what, verb, c)
			}
		}
	}
}
