// Package servicelog reads the logs of instances of services, such as containers: a
// single log, or several merged by time and followed. It must not know applications,
// and it knows engines only by the format of their logs.
package servicelog

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Line is one line of an instance's output, without its end.
type Line struct {
	At     time.Time // the zero time if the engine does not say
	Stderr bool
	Text   string // any bytes, MaxLine at most
}

// MaxLine bounds a line, in bytes; longer lines are cut.
const MaxLine = 16 << 10

// Options say which lines of a log to read.
type Options struct {
	Tail   int       // how many of the newest existing lines; with Follow all of them
	Since  time.Time // skip older lines; the zero time means no bound
	Follow bool      // also read lines as they are written
}

// Open opens the log of an instance. Each line begins with its time, in RFC 3339
// form, and a space. A log may be the stream of Docker's API or plain lines (Split).
type Open func(ctx context.Context, id string, o Options) (io.ReadCloser, error)

// Read calls each for the lines of an instance's log. With Follow it returns when the
// instance ends.
func Read(ctx context.Context, open Open, id string, o Options, each func(Line)) error {
	r, err := open(ctx, id, o)
	if err != nil {
		return err
	}
	defer r.Close()
	defer context.AfterFunc(ctx, func() { _ = r.Close() })() // do not wait for an engine that hangs
	return Split(r, func(l Line) {
		// An engine may know only whole seconds.
		if l.At.IsZero() || !l.At.Before(o.Since) {
			each(l)
		}
	})
}

// Split reads a log stream. Docker's, without a terminal, has pieces with a header of 8
// bytes (stream, three zeros, length). With a terminal, and from Kubernetes, there are
// only lines. A piece is a line, or a part of a long one, and begins with the time.
// Memory stays below three lines.
func Split(r io.Reader, each func(Line)) error {
	in := bufio.NewReader(r)
	var streams [2]buffer
	defer func() {
		for i := range streams {
			streams[i].end(i == 1, each)
		}
	}()
	head, err := in.Peek(8)
	if err != nil || head[0] > 3 || head[1]|head[2]|head[3] != 0 {
		for err = nil; err == nil; {
			var part []byte
			part, err = in.ReadSlice('\n')
			if errors.Is(err, bufio.ErrBufferFull) {
				err = nil
			}
			streams[0].add(part, false, each)
		}
		return atEnd(err)
	}
	for {
		var head [8]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return atEnd(err)
		}
		size := int64(binary.BigEndian.Uint32(head[4:]))
		piece, err := io.ReadAll(io.LimitReader(in, min(size, 2*MaxLine)))
		if err == nil && size > int64(len(piece)) {
			_, err = io.CopyN(io.Discard, in, size-int64(len(piece)))
		}
		if head[0] == 3 { // the engine's own error
			return fmt.Errorf("the engine cannot read the log: %s", strings.TrimSpace(string(piece)))
		}
		stream := &streams[head[0]/2%2]
		for part := range bytes.Lines(piece) {
			stream.add(part, head[0] == 2, each)
		}
		if err != nil {
			return atEnd(err)
		}
	}
}

// atEnd returns nil for the end of a log, which may be in the middle of a line.
func atEnd(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// buffer is a partly read line.
type buffer struct {
	at    time.Time // for a line without a time, that of the previous line
	begun bool
	text  []byte
}

// add adds a part of a line. A newline ends the line.
func (b *buffer) add(part []byte, stderr bool, each func(Line)) {
	stamp, rest, found := bytes.Cut(part, []byte(" "))
	if at, err := time.Parse(time.RFC3339Nano, string(stamp)); found && err == nil {
		part = rest
		if !b.begun {
			b.at = at.UTC()
		}
	}
	b.begun = b.begun || len(part) > 0
	text, ended := bytes.CutSuffix(part, []byte("\n"))
	b.text = append(b.text, text[:min(len(text), MaxLine-len(b.text))]...)
	if ended {
		b.end(stderr, each)
	}
}

// end reports the line, if there is one.
func (b *buffer) end(stderr bool, each func(Line)) {
	if b.begun {
		each(Line{At: b.at, Stderr: stderr, Text: string(bytes.TrimSuffix(b.text, []byte("\r")))})
	}
	b.begun, b.text = false, nil
}
