package main

import (
	"archive/tar"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The test's program is the small process between the measurement and the tool, too.
func TestMain(m *testing.M) {
	if os.Getenv(measuring) != "" {
		os.Exit(measureMain())
	}
	os.Exit(m.Run())
}

// image writes a docker-archive with these layers.
func image(t *testing.T, layers ...string) string {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "image.tar"))
	require.NoError(t, err)
	w := tar.NewWriter(f)
	manifest := ""
	add := func(name, text string) {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}))
		_, err := w.Write([]byte(text))
		require.NoError(t, err)
	}
	add("config.json", "{}")
	for i, l := range layers {
		add(fmt.Sprint(i), l)
		manifest += fmt.Sprintf(`,"%d"`, i)
	}
	add("manifest.json", `[{"Config":"config.json","Layers":[`+manifest[1:]+`]}]`)
	require.NoError(t, w.Close())
	require.NoError(t, f.Close())
	return f.Name()
}

// A tool that works has figures. One that fails, makes another image or never ends has a
// row that says so.
func TestTools(t *testing.T) {
	old, next := image(t, "base", "app 1"), image(t, "base", "app 2")
	other := image(t, "base")
	for name, c := range map[string]struct{ script, note string }{
		"works":    {`case $1 in encode) cp "$3" "$4"; i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done;; decode) cp "$3" "$4";; esac`, ""},
		"fails":    {`echo "no memory" >&2; exit 3`, "encode: exit status 1: exit status 3"},
		"damages":  {`case $1 in encode) cp "$3" "$4";; decode) cp "$2" "$4";; esac`, "decode: another image: config or layer 2 differs"},
		"forgets":  {`case $1 in encode) cp "$3" "$4";; decode) cp "` + other + `" "$4";; esac`, "decode: another image: config or layer 2 differs"},
		"too slow": {`sleep 60 & wait`, "encode: takes longer than 300ms"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "tool")
			require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+c.script+"\n"), 0o755))
			m := &measurement{ctx: t.Context(), temp: t.TempDir(), runs: 2, limit: time.Minute, old: old, new: next}
			if name == "too slow" {
				m.limit = 300 * time.Millisecond
			}
			r, err := m.tool(tool{"tool", path, "1"})
			require.NoError(t, err)
			require.Equal(t, c.note, r.note)
			if c.note == "" {
				info, err := os.Stat(next)
				require.NoError(t, err)
				require.Equal(t, info.Size(), r.bytes)
				require.Positive(t, r.enc.cpu)
				require.Greater(t, r.enc.cpu, r.dec.cpu)
				require.Positive(t, r.dec.rss)
			}
		})
	}
}

// Results survive a run: a row is kept while the tool's version is the same.
func TestResults(t *testing.T) {
	file := filepath.Join(t.TempDir(), "benchmark.csv")
	all, err := readResults(file)
	require.NoError(t, err)
	good := result{pair: "b", kind: "moved", platform: "linux/arm64", tool: "x", version: "1", bytes: 12, enc: cost{1.5, 2048}, dec: cost{0.25, 1024}}
	failed := result{pair: "a", kind: "moved, twice", platform: "linux/arm64", tool: "x", version: "1", note: "encode: \"no\", it said"}
	all.put(good)
	all.put(failed)
	require.NoError(t, all.write(file, map[string]int{"a": 1, "b": 0}))

	again, err := readResults(file)
	require.NoError(t, err)
	require.Equal(t, all, again)
	require.True(t, again.has("b", "x", "1"))
	require.True(t, again.has("a", "x", "1"))
	require.False(t, again.has("b", "x", "2"))
	require.False(t, again.has("c", "x", "1"))

	require.NoError(t, os.WriteFile(file, []byte("pair,tool\na,b\n"), 0o644))
	_, err = readResults(file)
	require.ErrorContains(t, err, "other columns")
}

// A tool that does not tell its version is not installed.
func TestFindTools(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "good"), []byte("#!/bin/sh\necho 1.2\n"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "missing"), []byte("#!/bin/sh\nexit 127\n"), 0o755))
	list, err := findTools(t.Context(), dir, "")
	require.NoError(t, err)
	require.Equal(t, []tool{{"good", filepath.Join(dir, "good"), "1.2"}}, list)
	_, err = findTools(t.Context(), dir, "missing")
	require.Error(t, err)
}
