package image

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInOwnDomain(t *testing.T) {
	for _, url := range []string{
		"mender-app.local/shop:1", "mender-app.local/shop", "mender-app.local:443/shop:1", "Mender-App.Local/shop:1",
		"docker.io/mender-app.local/shop:1", "index.docker.io/mender-app.local/shop:1", "mender-app.local/shop@sha256:00",
	} {
		require.True(t, InOwnDomain(url), url)
	}
	for _, url := range []string{"mender-app.local", "mender-app.local:1", "web:1", "mender-app.localhost/shop:1", "x.mender-app.local/shop:1", "local/mender-app.local:1", ""} {
		require.False(t, InOwnDomain(url), url)
	}
}
