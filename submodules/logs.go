package submodules

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// LogLine is one line of the answer to LOGS.
type LogLine struct {
	Service  string    `json:"service"`
	Instance string    `json:"instance,omitempty"` // the container's name
	At       time.Time `json:"at,omitzero"`
	Stream   string    `json:"stream"` // stdout or stderr
	Text     string    `json:"line"`   // as the service wrote it; what is not UTF-8 is replaced
}

// DefaultLogLines is how many lines of each instance LOGS prints where nothing is said,
// and MaxLogLines the most.
const (
	DefaultLogLines = 100
	MaxLogLines     = 1_000_000
)

// maxLogLine bounds a line of the answer to LOGS, in bytes of JSON. A character of a
// service's line takes up to six of them.
const maxLogLine = 256 << 10

// Logger is a Session with the feature logs/1.
type Logger interface {
	// Logs calls each for the lines of the application's services, or of one, in the
	// order of time; one call at a time. An error of each ends it. With the option
	// follow it ends only with its context.
	Logs(ctx context.Context, each func(LogLine) error) error
}

// logs prints lines of JSON.
func logs(ctx context.Context, c *call) error {
	l, ok := c.session.(Logger)
	if !ok {
		return Mark(errors.New("this sub-module has no logs"), ErrUsage)
	}
	out := json.NewEncoder(c.out)
	out.SetEscapeHTML(false)
	return l.Logs(ctx, func(line LogLine) error { return out.Encode(line) })
}

// Logs calls each for the lines of the services' logs (feature logs/1). An error of
// each ends the call and is returned.
func (m *Module) Logs(ctx context.Context, r Request, each func(LogLine) error) error {
	args := []string{r.App}
	if r.Service != "" {
		args = append(args, r.Service)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := &replyLines{verb: VerbLogs, most: maxLogLine, fail: cancel, each: func(text []byte) error {
		var line LogLine
		if json.Unmarshal(text, &line) != nil || line.Service == "" {
			return fmt.Errorf("%s: a line of the reply is not the JSON of a log line: %.80q", VerbLogs, text)
		}
		return each(line)
	}}
	err := m.runTo(ctx, r, lines, VerbLogs, args...)
	if lines.err != nil {
		return lines.err
	}
	return err
}

// replyLines reads a reply line by line, while it is written.
type replyLines struct {
	verb string
	most int // bytes of a line
	each func(line []byte) error
	fail func() // ends the call
	rest []byte
	err  error
}

func (l *replyLines) Write(p []byte) (int, error) {
	for part := range bytes.Lines(p) {
		if l.err != nil {
			break
		}
		l.rest = append(l.rest, part...)
		if l.rest[len(l.rest)-1] != '\n' {
			if len(l.rest) > l.most {
				l.err = fmt.Errorf("%s: a line of the reply is longer than %d bytes", l.verb, l.most)
			}
			continue
		}
		l.err = l.each(l.rest)
		l.rest = l.rest[:0]
	}
	if l.err != nil {
		l.fail()
	}
	return len(p), l.err
}
