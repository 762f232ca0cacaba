package submodules

import (
	"context"
	"encoding/json"
	"io"
	"time"
)

// LogLine is one line of the answer to LOGS.
type LogLine struct {
	Service  string    `json:"service"`
	Instance string    `json:"instance,omitempty"` // the container's name
	At       time.Time `json:"at,omitzero"`
	Stream   string    `json:"stream"` // stdout or stderr
	Text     string    `json:"line"`   // as the service wrote it; invalid UTF-8 is replaced
}

// DefaultLogLines is how many lines of each instance LOGS prints by default, and
// MaxLogLines the maximum.
const (
	DefaultLogLines = 100
	MaxLogLines     = 1_000_000
)

// maxLogLine bounds a line of the answer to LOGS, in bytes of JSON. A character of a
// service's line takes up to six of them.
const maxLogLine = 256 << 10

// Logger is a Session with the feature logs/1.
type Logger interface {
	// Logs calls each for the lines of the application's services, or of one, ordered by
	// time; one call at a time. An error of each ends it. With r.Follow it ends only with
	// its context.
	Logs(ctx context.Context, r LogsRequest, each func(LogLine) error) error
}

// logs prints lines of JSON.
func logs(ctx context.Context, l Logger, r LogsRequest, out io.Writer) error {
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	return l.Logs(ctx, r, func(line LogLine) error { return lines.Encode(line) })
}
