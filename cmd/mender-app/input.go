package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/mender-app/mender-app/artifact/input"
	"github.com/mender-app/mender-app/artifact/scratch"
	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/modules/client"
	"github.com/mender-app/mender-app/modules/client/download"
	"github.com/mender-app/mender-app/modules/diskspace"
)

// artifactOpener opens artifacts.
type artifactOpener struct {
	Config *device.Config
	Log    *slog.Logger
	Stdin  io.Reader
}

// sourceOption is the option --source-stdin: others see the arguments of a program, and a
// URL may have a password or a token.
type sourceOption struct{ stdin bool }

// Flag adds the option.
func (o *sourceOption) Flag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.stdin, "source-stdin", false, "read FILE or URL from standard input, where nobody else sees a password in it")
}

// Args checks the number of arguments.
func (o *sourceOption) Args() cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if o.stdin {
			return checkArguments(cmd, "", args)
		}
		return checkArguments(cmd, "FILE|URL", args)
	}
}

// maxSource bounds a source on standard input, in bytes.
const maxSource = 4 << 10

// Read returns the source: the argument, or the line on standard input.
func (o *sourceOption) Read(stdin io.Reader, args []string) (string, error) {
	if !o.stdin {
		return args[0], nil
	}
	text, err := io.ReadAll(io.LimitReader(stdin, maxSource+1))
	if err != nil {
		return "", fmt.Errorf("standard input: %w", err)
	}
	line := strings.TrimRight(string(text), "\r\n")
	if line == "" || line == "-" || len(text) > maxSource || strings.ContainsAny(line, "\r\n\x00") {
		return "", fmt.Errorf("%w: standard input is not one line with a file or a URL", device.ErrUsage)
	}
	return line, nil
}

// artifactInput is what an artifact is read from.
type artifactInput struct {
	io.Reader
	Size int64 // 0: not known
	// Move moves a download's file, which was read to its end, to another path; nil
	// for other inputs.
	Move func(path string) error
	// End closes it. It gets the error of the work, which decides whether a
	// download that is not complete is worth keeping.
	End func(error) error
}

// Open opens a file, a URL, or standard input for "-". Only if signatures are checked, a
// URL may be http. room makes room for what a URL brings; nil only checks that it fits.
func (o *artifactOpener) Open(ctx context.Context, from string, signed bool, room func(bytes int64) error) (*artifactInput, error) {
	if from == "-" {
		return &artifactInput{Reader: interruptible(ctx, o.Stdin), End: func(error) error { return nil }}, nil
	}
	if download.IsURL(from) {
		return o.openURL(ctx, from, signed, room)
	}
	f, err := input.Open(from)
	if err != nil {
		return nil, err
	}
	in := &artifactInput{Reader: interruptible(ctx, f), End: func(error) error { return f.Close() }}
	if st, err := f.Stat(); err == nil {
		in.Size = st.Size()
	}
	return in, nil
}

// OpenToCheck opens a file or a URL whose artifact is not installed: what arrives from a
// URL is not kept.
func (o *artifactOpener) OpenToCheck(ctx context.Context, from string, signed bool) (*artifactInput, error) {
	if !download.IsURL(from) {
		return o.Open(ctx, from, signed, nil)
	}
	dir, err := scratch.Dir("", scratch.Prefix)
	if err != nil {
		return nil, err
	}
	options := download.Defaults()
	options.Dir, options.PlainHTTP = dir, signed
	in, err := o.openDownload(ctx, from, options)
	if err != nil {
		return nil, errors.Join(err, scratch.Remove(dir))
	}
	end := in.End
	in.End = func(err error) error { return errors.Join(end(err), scratch.Remove(dir)) }
	return in, nil
}

func (o *artifactOpener) openURL(ctx context.Context, from string, signed bool, room func(int64) error) (*artifactInput, error) {
	s := o.Config.OpenStore()
	if err := s.Protect(); err != nil {
		return nil, err
	}
	options := download.Defaults()
	options.Dir, options.PlainHTTP, options.Room = s.Meta("download"), signed, room
	if room == nil {
		options.Room = func(bytes int64) error {
			return diskspace.Check([]diskspace.Need{{Dir: options.Dir, Bytes: bytes}}, diskspace.Free)
		}
	}
	return o.openDownload(ctx, from, options)
}

func (o *artifactOpener) openDownload(ctx context.Context, from string, options download.Options) (*artifactInput, error) {
	options.Log = func(line string) { o.Log.Warn(line) }
	options.MaxRate = o.Config.MaxRate
	d, err := download.Open(ctx, from, options)
	switch {
	case errors.Is(err, download.ErrURL):
		return nil, fmt.Errorf("%w: %w", device.ErrUsage, err)
	case errors.Is(err, download.ErrBusy):
		return nil, fmt.Errorf("%w: %w", client.ErrBusy, err)
	case err != nil && context.Cause(ctx) != nil:
		return nil, fmt.Errorf("%w: nothing was changed", context.Cause(ctx))
	case err != nil:
		return nil, err
	}
	if n := d.Resumed(); n > 0 {
		o.Log.Info("going on where an earlier download ended", "bytes", n)
	}
	return &artifactInput{Reader: d, Size: max(0, d.Size()), Move: d.Move, End: func(err error) error {
		if errors.Is(err, download.ErrFailed) || err != nil && context.Cause(ctx) != nil {
			return d.Close()
		}
		return d.Discard()
	}}, nil
}

// progress shows on a terminal how much of an artifact has been read.
func progress(stderr io.Writer, quiet bool, in *artifactInput) *progressMeter {
	m := &progressMeter{In: in, Size: in.Size}
	if f, ok := stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) && !quiet {
		m.Out = f
	}
	return m
}
