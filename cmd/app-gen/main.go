// Command app-gen makes App Artifacts on the build host: container images and
// manifests in, one FILE.mender out. `app-gen inspect` shows what is in one,
// `app-gen diff` shows what changed between two, and `app-gen delta` makes and applies deep
// deltas by hand.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/artifact/clip"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/cmd/internal/usage"
	"github.com/mender-app/mender-app/cmd/internal/version"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/generator/write"
)

// memoryLimit is Go's soft limit in bytes. Making a delta takes at most about
// 900 MiB at a time; without a limit, garbage may double that.
const memoryLimit = 1400 << 20

func main() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	os.Exit(run(os.Args[1:]))
}

// run runs the program and returns its exit code. It is the only place that prints
// errors.
func run(args []string) int {
	logrus.SetOutput(io.Discard) // compose-go warns there; app-gen has its own warnings
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := rootCommand()
	root.SetArgs(meant(root, args))
	root.SetOut(clip.TextWriter(os.Stdout)) // what artifacts and projects say may be there
	root.SetErr(clip.TextWriter(os.Stderr))
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if ctx.Err() != nil && !errors.Is(err, errInterrupted) {
		err = errInterrupted
	}
	if usage.AsksJSON(args) {
		usage.PrintJSON(os.Stderr, err.Error(), hintOf(err), exitCode(err))
	} else {
		printError(clip.TextWriter(os.Stderr), err)
	}
	return exitCode(err)
}

func rootCommand() *cobra.Command {
	root := generateCommand()
	root.Version = version.String()
	root.SetVersionTemplate(version.Template)
	root.SilenceErrors = true
	root.SilenceUsage = true
	root.CompletionOptions.HiddenDefaultCmd = false
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(initCommand(), releaseCommand(), releasesCommand(), byReferenceCommand(), mirrorCommand(), fleetCommand(), signCommand(), revokeCommand(), inspectCommand(), diffCommand(), deltaCommand(), tryCommand(), manCommand())
	groupOptions(root)
	addCompletions(root)
	usage.RefuseUnknown(root, func(c *cobra.Command, text, hint string) error {
		return &usageError{text: text, hint: cmp.Or(hint, "see "+c.CommandPath()+" --help")}
	})
	usage.CheckArguments(root, checkArguments)
	return root
}

// checkArguments refuses arguments that are not words, such as "PLAN STORE".
func checkArguments(c *cobra.Command, words string, args []string) error {
	if wrong, hint := usage.Arguments(c, words, args); wrong != "" {
		return &usageError{text: wrong, hint: cmp.Or(hint, "see "+c.CommandPath()+" --help")}
	}
	return nil
}

// flagError turns pflag's error into a usage error, and explains the two short
// options that could not be kept.
func flagError(c *cobra.Command, err error) error {
	u := &usageError{text: err.Error()}
	if c.Parent() == nil {
		switch {
		case hasShorthand(err, 'd'):
			u.hint = "-d could mean --skip-images or --deep-delta: write the one you mean"
		case hasShorthand(err, 'o'):
			u.hint = "-o is --orchestrator for docker-compose and k8s, and --output-path for a path or FILE.mender: write the one you mean"
		}
	}
	if u.hint == "" {
		u.hint = usage.MeantOption(c, err)
	}
	if u.hint == "" {
		u.hint = "see " + c.CommandPath() + " --help"
	}
	return u
}

type usageError struct{ text, hint string }

func (e *usageError) Error() string  { return e.text }
func (e *usageError) Advice() string { return e.hint }

var errInterrupted = errors.New("interrupted, nothing was written")

// keptError is errInterrupted where something of what was done stays.
type keptError struct{ text, advice string }

func (e *keptError) Error() string { return e.text }

func (e *keptError) Is(err error) bool { return err == errInterrupted }

// Advice says what is kept.
func (e *keptError) Advice() string { return e.advice }

// kept says of a command that was interrupted what stays. Other errors are as they were.
func kept(ctx context.Context, err error, text, advice string) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	return &keptError{text, advice}
}

// advice is an error with a suggestion.
type advice interface{ Advice() string }

func printError(w io.Writer, err error) {
	fmt.Fprintf(w, "app-gen: %v\n", err)
	if hint := hintOf(err); hint != "" {
		fmt.Fprintf(w, "  hint: %s\n", hint)
	}
}

// hintOf returns what to do about an error; "" if unknown.
func hintOf(err error) string {
	if full := diskFull(err); full != nil {
		return full.Advice()
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		if a, ok := e.(advice); ok && a.Advice() != "" {
			return a.Advice()
		}
	}
	for _, damage := range []error{mender.ErrFormat, mender.ErrChecksum, image.ErrFormat, delta.ErrFormat} {
		if errors.Is(err, damage) {
			return "download or copy the file again, and compare its sha256sum with that of the original"
		}
	}
	return ""
}

// diskFull returns an error that says the disk is full; nil if err has another cause.
// Such an error may come from any code that writes temporary files.
func diskFull(err error) *write.Error {
	var full *write.Error
	if errors.As(err, &full) {
		return full
	}
	if write.Full(err) {
		return &write.Error{Err: err}
	}
	return nil
}
