package servicelog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// engine has the logs of two containers; one line of each is written a second.
type engine struct{}

// line is what container id writes in a second.
func line(id string, second int) string {
	at := time.Unix(int64(1.7e9)+int64(second), 0).UTC()
	return string(logStream(fmt.Sprintf("%s %s %d\n", at.Format(time.RFC3339Nano), id, second)))
}

func (e engine) open(ctx context.Context, id string, o Options) (io.ReadCloser, error) {
	if id == "mute" {
		return nil, errors.New("it has no log")
	}
	if !o.Follow {
		return io.NopCloser(strings.NewReader(line(id, 1) + line(id, 3))), nil
	}
	r, w := io.Pipe()
	go func() {
		for second := 1; ctx.Err() == nil; second++ {
			if int64(1.7e9)+int64(second) >= o.Since.Unix() { // like one that knows seconds only
				if _, err := io.WriteString(w, line(id, second)); err != nil {
					return
				}
			}
		}
	}()
	return r, nil
}

// What is printed is in the order of time; what follows does not say again what was
// printed, and ends with the first error of who takes the lines.
func TestFollow(t *testing.T) {
	enough := errors.New("enough")
	var mu sync.Mutex
	said := map[string][]string{}
	var order []string
	var failed []string
	r := Reader{
		Open: engine{}.open, Tail: 10,
		List: func(context.Context) ([]Source, error) {
			return []Source{{ID: "a", Running: true}, {ID: "b", Running: true}, {ID: "mute", Running: true}}, nil
		},
		Each: func(s Source, l Line) error {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, l.Text)
			if said[s.ID] = append(said[s.ID], l.Text); len(said["a"]) >= 10 && len(said["b"]) >= 10 {
				return enough
			}
			return nil
		},
		Failed: func(s Source, err error) { failed = append(failed, s.ID+": "+err.Error()) },
	}
	require.NoError(t, r.Print(t.Context()))
	require.Equal(t, []string{"a 1", "b 1", "a 3", "b 3"}, order)
	require.Equal(t, []string{"mute: it has no log"}, failed)

	clear(said)
	require.ErrorIs(t, r.Follow(t.Context()), enough)
	for id, lines := range said {
		require.Greater(t, len(lines), 5)
		for i, text := range lines[2:] {
			require.Equal(t, fmt.Sprintf("%s %d", id, i+4), text)
		}
	}

	// A context that ends ends it, also while nobody takes the lines.
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	r.Each = func(Source, Line) error { return nil }
	require.ErrorIs(t, r.Follow(ctx), context.DeadlineExceeded)
}
