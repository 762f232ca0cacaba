package vcdiff

import (
	"errors"
	"fmt"
)

// Why a delta is refused. Every error of this package wraps one of these, unless it
// comes from the delta's reader, the old file's reader or the context.
var (
	// ErrCorrupt: the delta is damaged or cut off.
	ErrCorrupt = errors.New("damaged vcdiff delta")
	// ErrChecksum: a rebuilt window has another checksum. The delta is damaged, or
	// the old file is the wrong one or damaged.
	ErrChecksum = errors.New("rebuilt content has the wrong checksum")
	// ErrSource: the delta reads beyond the old file's end, so it was made
	// against another one.
	ErrSource = errors.New("delta does not fit the old file")
	// ErrTooLarge: the delta asks for more than the options allow.
	ErrTooLarge = errors.New("vcdiff delta needs more than the limit")
	// ErrUnsupported: the delta uses a feature that this package does not decode.
	// The error names it.
	ErrUnsupported = errors.New("unsupported vcdiff delta")
)

// A Secondary is a secondary compressor, by its number in the delta's header.
type Secondary byte

// The secondary compressors xdelta3 knows.
const (
	NoSecondary Secondary = 0
	DJW         Secondary = 1
	LZMA        Secondary = 2
	FGK         Secondary = 16
)

func (s Secondary) String() string {
	switch s {
	case NoSecondary:
		return "none"
	case DJW:
		return "DJW"
	case LZMA:
		return "LZMA"
	case FGK:
		return "FGK"
	}
	return fmt.Sprintf("number %d", byte(s))
}

// A SecondaryError says that this package cannot decompress the delta's sections,
// and that the xdelta3 command, which can, is missing or failed. It is an
// ErrUnsupported.
type SecondaryError struct {
	Secondary Secondary
	Err       error // why xdelta3 could not be used
}

func (e *SecondaryError) Error() string {
	msg := fmt.Sprintf("%v: %v secondary compression", ErrUnsupported, e.Secondary)
	if e.Secondary == DJW || e.Secondary == FGK {
		msg += " needs the xdelta3 command (Debian package xdelta3)"
	}
	if e.Err != nil {
		msg += ": " + e.Err.Error()
	}
	return msg
}

// Unwrap returns ErrUnsupported and the cause.
func (e *SecondaryError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrUnsupported}
	}
	return []error{ErrUnsupported, e.Err}
}
