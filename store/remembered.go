package store

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact/names"
)

// Remembered returns the applications, and those that are gone and have a history,
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
