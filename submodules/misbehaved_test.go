package submodules

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What is no answer is none, whatever the exit code says.
func TestAnswerIsTrueOrFalse(t *testing.T) {
	for reply, want := range map[string]string{"true": "", "": "", "[]": "neither true nor false", strings.Repeat("x", 1000): "neither true nor false"} {
		ok, err := script(t, "echo '"+reply+"'\n").Healthy(t.Context(), Request{App: "a"})
		require.Equal(t, want == "", ok, reply)
		if want != "" {
			require.ErrorContains(t, err, "sh HEALTHY: the reply is "+want)
			require.Less(t, len(err.Error()), 200)
		} else {
			require.NoError(t, err)
		}
	}
}

// A call does not wait for a process that left its group, and names it.
func TestProcessThatLeftIsNamed(t *testing.T) {
	m := script(t, "setsid sleep 4 &\nsleep 0.5\n")
	m.Config.KillAfter = 200 * time.Millisecond
	var said []string
	m.Config.Log = func(line string) { said = append(said, line) }
	begun := time.Now()
	require.NoError(t, m.Sync(t.Context(), Request{App: "a"}))
	require.Less(t, time.Since(begun), 3*time.Second)
	require.Equal(t, []string{"warning: sh SYNC left a process outside its process group that holds its output open"}, said)
}

// A reply to LOGS that is no log ends the call, however long it is; so does a reader
// that has enough.
func TestLogsThatAreNone(t *testing.T) {
	for text, want := range map[string]string{
		"yes hello\n":                  "is not the JSON of a log line",
		"yes '{\"line\":\"x\"}'\n":     "is not the JSON of a log line",
		"tr '\\0' x </dev/zero\n":      "is longer than",
		"echo 'error: no' >&2; exit 4": "sh LOGS: no",
	} {
		err := script(t, text).Logs(t.Context(), LogsRequest{Request: Request{App: "a"}}, func(LogLine) error { return nil })
		require.ErrorContains(t, err, want)
	}
	enough := errors.New("enough")
	lines := 0
	err := script(t, `yes '{"service":"web","stream":"stdout","line":"x"}'`).Logs(t.Context(), LogsRequest{Request: Request{App: "a"}}, func(LogLine) error {
		if lines++; lines == 1000 {
			return enough
		}
		return nil
	})
	require.Equal(t, enough, err)
	require.Equal(t, 1000, lines)
}
