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
		require.True(t, pathComponent.MatchString(strings.TrimPrefix(repo, OwnDomain+"/")))
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

func TestFamiliarRef(t *testing.T) {
	for ref, want := range map[string]string{
		"web": "web:latest", "web:1": "web:1", "docker.io/library/web:1": "web:1", "library/web": "web:latest",
		"docker.io/me/web:1": "me/web:1", "host:5000/web": "host:5000/web:latest", "host:5000/web:2": "host:5000/web:2",
		"web@sha256:ab": "web@sha256:ab", "docker.io/library/web:1@sha256:ab": "web:1@sha256:ab",
	} {
		require.Equal(t, want, FamiliarRef(ref))
	}
	require.True(t, SameRef("web", "docker.io/library/web:latest"))
	require.False(t, SameRef("web:1", "web:2"))
}
