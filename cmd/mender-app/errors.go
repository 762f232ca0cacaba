package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/artifact/input"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/artifact/similar"
	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/cmd/internal/usage"
	"github.com/mender-app/mender-app/modules/client"
	"github.com/mender-app/mender-app/modules/client/download"
	"github.com/mender-app/mender-app/modules/deploy"
	"github.com/mender-app/mender-app/store"
)

// fail prints an error with the next step: as one line, or as one line of JSON,
// which is the last one on standard error.
func (p *program) fail(err error, asJSON bool) {
	hint := nextStep(err)
	if asJSON {
		usage.PrintJSON(p.stderr, device.OneLine(err.Error()), hint, device.ExitCode(err))
		return
	}
	if hint != "" {
		err = fmt.Errorf("%w; %s", err, hint)
	}
	device.Fail(p.stderr, err)
}

// nextStep is what to do about an error whose text does not say it; "" for others.
func nextStep(err error) string {
	var hinted *hintedError
	var none *store.NoAppError
	switch {
	case errors.As(err, &hinted):
		return hinted.hint
	case errors.As(err, &none):
		return similar.Meant(none.Name, applications())
	case errors.Is(err, client.ErrNotOpen):
		return "see mender-app status"
	case errors.Is(err, client.ErrOpen):
		return "mender-app commit, rollback or resume"
	case errors.Is(err, deploy.ErrOpen):
		return "commit or roll it back first"
	case errors.Is(err, mender.ErrChecksum), errors.Is(err, mender.ErrFormat):
		return "the artifact is damaged, or the file is none: download or copy it again"
	case errors.Is(err, os.ErrPermission) && os.Geteuid() != 0:
		return "run it as root"
	}
	return ""
}

// hintedError is an error with its own next step.
type hintedError struct {
	err  error
	hint string
}

func (e *hintedError) Error() string { return e.err.Error() }
func (e *hintedError) Unwrap() error { return e.err }

// wrongUsage is an ErrUsage. Without a hint it names the command's help.
func wrongUsage(cmd *cobra.Command, err error, hint string) error {
	if hint == "" {
		hint = "see " + cmd.CommandPath() + " --help"
	}
	return &hintedError{fmt.Errorf("%w: %w", device.ErrUsage, err), hint}
}

// checkArguments refuses arguments that are not words, such as "APP [SERVICE]".
func checkArguments(cmd *cobra.Command, words string, args []string) error {
	wrong, hint := usage.Arguments(cmd, words, args)
	if wrong == "" {
		return nil
	}
	if len(args) == 0 && strings.HasPrefix(words, "APP") {
		hint = whichApplications()
	}
	return wrongUsage(cmd, errors.New(wrong), hint)
}

// whichApplications names the applications for who named none; "" if there are none.
func whichApplications() string {
	names := applications()
	if len(names) == 0 {
		return ""
	}
	return "name one of " + strings.Join(names, ", ")
}

// applications are those of the store; none if it cannot be read.
func applications() []string {
	c, err := device.Load()
	if err != nil {
		return nil
	}
	names, _ := c.OpenStore().Apps()
	return names
}

// knownCommand refuses an argument of the program that is not one of its commands.
func knownCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := otherNames[strings.ToLower(args[0])]
	switch {
	case hint != "":
	case strings.HasSuffix(args[0], ".mender"), download.IsURL(args[0]):
		hint = "mender-app install " + input.Source(args[0]).String()
	case slices.Contains(applications(), args[0]):
		hint = "mender-app status " + args[0]
	default:
		hint = meantCommand(root, args[0])
	}
	return wrongUsage(root, fmt.Errorf("unknown command %q", input.Source(args[0])), hint)
}

// otherNames are the words that other tools have for something that this one does, and
// what to run instead.
var otherNames = map[string]string{
	"uninstall": "mender-app purge APP removes an application",
	"remove":    "mender-app purge APP removes an application",
	"rm":        "mender-app purge APP removes an application",
	"delete":    "mender-app purge APP removes an application",
	"down":      "mender-app stop APP stops an application, mender-app purge APP removes it",
	"up":        "mender-app start APP starts an application, mender-app install FILE installs one",
	"reload":    "mender-app restart APP [SERVICE]",
	"run":       "mender-app start APP starts an application",
	"ls":        "mender-app status; with --stored it asks no engine",
	"ps":        "mender-app status",
	"top":       "mender-app status; mender-app metrics for figures",
	"stats":     "mender-app metrics",
	"inspect":   "mender-app status APP --stored",
	"info":      "mender-app status APP --stored",
	"update":    "mender-app install FILE|URL installs an update",
	"upgrade":   "mender-app install FILE|URL installs an update",
	"deploy":    "mender-app install FILE|URL installs a release",
	"apply":     "mender-app install FILE|URL installs a release",
	"pull":      "mender-app install FILE|URL installs a release, mender-app stage add FILE|URL only fetches it",
	"download":  "mender-app install FILE|URL installs a release, mender-app stage add FILE|URL only fetches it",
	"undo":      "mender-app rollback",
	"revert":    "mender-app rollback",
	"exec":      "mender-app runs nothing in containers: use docker exec or kubectl exec with an instance that mender-app status APP shows",
	"shell":     "mender-app runs nothing in containers: use docker exec or kubectl exec with an instance that mender-app status APP shows",
	"pause":     "mender-app stop APP stops an application, mender-app hold set keeps updates away",
}

// flagError turns a wrong option into an ErrUsage.
func flagError(cmd *cobra.Command, err error) error {
	return wrongUsage(cmd, err, usage.MeantOption(cmd, err))
}
