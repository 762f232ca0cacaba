package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func historyOf(t *testing.T, n int) *Store {
	t.Helper()
	s := At(t.TempDir())
	var lines bytes.Buffer
	for i := range n {
		status := []string{StatusInstalled, StatusRolledBack, StatusRefused}[i%3]
		at := time.Unix(int64(1000*i), 0).UTC()
		line, err := json.Marshal(Record{
			ID: fmt.Sprint(i), Number: int64(i + 1), Application: "shop", Status: status, Started: at, Ended: at.Add(10 * time.Second),
		})
		require.NoError(t, err)
		lines.Write(append(line, '\n'))
	}
	require.NoError(t, os.MkdirAll(s.meta(historyDir), 0o700))
	require.NoError(t, os.WriteFile(s.HistoryFile("shop"), lines.Bytes(), 0o644))
	return s
}

func numbers(page []Record) (list []int64) {
	for _, r := range page {
		list = append(list, r.Number)
	}
	return list
}

// Pages follow one another without gap or repetition, whatever ends meanwhile.
func TestPagesOfDeployments(t *testing.T) {
	s := historyOf(t, 7)
	page, more, err := s.Deployments("shop", Query{Limit: 3})
	require.NoError(t, err)
	require.Equal(t, []int64{7, 6, 5}, numbers(page))
	require.NoError(t, s.AddHistory(Record{ID: "new", Application: "shop", Status: StatusInstalled}))
	page, more, err = s.Deployments("shop", Query{Limit: 3, Before: more})
	require.NoError(t, err)
	require.Equal(t, []int64{4, 3, 2}, numbers(page))
	page, more, err = s.Deployments("shop", Query{Limit: 3, Before: more})
	require.NoError(t, err)
	require.Equal(t, []int64{1}, numbers(page))
	require.Zero(t, more)
	page, more, err = s.Deployments("shop", Query{Limit: 1, Before: 2})
	require.NoError(t, err)
	require.Len(t, page, 1)
	require.Zero(t, more, "a full page without another one after it")
	page, more, err = s.Deployments("other", Query{})
	require.NoError(t, err)
	require.Empty(t, page)
	require.Zero(t, more)
}

func TestChosenDeployments(t *testing.T) {
	s := historyOf(t, 9)
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0) }
	for name, c := range map[string]struct {
		q    Query
		want []int64
	}{
		"status":       {Query{Statuses: []string{StatusRefused}}, []int64{9, 6, 3}},
		"two statuses": {Query{Statuses: []string{StatusRefused, StatusRolledBack}, Limit: 3}, []int64{9, 8, 6}},
		"since":        {Query{Since: at(7010)}, []int64{9, 8}},
		"until":        {Query{Until: at(1010)}, []int64{1}},
		"between":      {Query{Since: at(1010), Until: at(3010)}, []int64{3, 2}},
	} {
		page, _, err := s.Deployments("shop", c.q)
		require.NoError(t, err, name)
		require.Equal(t, c.want, numbers(page), name)
	}
	r, err := s.Deployment("shop", 4)
	require.NoError(t, err)
	require.Equal(t, "3", r.ID)
	_, err = s.Deployment("shop", 10)
	require.ErrorIs(t, err, ErrNoRecord)
}

// Numbers stay when old records go, and a record that is written twice keeps its own.
func TestNumbersOfDeployments(t *testing.T) {
	s := historyOf(t, maxHistory+4)
	require.NoError(t, s.AddHistory(Record{ID: "last", Application: "shop"}))
	records, err := s.History("shop")
	require.NoError(t, err)
	require.Len(t, records, maxHistory)
	require.EqualValues(t, 6, records[0].Number)
	last, found, err := s.Last("shop")
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, records[maxHistory-1], last)
	require.EqualValues(t, maxHistory+6, s.NextDeployment("shop"))
	last.Error = "again"
	require.NoError(t, s.AddHistory(last))
	again, err := s.Deployment("shop", last.Number)
	require.NoError(t, err)
	require.Equal(t, last, again)
}

// Records of an earlier version have no number.
func TestRecordsWithoutNumbers(t *testing.T) {
	s := historyOf(t, 3)
	text, err := os.ReadFile(s.HistoryFile("shop"))
	require.NoError(t, err)
	old := string(text)
	for i := range 3 {
		old = strings.Replace(old, fmt.Sprintf(`"number":%d,`, i+1), "", 1)
	}
	require.NotContains(t, old, "number")
	require.NoError(t, os.WriteFile(s.HistoryFile("shop"), []byte(old), 0o644))
	last, _, err := s.Last("shop")
	require.NoError(t, err)
	require.EqualValues(t, 3, last.Number)
	require.NoError(t, s.AddHistory(Record{ID: "new", Application: "shop"}))
	records, err := s.History("shop")
	require.NoError(t, err)
	require.Equal(t, []int64{1, 2, 3, 4}, numbers(records))
}

// The totals also count deployments that the history no longer has, and one that is
// written twice counts once. They need no more than the last line.
func TestTotals(t *testing.T) {
	s := historyOf(t, maxHistory) // an earlier version wrote it
	add := func(id, status string) {
		t.Helper()
		require.NoError(t, s.AddHistory(Record{ID: id, Application: "shop", Status: status, Ended: time.Unix(7e6, 0).UTC()}))
	}
	_, before, found, err := s.Totals("shop")
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, map[string]int64{StatusInstalled: 67, StatusRolledBack: 67, StatusRefused: 66}, before.Statuses)
	require.Equal(t, time.Unix(198_010, 0).UTC(), before.Success)
	for i := range maxHistory {
		add(fmt.Sprint("new", i), StatusFailed)
	}
	add("last", StatusFailed)
	add("last", StatusRestored)
	last, totals, _, err := s.Totals("shop")
	require.NoError(t, err)
	require.Equal(t, "last", last.ID)
	require.Equal(t, map[string]int64{StatusInstalled: 67, StatusRolledBack: 67, StatusRefused: 66, StatusFailed: maxHistory, StatusRestored: 1}, totals.Statuses)
	require.Equal(t, time.Unix(7e6, 0).UTC(), totals.Success)
	text, err := os.ReadFile(s.HistoryFile("shop"))
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(text), `"totals"`), "in the last line alone")

	// Only the last line is read: the others may be damaged.
	require.NoError(t, os.WriteFile(s.HistoryFile("shop"), append([]byte("{\n"), text[strings.LastIndex(strings.TrimSpace(string(text)), "\n")+1:]...), 0o644))
	_, again, _, err := s.Totals("shop")
	require.NoError(t, err)
	require.Equal(t, totals, again)
	add("after the damage", StatusInstalled)
	_, again, _, err = s.Totals("shop")
	require.NoError(t, err)
	require.Equal(t, map[string]int64{StatusInstalled: 1}, again.Statuses)
	_, _, found, err = s.Totals("none")
	require.NoError(t, err)
	require.False(t, found)
}

// The last record is found from the end, however long it is.
func TestLastOfLongRecords(t *testing.T) {
	s := historyOf(t, 2)
	for _, length := range []int{16<<10 - 1, 16 << 10, 70_000} {
		require.NoError(t, s.AddHistory(Record{ID: fmt.Sprint(length), Application: "shop", Error: strings.Repeat("x", length)}))
		r, _, err := s.Last("shop")
		require.NoError(t, err)
		require.Len(t, r.Error, length)
	}
}

func TestLogsOfDeployments(t *testing.T) {
	s := historyOf(t, 1)
	read := func(number int64) (texts []string) {
		t.Helper()
		require.NoError(t, s.DeploymentLog("shop", number, func(l LogEntry) error {
			texts = append(texts, l.Text)
			return nil
		}))
		return texts
	}
	require.NoError(t, s.AddLog("shop", 2, LogEntry{Text: "one"}))
	require.NoError(t, s.AddLog("shop", 2, LogEntry{Text: strings.Repeat("é", maxLogEntry)}))
	require.NoError(t, s.AddLog("shop", 2, LogEntry{Text: "three"}))
	got := read(2)
	require.Equal(t, "one", got[0])
	require.Less(t, len(got[1]), maxLogEntry+4)
	require.Equal(t, "three", got[2])

	// A power cut leaves half of a line, and zeros.
	f, err := os.OpenFile(s.logFile("shop", 2), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString("{\"at\":\"20\x00\x00\x00\n")
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.NoError(t, s.AddLog("shop", 2, LogEntry{Text: "after it"}))
	require.Equal(t, "after it", read(2)[3])

	for range 1000 {
		require.NoError(t, s.AddLog("shop", 3, LogEntry{Text: strings.Repeat("y", 1000)}))
	}
	require.NoError(t, s.AddLog("shop", 3, LogEntry{Level: LevelError, Text: "the error"}))
	got = read(3)
	require.Less(t, len(got), 100)
	require.Equal(t, "the error", got[len(got)-1])

	for n := range int64(maxLogs + 5) {
		require.NoError(t, s.AddLog("shop", n+2, LogEntry{Text: "x"}))
		require.NoError(t, s.AddHistory(Record{ID: fmt.Sprint("n", n), Application: "shop"}))
	}
	entries, err := os.ReadDir(s.logsDir("shop"))
	require.NoError(t, err)
	require.Len(t, entries, maxLogs)
	err = s.DeploymentLog("shop", 2, func(LogEntry) error { return nil })
	require.ErrorIs(t, err, ErrNoRecord)
	stop := errors.New("enough")
	require.ErrorIs(t, s.DeploymentLog("shop", maxLogs, func(LogEntry) error { return stop }), stop)
}
