package vcdiff

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// encode runs the real xdelta3.
func encode(t testing.TB, old, target, delta string, args ...string) {
	t.Helper()
	args = append(append([]string{"-e", "-f"}, args...), "-s", old, target, delta)
	out, err := exec.Command(xdelta3(t), args...).CombinedOutput()
	require.NoError(t, err, "xdelta3 %v: %s", args, out)
}

// pairs of real files, at most limit bytes each.
func pairs(t testing.TB, limit int64) map[string][2]string {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, parts ...string) string {
		path := filepath.Join(dir, name)
		f, err := os.Create(path)
		require.NoError(t, err)
		for _, p := range parts {
			src, err := os.Open(p)
			require.NoError(t, err)
			_, err = io.Copy(f, io.LimitReader(src, limit/int64(len(parts))))
			require.NoError(t, err)
			require.NoError(t, src.Close())
		}
		require.NoError(t, f.Close())
		return path
	}
	tarOf := func(name string, args ...string) string {
		path := filepath.Join(dir, name)
		args = append([]string{"--sort=name", "--mtime=@0", "-cf", path, "-C", "/"}, args...)
		out, err := exec.Command("tar", args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return path
	}
	// Two programs that share much, code against code, and layers in which
	// files are gone, moved and added.
	var programs []string
	for _, p := range []string{"/usr/bin/bash", "/usr/bin/tar", "/usr/bin/openssl", "/usr/bin/find"} {
		if _, err := os.Stat(p); err == nil {
			programs = append(programs, p)
		}
	}
	if len(programs) < 3 {
		skip(t, "three of bash, tar, openssl, find")
	}
	empty := write("empty")
	return map[string][2]string{
		"program": {programs[0], write("program", programs[1], programs[0])},
		"moved":   {write("m1", programs...), write("m2", programs[2], programs[0], programs[1])},
		"layer": {write("l1", tarOf("t1", "usr/share/doc", "usr/share/perl5")),
			write("l2", tarOf("t2", "usr/share/perl5", "usr/share/doc", "usr/lib/os-release"))},
		"large source": {tarOf("t3", "usr/share/doc", "usr/bin", "usr/sbin"), write("s", programs[1])},
		"from nothing": {empty, programs[0]},
		"to nothing":   {programs[0], empty},
	}
}

// check decodes a delta and compares with the target.
func check(t testing.TB, old, target, delta string, opts Options) {
	t.Helper()
	src, err := os.Open(old)
	require.NoError(t, err)
	defer src.Close()
	st, err := src.Stat()
	require.NoError(t, err)
	in, err := os.Open(delta)
	require.NoError(t, err)
	defer in.Close()
	want, err := os.Open(target)
	require.NoError(t, err)
	defer want.Close()

	info, err := Scan(in)
	require.NoError(t, err)
	require.LessOrEqual(t, info.SourceEnd, st.Size())
	_, err = in.Seek(0, io.SeekStart)
	require.NoError(t, err)

	r, err := NewReader(context.Background(), src, st.Size(), in, opts)
	require.NoError(t, err)
	defer r.Close()
	got := sha256.New()
	n, err := r.WriteTo(got)
	require.NoError(t, err)
	require.Equal(t, info.Target, n)
	sum := sha256.New()
	_, err = io.Copy(sum, want)
	require.NoError(t, err)
	require.True(t, bytes.Equal(sum.Sum(nil), got.Sum(nil)), "target differs")
}

func TestXdelta3(t *testing.T) {
	opts := Options{Xdelta3: xdelta3(t)}
	delta := filepath.Join(t.TempDir(), "delta")
	limit := int64(12 << 20)
	if testing.Short() {
		limit = 1 << 19
	}
	for name, p := range pairs(t, limit) {
		for _, args := range []string{
			"", "-S none", "-S djw", "-S fgk", "-S lzma", "-n", "-0", "-9", "-N",
			"-W 16384", "-W 1048576", "-W 16777216", "-B 524288 -W 65536", "-A=x", "-I 0 -P 16384",
		} {
			if testing.Short() && args != "" && args != "-S none" {
				continue
			}
			if name == "large source" && strings.HasPrefix(args, "-9") {
				continue // takes long and shows nothing new
			}
			t.Run(name+" "+args, func(t *testing.T) {
				encode(t, p[0], p[1], delta, strings.Fields(args)...)
				check(t, p[0], p[1], delta, opts)
			})
		}
	}
}
