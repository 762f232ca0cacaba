// Package emulated runs the programs for arm/v7 under the real Mender client, with
// qemu-user. make test-all runs it.
package emulated

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/e2e"
)

// The arm/v7 programs do the main job. This test shows faults of 32-bit programs
// between the client and the engine: only the processor is emulated. `make test-arm`
// emulates a whole device.
func TestArmPrograms(t *testing.T) {
	bed.RequireArm(t)
	d := e2e.Device(t)
	programs, err := bed.ProgramsFor("arm-v7")
	require.NoError(t, err)
	require.NoError(t, d.Install(programs)) // in place of this machine's
	const platform = "linux/arm/v7"
	shop := func(version, mode string) bed.Image {
		return e2e.Build(t, bed.Shop{Ref: "shop/web:" + version, Version: version, Mode: mode, Base: 512, Winter: version != "1", Platform: platform})
	}
	stock := e2e.Build(t, bed.Shop{Ref: "shop/stock:1", Version: "1", Service: "stock", Base: 512, Count: "/var/shop/visits", Platform: platform})
	one := shop("1", "")
	w := e2e.Watch(t, d)

	said := e2e.MenderFails(t, d, "install", e2e.Release(t, d, "1", ""))
	e2e.RequireErrorLine(t, "the artifact is for "+bed.Platform()+" and this machine runs "+platform, said)
	e2e.Mender(t, d, "install", e2e.Generate(t, d, "shop", "shop-1", "1", e2e.Compose("1"), "--platform", platform, e2e.Archive(t, one), e2e.Archive(t, stock)))
	e2e.Mender(t, d, "commit")
	e2e.Says(t, w, "web 1")
	at1 := d.MustState(t)

	update := func(version, mode string) string {
		return e2e.Generate(t, d, "shop", "shop-"+version, version, e2e.Compose(version), "--platform", platform, "--deep-delta",
			e2e.Delta(t, one, shop(version, mode)), e2e.Delta(t, stock, stock))
	}
	e2e.MenderFails(t, d, "install", update("2", "crash"))
	e2e.Says(t, w, "web 1")
	d.MustProvide(t, e2e.Provides("1"))
	e2e.SameApplication(t, at1, d.MustState(t))

	e2e.Mender(t, d, "install", update("3", ""))
	e2e.Says(t, w, "web 3")
	e2e.Mender(t, d, "rollback")
	e2e.Says(t, w, "web 1")
	e2e.SameApplication(t, at1, d.MustState(t))
	d.MustProvide(t, e2e.Provides("1"))
	d.MustRun(t, "mender-app", "verify")
}
