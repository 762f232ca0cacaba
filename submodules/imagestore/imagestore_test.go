package imagestore

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
)

func TestOwnRef(t *testing.T) {
	d := digest.Of([]byte("x"))
	require.Equal(t, "mender-app.local/shop:"+d.Hex(), OwnRef("shop", d))
	seen := map[string]string{}
	for _, app := range []string{"shop", "Shop", "SHOP", "my app", "my-app", "my--app", "my_app", "my__app", "my___app", "a.b", "a..b", "x-1", "x-shop", "ü", strings.Repeat("Z", 128)} {
		repo := OwnRepository(app)
		require.Empty(t, seen[repo], "%s and %s share %s", app, seen[repo], repo)
		seen[repo] = app
		require.True(t, pathComponent().MatchString(strings.TrimPrefix(repo, OwnDomain+"/")))
		got, ok := ParseOwnRef(app, OwnRef(app, d))
		require.True(t, ok)
		require.Equal(t, d, got)
		got, ok = OwnConfig(OwnRef(app, d))
		require.True(t, ok)
		require.Equal(t, d, got)
		require.True(t, IsOwnRef(OwnRef(app, d)))
	}
	_, ok := ParseOwnRef("shop", "mender-app.local/shop:latest")
	require.False(t, ok)
	_, ok = ParseOwnRef("shop", OwnRef("shop2", d))
	require.False(t, ok)
	require.False(t, IsOwnRef("shop:1"))
	_, ok = OwnConfig("shop:" + d.Hex())
	require.False(t, ok)
}
