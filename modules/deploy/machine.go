package deploy

import (
	"fmt"
	"os/exec"
	"strings"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules"
)

// lackingCommands lists the commands that this machine does not have: those that a sub-module needs,
// and those that are only of use to it.
func lackingCommands(reqs []submodules.Requirement) (needed, useful []string) {
	for _, r := range reqs {
		words := strings.Fields(r.Command)
		if len(words) == 0 {
			continue
		}
		if _, err := exec.LookPath(words[0]); err == nil {
			continue
		}
		if r.Warning {
			useful = append(useful, words[0])
		} else {
			needed = append(needed, words[0])
		}
	}
	return needed, useful
}

// checkMachine returns an error if a machine with these platforms, the best first, does not run
// what is made for the platform want. Without any platform nothing is checked.
func checkMachine(platforms []image.Platform, want string) error {
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
