package main

import (
	"bytes"
	"context"
	"crypto"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/mattn/go-shellwords"
)

// outsideSigner signs with a key that is not on the build host: in a key service that
// a command reaches, or in a PKCS #11 token (an HSM, a smart card). Whoever uses a
// signature verifies it with the public key.
type outsideSigner struct {
	// Public is the key that its signatures are verified with; nil if it is not
	// known.
	Public crypto.PublicKey
	// Sign returns the signature over a SHA-256 digest (32 bytes), in one of the
	// forms that mender.Options.Sign takes.
	Sign func(digest []byte) ([]byte, error)
}

const (
	// signTimeout is how long a program may take: somebody may have to type a PIN or
	// touch a token.
	signTimeout = 5 * time.Minute
	// maxSignature is the most bytes that are read of a program's output. A
	// signature of RSA 8192 has 1 KiB.
	maxSignature = 64 << 10
)

// errSigning is wrapped by the errors about programs that fail.
var errSigning = errors.New("signing failed")

// commandSigner returns a Signer that runs a command line. The command gets the
// digest, 32 bytes, on its standard input and writes the signature to its
// standard output. The line is split into words as a shell does it, with quotes;
// variables, pipes and the like are not expanded.
func commandSigner(ctx context.Context, line string) (*outsideSigner, error) {
	p := shellwords.NewParser()
	words, err := p.Parse(line)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the command line %q: %w", line, err)
	case p.Position >= 0: // it stopped at one of ;&|<>
		return nil, fmt.Errorf("the command line %q needs a shell: put it into a script", line)
	case len(words) == 0:
		return nil, errors.New("the command line names no program")
	}
	return &outsideSigner{Sign: func(digest []byte) ([]byte, error) { return runSigner(ctx, words, nil, digest) }}, nil
}

// runSigner runs a program. It stays in our process group, so that it can ask for a
// PIN at the terminal.
func runSigner(ctx context.Context, words, env []string, input []byte) ([]byte, error) {
	limit, cancel := context.WithTimeout(ctx, signTimeout)
	defer cancel()
	cmd := exec.CommandContext(limit, words[0], words[1:]...)
	cmd.WaitDelay = time.Second
	cmd.Stdin = bytes.NewReader(input)
	if env != nil {
		cmd.Env = append(cmd.Environ(), env...)
	}
	out, text := &boundedOutput{most: maxSignature}, &outputEnd{}
	cmd.Stdout, cmd.Stderr = out, text
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case limit.Err() != nil:
		return nil, fmt.Errorf("%w: %s did not end within %s", errSigning, words[0], signTimeout)
	case out.over:
		return nil, fmt.Errorf("%w: %s wrote more than %d bytes", errSigning, words[0], maxSignature)
	case errors.Is(err, exec.ErrNotFound) && words[0] == pkcs11Tool:
		return nil, fmt.Errorf("%w: %s is not installed (Debian has it in opensc)", errSigning, pkcs11Tool)
	case err != nil && text.line() != "":
		return nil, fmt.Errorf("%w: %s: %w: %s", errSigning, words[0], err, text.line())
	case err != nil:
		return nil, fmt.Errorf("%w: %s: %w", errSigning, words[0], err)
	}
	return out.b, nil
}

// boundedOutput keeps what is written to it, up to a limit.
type boundedOutput struct {
	b    []byte
	most int
	over bool
}

func (l *boundedOutput) Write(p []byte) (int, error) {
	if len(l.b)+len(p) > l.most {
		l.over = true
		return 0, errors.New("too long")
	}
	l.b = append(l.b, p...)
	return len(p), nil
}

// outputEnd keeps the end of what is written to it.
type outputEnd struct{ b []byte }

func (t *outputEnd) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if len(t.b) > 4<<10 {
		t.b = append([]byte(nil), t.b[len(t.b)-2<<10:]...)
	}
	return len(p), nil
}

// line returns the last line that names an error, otherwise the last line.
func (t *outputEnd) line() string {
	last := ""
	for l := range strings.Lines(string(t.b)) {
		l = strings.Join(strings.Fields(l), " ")
		switch {
		case l == "" || l == "Aborting.":
		case strings.Contains(strings.ToLower(last), "error") && !strings.Contains(strings.ToLower(l), "error"):
		default:
			last = l
		}
	}
	if len(last) > 300 {
		last = last[:300] + "…"
	}
	return strings.ToValidUTF8(last, "?")
}
