package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/mender-app/mender-app/generator/write"
)

// standard is the name that stands for standard input and output.
const standard = "-"

// standardInput reads standard input. A read ends with ctx, even if no more input
// arrives.
func standardInput(ctx context.Context) (io.Reader, error) {
	if term.IsTerminal(int(os.Stdin.Fd())) {
		return nil, &usageError{text: "standard input is a terminal", hint: "give it an artifact, such as app-gen inspect - < FILE.mender"}
	}
	r, w := io.Pipe()
	go func() {
		_, err := io.Copy(w, os.Stdin)
		w.CloseWithError(err)
	}()
	context.AfterFunc(ctx, func() { w.CloseWithError(ctx.Err()) })
	return r, nil
}

// checkStandardOutput refuses to write an artifact to a terminal.
func checkStandardOutput() error {
	if term.IsTerminal(int(os.Stdout.Fd())) {
		return &usageError{text: "standard output is a terminal, but an artifact is not text", hint: "send it to a file or a program, such as app-gen … > FILE.mender"}
	}
	return nil
}

// toStandardOutput copies a file to standard output. A reader that went away is an
// error, not a signal, so that temporary files are removed.
func toStandardOutput(path string) error {
	signal.Ignore(syscall.SIGPIPE)
	f, err := os.Open(path)
	if err == nil {
		defer f.Close()
		_, err = io.Copy(os.Stdout, f)
	}
	if err != nil {
		return &write.Error{Err: err}
	}
	return nil
}
