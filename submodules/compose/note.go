package compose

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"

	"github.com/mender-app/mender-app/store/durable"
)

// A note is what a call writes down beside the manifests for a later one, in JSON.

// maxNote bounds a note, in bytes.
const maxNote = 1 << 20

// readNote reads a note into note. It reports false if there is none, or a damaged one.
func readNote(path string, note any) (bool, error) {
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || !fi.Mode().IsRegular() || fi.Size() > maxNote {
		return false, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	return json.Unmarshal(text, note) == nil, nil
}

// writeNote replaces a note, durably.
func writeNote(path string, note any) error {
	text, err := json.MarshalIndent(note, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(path, append(text, '\n'), 0o600)
}
