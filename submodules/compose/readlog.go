package compose

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/docker/docker/api/types/container"
)

// logLine is one line of a container's output, without its end.
type logLine struct {
	at     time.Time // the zero time if the engine does not say
	stderr bool
	text   string // any bytes
}

// maxLogLine bounds a line of a log, in bytes; the rest of a longer one is left out.
const maxLogLine = 16 << 10

// readLog calls each for the lines of a container's log. With Follow it returns when
// the container ends.
func (s *session) readLog(ctx context.Context, id string, o container.LogsOptions, each func(logLine)) error {
	o.ShowStdout, o.ShowStderr, o.Timestamps = true, true, true
	r, err := s.engine.Client().ContainerLogs(ctx, id, o)
	if err != nil {
		return err
	}
	defer r.Close()
	in := io.Reader(r)
	if !o.Follow {
		in = io.LimitReader(r, maxLogs)
	}
	return splitLog(in, each)
}

// splitLog reads a log stream. Without a terminal each piece has a header of 8 bytes
// (stream, three zeros, length); with one there are only lines. A piece is a line, or
// a part of a long one, and begins with the time. Memory stays below two lines.
func splitLog(r io.Reader, each func(logLine)) error {
	in := bufio.NewReader(r)
	var streams [2]lineBuffer
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
		piece, err := io.ReadAll(io.LimitReader(in, min(size, 2*maxLogLine)))
		if err == nil && size > int64(len(piece)) {
			_, err = io.CopyN(io.Discard, in, size-int64(len(piece)))
		}
		if head[0] == 3 { // the engine's own error
			return fmt.Errorf("the engine cannot read the log: %s", oneLine(string(piece)))
		}
		buffer := &streams[head[0]/2]
		for part := range bytes.Lines(piece) {
			buffer.add(part, head[0] == 2, each)
		}
		if err != nil {
			return atEnd(err)
		}
	}
}

// atEnd is nil for the end of a log, which may be in the middle of a line.
func atEnd(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// lineBuffer is a line of which a part has been read.
type lineBuffer struct {
	line  logLine
	begun bool
	text  []byte
}

// add adds a part of a line. A newline ends the line.
func (b *lineBuffer) add(part []byte, stderr bool, each func(logLine)) {
	stamp, rest, found := bytes.Cut(part, []byte(" "))
	if at, err := time.Parse(time.RFC3339Nano, string(stamp)); found && err == nil {
		part = rest
		if !b.begun {
			b.line.at = at.UTC()
		}
	}
	text, ended := bytes.CutSuffix(part, []byte("\n"))
	if len(part) > 0 {
		b.begun = true
	}
	b.text = append(b.text, text[:min(len(text), maxLogLine-len(b.text))]...)
	if ended {
		b.end(stderr, each)
	}
}

// end reports the line, if there is one.
func (b *lineBuffer) end(stderr bool, each func(logLine)) {
	if !b.begun {
		return
	}
	each(logLine{at: b.line.at, stderr: stderr, text: string(bytes.TrimSuffix(b.text, []byte("\r")))})
	*b = lineBuffer{}
}
