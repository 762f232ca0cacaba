package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/input"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/generator"
)

// recordsDir has a record of each delta in a store, KEY.json.
const recordsDir = "made"

// maxRecordFile bounds a record, in bytes.
const maxRecordFile = 1 << 20

// Store is a directory with deltas: for each of them a file that devices fetch, which is
// named by its digest, and a record that says how the metadata of a release describes it.
// The file is durable before the record is there. Several processes may use it at once.
type Store struct{ Dir string }

// Made is the record of a delta.
type Made struct {
	Key     Key              `json:"key"`
	Variant artifact.Variant `json:"variant"` // with its content
}

func (s *Store) record(hex string) string { return filepath.Join(s.Dir, recordsDir, hex+".json") }

// Content is the path of a file that devices fetch.
func (s *Store) Content(c artifact.Content) string { return filepath.Join(s.Dir, c.Digest.Hex()) }

// Find returns the record of a delta, if the store has the delta; nil if it has none, or
// something else than it should have, such as a file of another size. It does not read
// the delta.
func (s *Store) Find(k Key) (*Made, error) {
	text, err := input.Read(s.record(k.Hex()), maxRecordFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m := &Made{}
	if json.Unmarshal(text, m) != nil || m.Key.Hex() != k.Hex() || m.Variant.Content == nil || m.Variant.Content.Digest.Check() != nil {
		return nil, nil
	}
	info, err := os.Stat(s.Content(*m.Variant.Content))
	if err != nil || !info.Mode().IsRegular() || info.Size() != m.Variant.Content.Size {
		return nil, nil
	}
	return m, nil
}

// Verify reads a delta to its end, and returns an error unless it is what its record says.
func (s *Store) Verify(ctx context.Context, m *Made) error {
	path := s.Content(*m.Variant.Content)
	f, err := input.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := m.Variant.Content.Compare(ctx, f); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// keep puts a delta from a file into the store, and then its record. It is durable then.
func (s *Store) keep(ctx context.Context, m *Made, path string) error {
	if err := os.MkdirAll(filepath.Join(s.Dir, recordsDir), 0o755); err != nil {
		return &generator.WriteError{Err: err}
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	err = generator.WriteFile(ctx, s.Content(*m.Variant.Content), "", func(w io.Writer) error {
		_, err := io.Copy(w, metered.Reader(ctx, f, nil))
		return err
	})
	if err != nil {
		return err
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return generator.WriteFile(ctx, s.record(m.Key.Hex()), "", func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
}
