package servicelog

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func logStream(parts ...string) []byte {
	var b []byte
	for _, p := range parts {
		b = append(b, 1, 0, 0, 0)
		b = binary.BigEndian.AppendUint32(b, uint32(len(p)))
		b = append(b, p...)
	}
	return b
}

func FuzzSplit(f *testing.F) {
	f.Add(logStream("2026-11-24T07:13:39.5Z one\n", "two\n"))
	f.Add([]byte("a terminal's\r\nlog\n"))
	f.Add([]byte{1, 0, 0, 0, 255, 255, 255, 255, 'x'})
	f.Fuzz(func(t *testing.T, in []byte) {
		size := 0
		_ = Split(bytes.NewReader(in), func(l Line) {
			size += len(l.Text)
			if len(l.Text) > MaxLine || strings.Contains(l.Text, "\n") {
				t.Fatalf("not a line: %q", l.Text)
			}
		})
		if size > len(in) {
			t.Fatal("more comes out than went in")
		}
	})
}

func TestSplit(t *testing.T) {
	split := func(in []byte) (list []Line) {
		require.NoError(t, Split(bytes.NewReader(in), func(l Line) { list = append(list, l) }))
		return list
	}
	at := time.Date(2026, 11, 24, 7, 13, 39, 5e8, time.UTC)
	stamp := at.Format(time.RFC3339Nano) + " "
	require.Equal(t, []Line{{at, false, "one"}, {at, false, ""}, {at, false, "two"}},
		split(logStream(stamp+"one\n", "", stamp+"\n", "two\n")))
	later := at.Add(time.Second).Format(time.RFC3339Nano) + " "
	require.Equal(t, []Line{{at, false, "a long line"}}, split(logStream(stamp+"a long", later+" line\n")))
	require.Equal(t, []Line{{at, true, "oh"}}, split(append([]byte{2}, logStream(stamp + "oh\n")[1:]...)))
	require.Equal(t, []Line{{at, false, "with a terminal"}, {at, false, "short"}}, split([]byte(stamp+"with a terminal\r\nshort")))
	require.Equal(t, []Line{{time.Time{}, false, "short"}}, split([]byte("short")))
	require.Empty(t, split(nil))
	long := split(logStream(strings.Repeat("x", 20<<10), strings.Repeat("y", 20<<10)+"\n", "next\n"))
	require.Len(t, long, 2)
	require.Len(t, long[0].Text, MaxLine)
	require.Equal(t, "next", long[1].Text)
	require.ErrorContains(t, Split(bytes.NewReader(append([]byte{3}, logStream("no log driver\n")[1:]...)), nil), "no log driver")
}
