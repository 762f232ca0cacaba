package containerd

import (
	"testing"

	"github.com/containerd/platforms"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/image"
)

// Our reading of a platform's name is containerd's own, which is Docker's, and
// so is the choice of what a machine runs.
func TestPlatformsAsContainerd(t *testing.T) {
	names := []string{
		"linux/arm/v5", "linux/arm/v6", "linux/arm/v7", "linux/arm", "linux/armhf", "linux/armel", "linux/arm64", "linux/arm64/v8", "linux/aarch64",
		"linux/amd64", "linux/x86_64", "linux/386", "linux/i386", "linux/riscv64", "linux/arm/7", "linux/arm/6", "arm", "armhf", "aarch64",
	}
	for _, name := range names {
		theirs, err := platforms.Parse(name)
		require.NoError(t, err, name)
		ours, err := image.ParsePlatform(name)
		require.NoError(t, err, name)
		theirs = platforms.Normalize(theirs)
		if name != "arm" && name != "armhf" && name != "aarch64" { // there they take the host's system and variant
			require.Equal(t, image.Platform{OS: theirs.OS, Arch: theirs.Architecture, Variant: theirs.Variant}.Normalize(), ours, name)
		}
		for _, other := range names {
			have, err := platforms.Parse(other)
			require.NoError(t, err)
			p, err := image.ParsePlatform(other)
			require.NoError(t, err)
			if theirs.Architecture != have.Architecture {
				continue // they let any 64-bit machine run 32-bit programs; modules/deploy/machine says what it runs
			}
			require.Equal(t, platforms.Only(theirs).Match(have), ours.Match(p) > image.NoFit, "%s on %s", other, name)
		}
	}
	// The names of Docker Hub's repositories for architectures.
	for name, want := range map[string]string{"arm32v5": "linux/arm/v5", "arm32v6": "linux/arm/v6", "arm32v7": "linux/arm/v7", "arm64v8": "linux/arm64"} {
		p, err := image.ParsePlatform(name)
		require.NoError(t, err)
		require.Equal(t, want, p.String())
	}
}
