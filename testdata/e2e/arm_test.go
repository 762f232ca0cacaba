package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
)

// The arm/v7 programs do the main job. This test shows faults of 32-bit programs
// between the client and the engine: only the processor is emulated. `make test-arm`
// emulates a whole device.
func TestArmPrograms(t *testing.T) {
	bed.RequireArm(t)
	d := device(t)
	programs, err := bed.ProgramsFor("arm-v7")
	require.NoError(t, err)
	require.NoError(t, d.Install(programs)) // in place of this machine's
	const platform = "linux/arm/v7"
	shop := func(version, mode string) bed.Image {
		return build(t, bed.Shop{Ref: "shop/web:" + version, Version: version, Mode: mode, Base: 512, Winter: version != "1", Platform: platform})
	}
	stock := build(t, bed.Shop{Ref: "shop/stock:1", Version: "1", Service: "stock", Base: 512, Count: "/var/shop/visits", Platform: platform})
	one := shop("1", "")
	w := watch(t, d)

	said := menderFails(t, d, "install", release(t, d, "1", ""))
	requireErrorLine(t, "the artifact is for "+bed.Platform()+" and this machine runs "+platform, said)
	mender(t, d, "install", generate(t, d, "shop", "shop-1", "1", compose("1"), "--platform", platform, archive(t, one), archive(t, stock)))
	mender(t, d, "commit")
	says(t, w, "web 1")
	at1 := d.MustState(t)

	update := func(version, mode string) string {
		return generate(t, d, "shop", "shop-"+version, version, compose(version), "--platform", platform, "--deep-delta",
			delta(t, one, shop(version, mode)), delta(t, stock, stock))
	}
	menderFails(t, d, "install", update("2", "crash"))
	says(t, w, "web 1")
	d.MustProvide(t, provides("1"))
	sameApplication(t, at1, d.MustState(t))

	mender(t, d, "install", update("3", ""))
	says(t, w, "web 3")
	mender(t, d, "rollback")
	says(t, w, "web 1")
	sameApplication(t, at1, d.MustState(t))
	d.MustProvide(t, provides("1"))
	d.MustRun(t, "mender-app", "verify")
}
