package updatemodule

import (
	"bytes"
	"fmt"
	"os"
	"slices"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/modules"
	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/store"
)

// With commit_on_install, `mender install` is final, as it was with the shell
// reference: the Mender client commits at once if a module answers No to
// SupportsRollback. It asks before or after ArtifactInstall, and again if that failed
// (3.4.0; the C++ client asks once, after it). So the answer is No only while nothing
// has failed, and a failed installation is still rolled back. A daemon keeps the
// first answer for the whole update, so it always gets Yes.

// commitsAtOnce reports whether the answer to SupportsRollback is No.
func commitsAtOnce(c *device.Config, tree *modules.Tree, parent int) bool {
	return c.CommitOnInstall && byHand(parent) && unimpeded(c.Store, tree)
}

// byHand reports whether the process is a Mender client that a person or a script told
// to install: `mender install FILE` or `mender-update install FILE`.
func byHand(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return false
	}
	args := bytes.Split(text, []byte{0})
	has := func(word string) bool {
		return slices.ContainsFunc(args[1:], func(a []byte) bool { return string(a) == word })
	}
	return has("install") && !has("daemon")
}

// unimpeded reports whether the deployment of the tree's application has not failed
// and needs no restart of the machine.
func unimpeded(dir string, tree *modules.Tree) bool {
	raw, err := tree.MetaData()
	if err != nil || raw == nil {
		return false
	}
	meta, _, err := artifact.ParseMetadata(raw)
	if err != nil || meta.Reboot {
		return false
	}
	a, err := store.At(dir).App(meta.ApplicationName)
	if err != nil || a.Deployment == nil || a.Deployment.Error != "" {
		return false
	}
	phase := a.Deployment.Phase
	return phase == journal.Loaded || phase == journal.Installed
}
