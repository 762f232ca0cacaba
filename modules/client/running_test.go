package client_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/modules/client"
)

func TestRecordFollowsWhatRuns(t *testing.T) {
	running := func(artifact, version string) client.Running {
		return client.Running{ArtifactName: artifact, Provides: map[string]string{artifact[:4] + ".version": version}}
	}
	both := map[string]client.Running{"shop": running("shop-2", "2"), "till": running("till-1", "1")}
	installed := client.Installed{ArtifactName: "shop-2", Provides: map[string]string{"os": "9", "shop.version": "2"}}.Of(both)
	require.Equal(t, client.Installed{
		ArtifactName: "shop-2",
		Provides:     map[string]string{"os": "9", "shop.version": "2", "till.version": "1"},
		Applications: map[string]client.Belongings{
			"shop": {ArtifactName: "shop-2", Provides: []string{"shop.version"}},
			"till": {ArtifactName: "till-1", Provides: []string{"till.version"}},
		},
	}, installed)
	require.Equal(t, installed, installed.Of(both))

	back := map[string]client.Running{"shop": running("shop-1", "1"), "till": running("till-1", "1")}
	require.Equal(t, "shop-1", installed.Of(back).ArtifactName)
	require.Equal(t, "1", installed.Of(back).Provides["shop.version"])

	gone := map[string]client.Running{"till": running("till-1", "1")}
	require.Empty(t, installed.Of(gone).ArtifactName)
	require.Equal(t, map[string]string{"os": "9", "till.version": "1"}, installed.Of(gone).Provides)

	// A release of an older version says nothing, and what two provide is nobody's alone.
	require.Equal(t, installed, installed.Of(map[string]client.Running{"shop": {}, "till": running("till-1", "1")}))
	same := map[string]client.Running{"shop": running("shop-2", "2"), "till": {ArtifactName: "till-1", Provides: map[string]string{"shop.version": "7"}}}
	require.Equal(t, "2", installed.Of(same).Provides["shop.version"])
	require.Equal(t, map[string]string{"os": "9", "shop.version": "2", "till.version": "1"}, installed.Provides, "it is not changed")
}
