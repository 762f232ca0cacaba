package device

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"

	"github.com/mender-app/mender-app/artifact/clip"
)

// NewLog returns a logger that writes each record to w as one line, in one
// write: the Mender client 3.4.0 makes each write an entry.
func NewLog(w io.Writer, level slog.Level) *slog.Logger {
	return slog.New(&lines{w: w, mu: &sync.Mutex{}, level: level})
}

// lines writes "message (key value, key value)", with the level before it
// unless that is INFO.
type lines struct {
	w     io.Writer
	mu    *sync.Mutex
	level slog.Level
	attrs []slog.Attr
}

func (h *lines) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level }

func (h *lines) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	c.attrs = append(append([]slog.Attr{}, h.attrs...), attrs...)
	return &c
}

func (h *lines) WithGroup(string) slog.Handler { return h }

func (h *lines) Handle(_ context.Context, r slog.Record) error {
	level := ""
	switch {
	case r.Level >= slog.LevelError:
		level = "error: "
	case r.Level >= slog.LevelWarn:
		level = "warning: "
	case r.Level < slog.LevelInfo:
		level = "debug: "
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := io.WriteString(h.w, level+text(r, h.attrs)+"\n")
	return err
}

// text writes a record as one line, without its level.
func text(r slog.Record, attrs []slog.Attr) string {
	var out strings.Builder
	out.WriteString(r.Message)
	sep := " ("
	add := func(a slog.Attr) bool {
		fmt.Fprintf(&out, "%s%s %s", sep, a.Key, word(a.Value.String()))
		sep = ", "
		return true
	}
	for _, a := range attrs {
		add(a)
	}
	r.Attrs(add)
	if sep == ", " {
		out.WriteByte(')')
	}
	return OneLine(out.String())
}

func word(s string) string {
	if s == "" {
		return `""`
	}
	return s
}

// OneLine makes a text one line: line breaks become " | ". It quotes characters that
// a terminal could take as commands, or that make it read in another way ([clip.Hostile]).
func OneLine(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return s // mostly
	}
	return clip.Quote(strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), " | "))
}
