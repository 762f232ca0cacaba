package main

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/spf13/pflag"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/artifact/statement"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/generator"
	"github.com/mender-app/mender-app/generator/bases"
	"github.com/mender-app/mender-app/generator/manifests"
	"github.com/mender-app/mender-app/generator/places"
	"github.com/mender-app/mender-app/generator/source"
)

// The exit codes. exitText describes them in --help. Tests compare it with these
// constants and with the man page.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitManifests   = 3
	exitImage       = 4
	exitPlatform    = 5
	exitNotShipped  = 6
	exitWrite       = 7
	exitDamaged     = 8
	exitStrict      = 9
	exitInterrupted = 130
)

const exitText = `Exit codes:
  0    done
  1    failed for another reason
  2    the options are wrong
  3    the manifests or the policy cannot work on a device
  4    an image cannot be found or read
  5    an image is not for the platform
  6    the manifests use an image that the artifact lacks
  7    the output cannot be written
  8    an artifact or delta is damaged or of another kind, or its signature is wrong
  9    there are warnings, and --strict was given
  130  interrupted
If the code is not 0, no output file was written or changed.`

func exitCode(err error) int {
	var (
		usage      *usageError
		genUsage   *generator.UsageError
		manifest   *generator.ManifestError
		manifest2  *manifests.Error
		policy     *generator.PolicyError
		notShipped *generator.NotShippedError
		platform   *image.PlatformError
		src        *source.Error
		base       *bases.Error
		place      *places.Error
		damaged    *generator.DamagedError
		requires   *artifact.RequiresError
		feature    *delta.FeatureError
		old        *delta.OldError
		mismatch   *delta.MismatchError
		taken      *generator.TakenError
		chain      *chainError
		strict     *generator.StrictError
	)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errInterrupted):
		return exitInterrupted
	case diskFull(err) != nil:
		return exitWrite
	case errors.As(err, &strict):
		return exitStrict
	case errors.As(err, &usage), errors.As(err, &genUsage), errors.As(err, &taken):
		return exitUsage
	case errors.As(err, &manifest), errors.As(err, &manifest2), errors.As(err, &policy):
		return exitManifests
	case errors.As(err, &notShipped):
		return exitNotShipped
	case errors.As(err, &platform):
		return exitPlatform
	case errors.As(err, &damaged), errors.As(err, &chain):
		return exitDamaged
	case errors.As(err, &src), errors.Is(err, image.ErrFormat), errors.Is(err, image.ErrMissing), errors.Is(err, image.ErrMismatch), errors.Is(err, image.ErrTooLarge):
		return exitImage
	case errors.Is(err, mender.ErrFormat), errors.Is(err, mender.ErrChecksum), errors.Is(err, mender.ErrSignature),
		errors.Is(err, mender.ErrUnsupported), errors.Is(err, mender.ErrTooLarge),
		errors.Is(err, artifact.ErrMetadata), errors.Is(err, artifact.ErrPayload), errors.Is(err, artifact.ErrTooLarge), errors.Is(err, statement.ErrStatement),
		errors.Is(err, generator.ErrNotApp), errors.Is(err, delta.ErrFormat),
		errors.As(err, &requires), errors.As(err, &feature), errors.As(err, &old), errors.As(err, &mismatch):
		return exitDamaged
	case errors.Is(err, mender.ErrKey), errors.As(err, &base), errors.As(err, &place), errors.Is(err, fs.ErrNotExist):
		return exitUsage
	}
	return exitFailed
}

// hasShorthand reports whether the error is about an unknown short option.
func hasShorthand(err error, short rune) bool {
	var unknown *pflag.NotExistError
	return errors.As(err, &unknown) && strings.HasPrefix(err.Error(), "unknown shorthand flag: '"+string(short)+"'")
}
