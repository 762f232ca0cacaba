package device

import (
	"crypto/ed25519"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/artifact/statement"
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

// TestReachIsStated: an artifact whose header provides something else than its statement
// says is refused with each configuration, also by the Mender client's update module. An
// older statement says nothing of it; then a bound key signs for its own application alone.
func TestReachIsStated(t *testing.T) {
	dir := t.TempDir()
	public, key, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	text, err := mender.EncodePublicKey(public)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "shop.pub"), []byte(text), 0o644))
	header := func(provides ...string) *mender.Header {
		h := &mender.Header{Provides: map[string]string{"data-partition.shop.version": "1"}, ClearsProvides: []string{"data-partition.shop.*"}, DeviceTypes: []string{"board"}}
		for _, p := range provides {
			h.Provides[p] = "9"
		}
		return h
	}
	sign := func(r *statement.Reach) *statement.Signed {
		s := statement.Of(&artifact.Metadata{ApplicationName: "shop", Orchestrator: "fake", Platform: "linux/amd64"}, digest.Of(nil))
		s.Reach = r
		b, err := statement.Sign(s, mender.Options{Key: key})
		require.NoError(t, err)
		st, err := statement.Parse(b)
		require.NoError(t, err)
		return st
	}
	scripts := header()
	scripts.Scripts = []string{"ArtifactInstall_Enter_00"}
	file := `"` + filepath.Join(dir, "shop.pub") + `"`
	confs := map[string]string{
		"no key": "", "a key": "artifact_verify_key = " + file, "all": "[[keys]]\nfile = " + file + "\napplications = [\"*\"]",
		"required": "require_statement = true\nartifact_verify_key = " + file, "bound": "[[keys]]\nfile = " + file + "\napplications = [\"shop\"]",
	}
	for name, conf := range confs {
		c, err := load(t, "mender_conf = \"/nowhere\"\n"+conf)
		require.NoError(t, err)
		for _, p := range []string{"data-partition.kiosk.version", "rootfs-image.version"} {
			for _, r := range []Reach{ReachOf(header(p)), ReachSeen(header(p), nil)} {
				err = c.Signatures.TrustWithin("", r)("shop", sign(statement.ReachOf(header())))
				require.ErrorIs(t, err, client.ErrRefused, name)
				require.ErrorIs(t, err, statement.ErrStatement, name)
				require.ErrorContains(t, err, p, name)
				require.NotContains(t, err.Error(), "\n")

				err = c.Signatures.TrustWithin("", r)("shop", sign(nil))
				require.Equal(t, name == "bound", errors.Is(err, client.ErrRefused), "%s: %v", name, err)
				err = c.Signatures.TrustWithin("", r)("shop", sign(r.Reach)) // the key says so
				require.Equal(t, name == "bound", errors.Is(err, client.ErrRefused), "%s: %v", name, err)
			}
		}
		trust := func(r Reach, st *statement.Signed) error { return c.Signatures.TrustWithin("", r)("shop", st) }
		require.NoError(t, trust(ReachOf(header()), sign(statement.ReachOf(header()))), name)
		require.NoError(t, trust(ReachOf(header()), sign(nil)), name)
		require.ErrorContains(t, trust(ReachOf(scripts), sign(statement.ReachOf(header()))), "state script", name)
		require.NoError(t, trust(ReachSeen(header(), nil), sign(statement.ReachOf(scripts))), name+": the module does not see scripts")
		require.ErrorContains(t, trust(ReachSeen(nil, errors.New("no header-info")), sign(statement.ReachOf(header()))), "no header-info", name)
	}
}
