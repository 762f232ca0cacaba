package fleet

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func inventory(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestGarbage(t *testing.T) {
	for _, c := range []struct{ name, text, says string }{
		{"x.jsonl", `{"device_type":"a"}` + "\n[1]\n", "x.jsonl:2: it is no JSON object"},
		{"x.jsonl", `{"device_type":"a"}` + "\n{\"device_type\":{}}\n", "device_type is an object"},
		{"x.jsonl", `{"device_type":"a"}` + "\n{\"version\":[1]}\n", "version is a list of other things"},
		{"x.jsonl", `{"device_type":"a"}` + "\n{}\n", "it has neither a device_type nor a version"},
		{"x.jsonl", `{"device_type":"a"}` + "\n{\"version\":\"a\\u001b\"}\n", "control characters"},
		{"x.jsonl", `{"device_type":"a"}` + "\n{\"version\":\"" + strings.Repeat("a", 600) + "\"}\n", "more than 512 bytes"},
		{"x.jsonl", `{"device_type":"a"}` + "\n{\"version\":\"" + strings.Repeat("a", maxRecord+1) + "\"}\n{\"version\":\"1\"}", "x.jsonl:2: the line has more than"},
		{"x.json", `[{"attributes":[{"name":"device_type","value":"a"}]},{"attributes":7}]`, "x.json:2: its attributes are no list"},
		{"x.json", `[{"attributes":[{"name":"device_type","value":"a"}]}, 7]`, "x.json:2: it is no JSON object"},
		{"x.csv", "device_type,version\na,1\nb\n", "x.csv:3: it has 1 field, and the first line has 2"},
		{"x.csv", "device_type,version\na,1\n\"b\"x,1\n", "x.csv:3: "},
	} {
		path := inventory(t, c.name, c.text)
		_, err := ReadInventories(t.Context(), []string{path}, "shop", false)
		require.ErrorContains(t, err, c.says)
		in, err := ReadInventories(t.Context(), []string{path}, "shop", true)
		require.NoError(t, err)
		require.EqualValues(t, 1, in.Skipped, c.text[:min(len(c.text), 80)])
		require.Len(t, in.Garbage, 1)
		require.Positive(t, in.Devices)
	}
	for _, text := range []string{`[{"version":"1"}`, `[{"version":"1"},]`, `[] x`, "", "[]"} {
		_, err := ReadInventories(t.Context(), []string{inventory(t, "x", text)}, "shop", false)
		require.Error(t, err, text)
	}
	// Devices decide what is in their inventories: too many versions are refused.
	var b strings.Builder
	for i := range maxRows + 2 {
		fmt.Fprintf(&b, "{\"version\":\"%d\"}\n", i)
	}
	_, err := ReadInventories(t.Context(), []string{inventory(t, "x", b.String())}, "shop", true)
	require.ErrorContains(t, err, "different versions")
}

// A million devices, as Mender's inventory exports them, as JSON lines and as CSV, take
// little memory, and little processor time beside that of Go's decoders, which count
// nothing. On a free machine it is 2.5 seconds.
func TestMillionDevices(t *testing.T) {
	if testing.Short() {
		t.Skip("writes and reads 250 MB")
	}
	const devices = 1_000_000
	for form, most := range map[string]time.Duration{"list": 1, "lines": 1, "csv": 4} { // times that of Go's decoder
		path := filepath.Join(t.TempDir(), form)
		f, err := os.Create(path)
		require.NoError(t, err)
		w := bufio.NewWriterSize(f, 1<<20)
		for i := range devices {
			version := fmt.Sprintf("shop-%d", i%20)
			switch form {
			case "list":
				sep := ","
				if i == 0 {
					sep = "["
				}
				fmt.Fprintf(w, `%s{"id":"%032d","attributes":[{"name":"device_type","value":"box-%d","scope":"inventory"},{"name":"app_shop_artifact","value":"%s","scope":"inventory"},{"name":"kernel","value":"Linux version 6.1","scope":"inventory"}],"updated_ts":"2026-11-28T00:00:00Z"}`, sep, i, i%3, version)
			case "lines":
				fmt.Fprintf(w, `{"device_type":"box-%d","app_shop_artifact":["%s"],"mender_app_version":["1.0.0"]}`+"\n", i%3, version)
			case "csv":
				if i == 0 {
					fmt.Fprintln(w, "id,device_type,version")
				}
				fmt.Fprintf(w, "%d,box-%d,%s\n", i, i%3, version)
			}
		}
		if form == "list" {
			fmt.Fprint(w, "]")
		}
		require.NoError(t, w.Flush())
		require.NoError(t, f.Close())

		runtime.GC()
		began, before := time.Now(), processorTime(t)
		peak := watchHeap(t)
		in, err := ReadInventories(t.Context(), []string{path}, "shop", false)
		took, heap := time.Since(began), peak()
		require.NoError(t, err)
		require.EqualValues(t, devices, in.Devices)
		require.Len(t, in.Rows, 60)
		cpu := processorTime(t) - before
		t.Logf("%s: %v, %v of processor time, %d MiB of heap", form, took.Round(time.Millisecond), cpu.Round(time.Millisecond), heap>>20)
		before = processorTime(t)
		decodeAll(t, path, form)
		require.Less(t, cpu, most*(processorTime(t)-before))
		require.Less(t, heap, uint64(200<<20))
		require.NoError(t, os.Remove(path))
	}
}

// decodeAll reads an inventory with Go's decoders alone.
func decodeAll(t *testing.T, path, form string) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	if form == "csv" {
		r := csv.NewReader(f)
		for err == nil {
			_, err = r.Read()
		}
		require.ErrorIs(t, err, io.EOF)
		return
	}
	d := json.NewDecoder(f)
	if form == "list" {
		_, err = d.Token()
		require.NoError(t, err)
	}
	for d.More() {
		var device any
		require.NoError(t, d.Decode(&device))
	}
}

// watchHeap watches what the process has from the system for its heap, until the
// returned function is called.
func watchHeap(t *testing.T) func() uint64 {
	t.Helper()
	stop, done := make(chan struct{}), make(chan uint64)
	go func() {
		var most uint64
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapInuse)
			select {
			case <-stop:
				done <- most
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return func() uint64 { close(stop); return <-done }
}

func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// What encoding/json reads of an object is what counts, and what it refuses is refused.
func FuzzDevice(f *testing.F) {
	for _, s := range []string{
		`{"device_type":"a"}`, `{"attributes":[{"name":"device_type","value":["b"]}]}`, `{"version":"a\\\"b","x":[1,{"y":null}]}`, `{"version":1.5e3}`, `{"version":tru}`, `{"a":"\\"}`, `{}`, `{"a":}`, `{,}`, `[1,2]`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		a := attributesOf("shop")
		row, err := a.device(text)
		var flat map[string]json.RawMessage
		if json.Unmarshal(text, &flat) != nil {
			return // texts with bytes that JSON does not allow may be read: nothing is made of them
		}
		if _, listed := flat["attributes"]; listed || err != nil {
			return
		}
		if version, ok := flat["device_type"]; ok && strings.Count(string(text), "device_type") == 1 {
			want, werr := textOf(version)
			require.NoError(t, werr)
			require.Equal(t, want, row.DeviceType)
		}
	})
}
