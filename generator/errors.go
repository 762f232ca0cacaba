package generator

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/generator/bases"
	"github.com/mender-app/mender-app/generator/manifests"
)

// UsageError reports that options are wrong or contradict each other.
type UsageError struct{ Text, Hint string }

func (e *UsageError) Error() string { return e.Text }

// Advice says what to do about it.
func (e *UsageError) Advice() string { return e.Hint }

// ManifestError says why the manifests cannot work on a device.
type ManifestError struct {
	Dir string
	Err *manifests.Error
}

func (e *ManifestError) Error() string {
	return filepath.Join(e.Dir, e.Err.Place.String()) + ": " + e.Err.Text
}

func (e *ManifestError) Unwrap() error { return e.Err }

// Advice says what to do about it.
func (e *ManifestError) Advice() string { return e.Err.Hint }

// PolicyError: the policy is malformed, or asks for something that devices do not do.
type PolicyError struct {
	File string
	Err  error // a policy.ErrPolicy
}

func (e *PolicyError) Error() string { return e.File + ": " + e.Err.Error() }

func (e *PolicyError) Unwrap() error { return e.Err }

// Advice says what to do about it.
func (e *PolicyError) Advice() string { return "docs/POLICY.md has every key" }

// NotShippedError reports that the manifests use an image that is neither in the
// artifact nor named as one that the device has.
type NotShippedError struct {
	Dir  string
	Uses []manifests.Use
	Have []string // the images of the artifact
}

func (e *NotShippedError) Error() string {
	u := e.Uses[0]
	s := fmt.Sprintf("%s: %s uses %s, which is not in the artifact", filepath.Join(e.Dir, u.Place.String()), u.By, u.Image)
	if n := len(e.Uses) - 1; n > 0 {
		s += fmt.Sprintf(" (and %d more)", n)
	}
	return s
}

// Advice says what to do about it.
func (e *NotShippedError) Advice() string {
	u := e.Uses[0].Image
	return fmt.Sprintf("add --image %s, or say --on-device %s; the artifact has %s", u, u, strings.Join(e.Have, ", "))
}

// StrictError reports that there are warnings, and Build.Strict makes them errors.
type StrictError struct{ Warnings []string }

func (e *StrictError) Error() string {
	return metered.Count(len(e.Warnings), "warning") + ", and --strict allows none: " + strings.Join(e.Warnings, "; ")
}

// DamagedError reports that the content of an artifact is malformed.
type DamagedError = bases.DamagedError

// ErrNotApp is the error for a Mender Artifact without an application.
var ErrNotApp = bases.ErrNotApp

// encryptUsage turns an error of [manifests.ReadRecipients] into a usage error.
func encryptUsage(err error) error {
	u := &UsageError{Text: "--encrypt-secrets-to: " + err.Error()}
	var e *manifests.RecipientError
	if errors.As(err, &e) {
		u.Hint = e.Hint
	}
	return u
}
