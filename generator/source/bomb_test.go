package source

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/generator/gentest"
)

// A layer that unpacks to a thousand times its size leaves a part of the disk to others.
func TestLayerThatFillsTheDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skip("needs root: ", err)
	}
	defer func() { require.NoError(t, unix.Unmount(dir, 0)) }()
	img := gentest.Image(t, "linux/amd64", gentest.Files{"a": strings.Repeat("x", 16<<20)})
	f, err := open(t, opener(t, "linux/amd64"), "oci:"+gentest.Layout(t, t.TempDir(), "web:1", img))
	require.NoError(t, err)
	_, err = Keep(t.Context(), dir, f.Image, func(int64) {})
	require.ErrorIs(t, err, unix.ENOSPC)
	var disk unix.Statfs_t
	require.NoError(t, unix.Statfs(dir, &disk))
	require.Positive(t, disk.Bavail)
	require.GreaterOrEqual(t, int64(disk.Bavail)*disk.Bsize, int64(4<<20/16-64<<10))
}
