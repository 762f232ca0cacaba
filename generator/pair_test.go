package generator

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A comma separates CURRENT and NEW, unless a file has it in its name.
func TestCommas(t *testing.T) {
	dir := t.TempDir()
	old, next := filepath.Join(dir, "web,1.tar"), filepath.Join(dir, "web,2.tar")
	for _, f := range []string{old, next} {
		require.NoError(t, os.WriteFile(f, nil, 0o600))
	}
	p, err := ParsePair("docker-archive:" + next + "=web:2")
	require.NoError(t, err)
	require.Nil(t, p.Base)
	require.Equal(t, next, p.New.Path)
	require.Equal(t, "web:2", p.New.URL)
	p, err = ParsePair("docker-archive:" + old + ",docker-archive:" + next)
	require.NoError(t, err)
	require.Equal(t, old, p.Base.Path)
	require.Equal(t, next, p.New.Path)
	p, err = ParsePair("mender:" + old + "#shop/web:1,host/shop/web:2")
	require.NoError(t, err)
	require.Equal(t, "shop/web:1", p.Base.Ref)
	require.Equal(t, "host/shop/web:2", p.New.Ref)
	p, err = ParsePair("web:1,web:2")
	require.NoError(t, err)
	require.Equal(t, "web:1", p.Base.Ref)
	require.Equal(t, "web:2", p.New.Ref)
}
