package machine

import (
	"fmt"

	"github.com/mender-app/mender-app/artifact/image"
)

// Check returns an error if a machine with these platforms, the best first, does not run
// what is made for the platform want. Without any platform nothing is checked.
func Check(platforms []image.Platform, want string) error {
	if len(platforms) == 0 {
		return nil
	}
	p, err := image.ParsePlatform(want)
	if err != nil {
		return err
	}
	for _, have := range platforms {
		if have.Match(p) != image.NoFit {
			return nil
		}
	}
	return fmt.Errorf("the artifact is for %s and this machine runs %s: build it with app-gen --platform %s", p, platforms[0], platforms[0])
}
