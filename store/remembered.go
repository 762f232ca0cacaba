package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact/names"
)

// Remembered returns the applications, including removed ones that have a history,
// sorted. It needs no lock.
func (s *Store) Remembered() ([]string, error) {
	apps, err := s.Apps()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(s.meta(historyDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".jsonl"); ok && names.Check(name) == nil {
			apps = append(apps, name)
		}
	}
	slices.Sort(apps)
	return slices.Compact(apps), nil
}

// Stamp changes when the state or the history of an application does. It reads neither,
// and needs no lock.
func (s *Store) Stamp(name string) string {
	stamp := ""
	for _, path := range []string{filepath.Join(s.appDir(name), stateFile), s.HistoryFile(name)} {
		var st unix.Stat_t
		if unix.Stat(path, &st) == nil { // each write makes a new file
			stamp += fmt.Sprint(st.Ino, " ", st.Size, " ", st.Mtim)
		}
		stamp += "|"
	}
	return stamp
}
