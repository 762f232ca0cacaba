package image

import (
	"testing"

	"github.com/stretchr/testify/require"
)

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
