package journal

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/mender-app/mender-app/store"
)

// Transcript is a handler of logs that also keeps the lines in the log of the
// deployment that a call works on.
type Transcript struct {
	slog.Handler // gets every line first
	// Text makes the text of a line, as Handler does.
	Text func(r slog.Record) string

	*transcript
}

type transcript struct {
	mu     sync.Mutex
	early  []early // before it is known which deployment the call works on
	s      *store.Store
	app    string
	number int64
	step   string
}

type early struct {
	app   string
	entry store.LogEntry
}

// maxEarly bounds what is kept before a deployment is known.
const maxEarly = 50

// NewTranscript returns a transcript that passes lines on to h.
func NewTranscript(h slog.Handler, text func(slog.Record) string) *Transcript {
	return &Transcript{Handler: h, Text: text, transcript: &transcript{}}
}

// Enabled is that of the handler: what nobody sees is not kept either.
func (t *Transcript) Enabled(ctx context.Context, l slog.Level) bool {
	return t.Handler.Enabled(ctx, l)
}

// Handle keeps a line.
func (t *Transcript) Handle(ctx context.Context, r slog.Record) error {
	t.keep(appOf(r), strings.ToLower(r.Level.String()), t.Text(r), r.Time)
	return t.Handler.Handle(ctx, r)
}

// WithAttrs does not change what is kept.
func (t *Transcript) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Transcript{Handler: t.Handler.WithAttrs(attrs), Text: t.Text, transcript: t.transcript}
}

// WithGroup does not change what is kept.
func (t *Transcript) WithGroup(name string) slog.Handler {
	return &Transcript{Handler: t.Handler.WithGroup(name), Text: t.Text, transcript: t.transcript}
}

// appOf is the application that a line is about; "" if it does not say.
func appOf(r slog.Record) (app string) {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "app" {
			app = a.Value.String()
		}
		return app == ""
	})
	return app
}

func (t *transcript) keep(app, level, text string, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	entry := store.LogEntry{At: at.UTC(), Step: t.step, Level: level, Text: text}
	switch {
	case t.s == nil:
		if len(t.early) < maxEarly {
			t.early = append(t.early, early{app, entry})
		}
	case app == "" || app == t.app:
		t.write(entry)
	}
}

// write appends a line. A log that cannot be written is not a reason to fail an update.
func (t *transcript) write(entry store.LogEntry) { _ = t.s.AddLog(t.app, t.number, entry) }

// Follow says that the call works on a step of an application's deployment. Earlier
// lines are kept with it, except those about other applications.
func (t *Transcript) Follow(s *store.Store, app string, number int64, step string) {
	if t == nil || number == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.s, t.app, t.number, t.step = s, app, number, step
	for _, l := range t.early {
		if l.app == "" || l.app == app {
			l.entry.Step = step
			t.write(l.entry)
		}
	}
	t.early = nil
}

// Leave says that the call does not work on that deployment any more.
func (t *Transcript) Leave() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.s = nil
}

// Fail keeps an error that ends a step.
func (t *Transcript) Fail(cause error, at time.Time) {
	if t == nil {
		return
	}
	t.keep("", store.LevelError, cause.Error(), at)
}
