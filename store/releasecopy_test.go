package store_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/store"
)

// copied makes a release with files of each kind, and its copy.
func copied(t *testing.T) (a *store.App, id, dir string) {
	t.Helper()
	a, err := newStore(t).Create("web")
	require.NoError(t, err)
	id = putRelease(t, a, "v1")
	dir = filepath.Dir(a.ReleaseManifests(id))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "manifests/conf/empty"), 0o755))
	for name, text := range map[string]string{"compose.yaml": "services: {}\n", "conf/a": strings.Repeat("a", 100_000), "conf/none": ""} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "manifests", name), []byte(text), 0o644))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "manifests/hook"), []byte("#!/bin/sh\n"), 0o755))
	require.NoError(t, os.Symlink("conf/a", filepath.Join(dir, "manifests/link")))
	a.Current = id
	require.NoError(t, a.Point(id))
	require.NoError(t, a.Save())
	require.NoError(t, a.CopyRelease(id))
	require.NoError(t, a.SyncRelease(id))
	return a, id, dir
}

// files are the paths, modes and contents below a directory, without changed/.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		require.NoError(t, err)
		rel, err := filepath.Rel(dir, path)
		require.NoError(t, err)
		if rel == "changed" {
			return filepath.SkipDir
		}
		info, err := d.Info()
		require.NoError(t, err)
		text := info.Mode().String()
		switch {
		case info.Mode().IsRegular():
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			text += " " + string(content)
		case info.Mode()&os.ModeSymlink != 0:
			to, err := os.Readlink(path)
			require.NoError(t, err)
			text += " " + to
		}
		all[rel] = text
		return nil
	}))
	return all
}

func TestMakeWhole(t *testing.T) {
	t.Parallel()
	write := func(name, text string) func(string) error {
		return func(dir string) error { return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644) }
	}
	remove := func(name string) func(string) error {
		return func(dir string) error { return os.RemoveAll(filepath.Join(dir, name)) }
	}
	both := func(list ...func(string) error) func(string) error {
		return func(dir string) error {
			for _, f := range list {
				if err := f(dir); err != nil {
					return err
				}
			}
			return nil
		}
	}
	for name, c := range map[string]struct {
		damage  func(dir string) error
		changed bool              // by somebody
		kept    map[string]string // in changed/
	}{
		"nothing":            {damage: func(string) error { return nil }},
		"a file":             {damage: remove("manifests/compose.yaml")},
		"a hollow file":      {damage: write("manifests/compose.yaml", "")},
		"zeros":              {damage: write("manifests/conf/a", strings.Repeat("\x00", 100_000)), kept: map[string]string{"manifests/conf/a": strings.Repeat("\x00", 100_000)}},
		"zeros at its end":   {damage: write("manifests/conf/a", strings.Repeat("a", 40_000)+strings.Repeat("\x00", 60_000)), kept: map[string]string{}},
		"a longer file":      {damage: write("manifests/conf/a", strings.Repeat("a", 200_000)), changed: true, kept: map[string]string{"manifests/conf/a": strings.Repeat("a", 200_000)}},
		"a shorter file":     {damage: write("manifests/conf/a", "aaa"), changed: true, kept: map[string]string{"manifests/conf/a": "aaa"}},
		"one byte":           {damage: write("manifests/conf/a", strings.Repeat("a", 99_999)+"b"), changed: true, kept: map[string]string{"manifests/conf/a": strings.Repeat("a", 99_999) + "b"}},
		"an empty file":      {damage: write("manifests/conf/none", "x"), changed: true, kept: map[string]string{"manifests/conf/none": "x"}},
		"a mode":             {damage: func(dir string) error { return os.Chmod(filepath.Join(dir, "manifests/hook"), 0o600) }, changed: true},
		"another link":       {damage: both(remove("manifests/link"), func(dir string) error { return os.Symlink("conf/none", filepath.Join(dir, "manifests/link")) }), changed: true},
		"a directory":        {damage: remove("manifests/conf")},
		"a link":             {damage: remove("manifests/link")},
		"all manifests":      {damage: remove("manifests")},
		"the record":         {damage: remove("release.json")},
		"a damaged record":   {damage: write("release.json", "{"), kept: map[string]string{"release.json": "{"}},
		"everything":         {damage: both(remove("manifests"), remove("release.json"))},
		"a file for a link":  {damage: both(remove("manifests/link"), write("manifests/link", "x")), kept: map[string]string{"manifests/link": "x"}},
		"a directory for it": {damage: both(remove("manifests/compose.yaml"), func(dir string) error { return os.Mkdir(filepath.Join(dir, "manifests/compose.yaml"), 0o755) })},
		"a way out": {damage: both(remove("manifests/conf"), func(dir string) error {
			return os.Symlink(filepath.Dir(filepath.Dir(dir)), filepath.Join(dir, "manifests/conf"))
		})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, id, dir := copied(t)
			before := files(t, dir)
			require.NoError(t, c.damage(dir))
			r, err := a.Release(id) // it needs nothing to be put back
			require.NoError(t, err)
			require.True(t, r.Complete)

			mended, err := a.MakeWhole(id, false)
			require.NoError(t, err)
			require.Equal(t, name == "nothing" || c.changed, len(mended) == 0)
			if c.changed {
				require.NotEqual(t, before, files(t, dir))
				mended, err = a.MakeWhole(id, true)
				require.NoError(t, err)
				require.Len(t, mended, 1)
			}
			require.Equal(t, before, files(t, dir))
			for path, text := range c.kept {
				content, err := os.ReadFile(filepath.Join(dir, "changed", path))
				require.NoError(t, err)
				require.Equal(t, text, string(content))
			}
			mended, err = a.MakeWhole(id, true)
			require.NoError(t, err)
			require.Empty(t, mended, "it is whole")
		})
	}
}

// What is beside the files of a release stays.
func TestMakeWholeLeavesOthers(t *testing.T) {
	a, id, dir := copied(t)
	other := filepath.Join(dir, "manifests/conf/other")
	require.NoError(t, os.WriteFile(other, []byte("x"), 0o600))
	require.NoError(t, os.Remove(filepath.Join(dir, "manifests/conf/a")))
	mended, err := a.MakeWhole(id, true)
	require.NoError(t, err)
	require.Equal(t, []store.Mended{{Path: "manifests/conf/a"}}, mended)
	require.FileExists(t, other)
}

// A damaged copy changes nothing, wherever it is damaged.
func TestMakeWholeFromADamagedCopy(t *testing.T) {
	a, id, dir := copied(t)
	path := filepath.Join(dir, "copy.tar.gz")
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(dir, "manifests/compose.yaml")))
	before := files(t, dir)
	for i := range good {
		for _, bad := range [][]byte{good[:i], append(append(append([]byte{}, good[:i]...), good[i]^0x20), good[i+1:]...)} {
			require.NoError(t, os.WriteFile(path, bad, 0o600))
			mended, err := a.MakeWhole(id, true)
			if err == nil { // a byte that says nothing, such as the system that packed it
				require.Equal(t, []store.Mended{{Path: "manifests/compose.yaml"}}, mended, i)
				require.NoError(t, os.Remove(filepath.Join(dir, "manifests/compose.yaml")))
				continue
			}
			var corrupt *store.CorruptError
			require.ErrorAs(t, err, &corrupt)
			require.Empty(t, mended)
			require.NoError(t, os.WriteFile(path, good, 0o600))
			require.Equal(t, before, files(t, dir), i)
		}
	}
	// Without a copy there is nothing to put back.
	require.NoError(t, os.Remove(path))
	mended, err := a.MakeWhole(id, true)
	require.NoError(t, err)
	require.Empty(t, mended)
}

func TestPutLink(t *testing.T) {
	for name, damage := range map[string]func(link string) error{
		"gone": os.Remove,
		"to nothing": func(link string) error {
			return replace(link, func() error { return os.Symlink("releases/7-x/manifests", link) })
		},
		"of a directory": func(link string) error { return replace(link, func() error { return os.Mkdir(link, 0o755) }) },
		"of a file":      func(link string) error { return replace(link, func() error { return os.WriteFile(link, nil, 0o644) }) },
	} {
		t.Run(name, func(t *testing.T) {
			a, id, _ := copied(t)
			put, err := a.PutLink(id)
			require.NoError(t, err)
			require.False(t, put)
			require.NoError(t, damage(a.ManifestsDir()))
			put, err = a.PutLink(id)
			require.NoError(t, err)
			require.True(t, put)
			require.Equal(t, id, a.Pointed())
			require.FileExists(t, filepath.Join(a.ManifestsDir(), "compose.yaml"))
		})
	}
}

func replace(path string, by func() error) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	return by()
}
