package main

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/generator"
	"github.com/mender-app/mender-app/generator/manifests"
	"github.com/mender-app/mender-app/generator/source"
	"github.com/mender-app/mender-app/generator/write"
)

// What --help says of the exit codes is what the program does.
func TestExitCodes(t *testing.T) {
	codes := map[int]error{
		exitOK:          nil,
		exitFailed:      errors.New("x"),
		exitUsage:       &usageError{},
		exitManifests:   &generator.ManifestError{Err: &manifests.Error{}},
		exitImage:       &source.Error{},
		exitPlatform:    &source.Error{Err: &image.PlatformError{}},
		exitNotShipped:  &generator.NotShippedError{},
		exitWrite:       &write.Error{Err: fs.ErrPermission},
		exitDamaged:     &generator.DamagedError{Err: &source.Error{}},
		exitStrict:      &generator.StrictError{},
		exitInterrupted: errInterrupted,
	}
	said := regexp.MustCompile(`(?m)^  (\d+) +\S`).FindAllStringSubmatch(exitText, -1)
	require.Len(t, said, len(codes))
	for _, m := range said {
		found := false
		for code, err := range codes {
			found = found || fmt.Sprint(code) == m[1]
			require.Equal(t, code, exitCode(err), "%T", err)
			if err != nil {
				require.Equal(t, code, exitCode(fmt.Errorf("around it: %w", err)), "%T", err)
			}
		}
		require.True(t, found, "code %s", m[1])
	}
	for _, err := range []error{mender.ErrChecksum, mender.ErrSignature, artifact.ErrMetadata, artifact.ErrPayload, delta.ErrFormat, &delta.OldError{}, &artifact.RequiresError{}} {
		require.Equal(t, exitDamaged, exitCode(err), "%v", err)
	}
}
