package imagestore

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules"
)

func TestNewLoadRequest(t *testing.T) {
	d := func(c string) image.Digest { return image.Digest("sha256:" + strings.Repeat(c, 64)) }
	component := submodules.Component{
		Type: "image", URL: "web:2@" + d("1").String(), Digest: d("2"), DiffIDs: []image.Digest{d("3")},
		Bases:     []submodules.Component{{URL: "web:1", Digest: d("4"), DiffIDs: []image.Digest{d("5")}}},
		Announced: &submodules.Announced{Format: "delta"},
	}
	q, err := NewLoadRequest(submodules.LoadRequest{Request: submodules.Request{App: "shop", Platform: "linux/arm/v7", Components: []submodules.Component{component}},
		URL: component.URL, Stage: true, DeepDelta: true, Distrust: true})
	require.NoError(t, err)
	require.Equal(t, Identity{Config: d("2"), DiffIDs: []image.Digest{d("3")}}, q.Want, "the release's component, not the digest of the URL")
	require.Equal(t, []image.Digest{d("5")}, q.Base)
	require.Same(t, component.Announced, q.Announced)
	require.True(t, q.Stage && q.Deep && q.Distrust)
	require.Equal(t, "web:2", q.tag())

	q, err = NewLoadRequest(submodules.LoadRequest{Request: submodules.Request{App: "shop"}, URL: "web@" + d("1").String()})
	require.NoError(t, err)
	require.Equal(t, d("1"), q.Want.Config)
	require.Empty(t, q.tag(), "a name that pins a digest moves no tag")

	for url, want := range map[string]error{
		"mender-app.local/shop:1":           submodules.ErrContent, // another application's own reference
		"docker.io/mender-app.local/shop:1": submodules.ErrContent,
		"Mender-App.Local:443/shop:1":       submodules.ErrContent,
		"web@sha256:12":                     submodules.ErrUsage,
		"web:1@sha512:" + d("1").Hex():      submodules.ErrUsage,
		"web@md5:d41d8cd98f00b204":          submodules.ErrUsage,
	} {
		_, err := NewLoadRequest(submodules.LoadRequest{Request: submodules.Request{App: "depot"}, URL: url})
		require.ErrorIs(t, err, want, url)
	}
	_, err = NewLoadRequest(submodules.LoadRequest{Request: submodules.Request{App: "depot"}, URL: "web:2", CurrentURL: "web:1@sha512:12"})
	require.ErrorIs(t, err, submodules.ErrUsage)
	require.ErrorContains(t, err, "component web:1@sha512:12: its sum must be a SHA-256")
}
