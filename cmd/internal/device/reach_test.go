package device

import (
	"crypto/ed25519"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/modules/client"
)

// TestReach: a key that is bound to an application signs for nothing else that an artifact does.
func TestReach(t *testing.T) {
	public, _, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	own := mender.Header{
		SignedBy: public, Provides: map[string]string{"data-partition.shop.version": "1"}, ClearsProvides: []string{"data-partition.shop.*"},
	}
	bound := []Trusted{{Key: Key{File: "shop.pub", Applications: []string{"shop", "till*"}}, Public: public}}
	require.NoError(t, MayInstall(bound, &own, "shop"))
	for what, change := range map[string]func(h *mender.Header){
		"it provides data-partition.kiosk.version":       func(h *mender.Header) { h.Provides = map[string]string{"data-partition.kiosk.version": "9"} },
		"it provides rootfs-image.version":               func(h *mender.Header) { h.Provides = map[string]string{"rootfs-image.version": "9"} },
		"it provides rootfs-image.checksum.shop.version": func(h *mender.Header) { h.Provides = map[string]string{"rootfs-image.checksum.shop.version": "9"} },
		"it provides data-partition.shop.web.version":    func(h *mender.Header) { h.Provides = map[string]string{"data-partition.shop.web.version": "9"} },
		"it clears the provides data-partition.kiosk.*":  func(h *mender.Header) { h.ClearsProvides = []string{"data-partition.kiosk.*"} },
		"it clears the provides *":                       func(h *mender.Header) { h.ClearsProvides = []string{"*"} },
		"it clears the provides *.shop.version":          func(h *mender.Header) { h.ClearsProvides = []string{"*.shop.version"} },
		"it clears the provides data-partition.*":        func(h *mender.Header) { h.ClearsProvides = []string{"data-partition.*"} },
		"it sets the artifact group test":                func(h *mender.Header) { h.Group = "test" },
		"it has state scripts":                           func(h *mender.Header) { h.Scripts = []string{"ArtifactInstall_Enter_00"} },
	} {
		h := own
		change(&h)
		err := MayInstall(bound, &h, "shop")
		require.ErrorIs(t, err, client.ErrRefused, what)
		require.ErrorContains(t, err, what)
		for _, free := range []Key{{File: "all.pub"}, {File: "all.pub", Applications: []string{"*"}}} {
			require.NoError(t, MayInstall([]Trusted{{Key: free, Public: public}}, &h, "shop"), what)
		}
	}
}
