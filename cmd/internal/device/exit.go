package device

import (
	"context"
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/artifact/statement"
	"github.com/mender-app/mender-app/modules/client"
	"github.com/mender-app/mender-app/modules/deploy"
	"github.com/mender-app/mender-app/modules/hold"
	"github.com/mender-app/mender-app/modules/staging"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// The exit codes of app and mender-app. Codes shared with sub-modules have the same
// numbers.
const (
	ExitDone        = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitRequirement = submodules.CodeRequirement
	ExitNotFound    = submodules.CodeNotFound
	ExitContent     = submodules.CodeContent
	ExitUnhealthy   = submodules.CodeUnhealthy
	ExitSpace       = submodules.CodeSpace
	ExitBase        = submodules.CodeBase
	ExitRefused     = 9
	ExitAborted     = 10
	ExitBusy        = 75
	ExitStopped     = submodules.CodeDeadline
	ExitInterrupted = 130 // as in shells for SIGINT; only in mender-app
)

// ExitHelp lists the exit codes for --help and the manual.
const ExitHelp = `Exit codes:
  0    done
  1    failed
  2    wrong arguments, or a broken configuration file
  3    something is missing: a sub-module, the engine, Compose
  4    no such application, release or deployment
  5    the artifact is damaged, or an image has the wrong content
  6    the application did not become healthy
  7    not enough space
  8    the base of a delta is missing or damaged
  9    refused: the artifact does not fit this device; nothing was changed
  10   aborted with mender-app abort; the previous release runs
  75   another call is running, an update is open, or updates are held; try again
  124  stopped by a signal or a deadline
`

// InterruptHelp is the line that mender-app adds.
const InterruptHelp = "  130  interrupted (Ctrl-C)\n"

// ErrUsage: the arguments or the settings are wrong.
var ErrUsage = errors.New("usage")

// ExitCode is the one place that maps errors to exit codes.
func ExitCode(err error) int {
	var locked *store.LockedError
	var needs *artifact.RequiresError
	var call *client.CallError
	switch {
	case err == nil:
		return ExitDone
	case errors.Is(err, ErrInterrupted):
		return ExitInterrupted
	case errors.As(err, &call) && call.Code > 0:
		return call.Code // the update module uses the same codes
	case errors.Is(err, deploy.ErrAborted):
		return ExitAborted
	case errors.As(err, &locked), errors.Is(err, client.ErrBusy), errors.Is(err, hold.ErrHeld), errors.Is(err, deploy.ErrOpen),
		errors.Is(err, staging.ErrBusy), errors.Is(err, deploy.ErrNotEnded):
		return ExitBusy
	case errors.Is(err, ErrUsage):
		return ExitUsage
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, submodules.ErrDeadline):
		return ExitStopped
	case errors.Is(err, unix.ENOSPC), errors.Is(err, submodules.ErrSpace), errors.Is(err, staging.ErrSpace):
		return ExitSpace
	case errors.Is(err, submodules.ErrRequirement):
		return ExitRequirement
	case errors.Is(err, submodules.ErrBase):
		return ExitBase
	case errors.Is(err, submodules.ErrUnhealthy):
		return ExitUnhealthy
	case errors.Is(err, submodules.ErrContent), errors.Is(err, artifact.ErrPayload), errors.Is(err, artifact.ErrTooLarge),
		errors.Is(err, artifact.ErrSpool), errors.Is(err, mender.ErrFormat), errors.Is(err, mender.ErrChecksum),
		errors.Is(err, mender.ErrTooLarge):
		return ExitContent
	case errors.Is(err, deploy.ErrUnfit), errors.Is(err, client.ErrRefused), errors.Is(err, artifact.ErrMetadata), errors.As(err, &needs),
		errors.Is(err, mender.ErrSignature), errors.Is(err, staging.ErrRefused), errors.Is(err, statement.ErrStatement), errors.Is(err, mender.ErrUnsupported):
		return ExitRefused
	case errors.Is(err, store.ErrNoApp), errors.Is(err, store.ErrNoRelease), errors.Is(err, store.ErrName), errors.Is(err, store.ErrNoRecord), errors.Is(err, staging.ErrNone),
		errors.Is(err, deploy.ErrNothingOpen), errors.Is(err, submodules.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return ExitNotFound
	}
	return ExitFailed
}
