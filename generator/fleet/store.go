package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"reflect"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/generator/places"
	"github.com/mender-app/mender-app/generator/write"
)

// Store is a place with deltas: for each of them content that devices fetch, and a record
// that says how the metadata of a release describes it. The record is the note KEY of the
// place. The content is durable before the record is there. Several processes may use a
// place at once.
type Store struct {
	place *places.Contents
	found map[string]*Made // by Key.Hex
}

// OpenStore finds out what a text names ([places.Forms]). It connects to nothing.
func OpenStore(text string) (*Store, error) {
	p, err := places.OpenContents(text)
	return &Store{place: p, found: map[string]*Made{}}, err
}

// Place is where the deltas are.
func (s *Store) Place() *places.Contents { return s.place }

// Made is the record of a delta.
type Made struct {
	Key     Key              `json:"key"`
	Variant artifact.Variant `json:"variant"` // with its content
}

// Find returns the record of a delta, if the store has the delta; nil if it has none, or
// something else than it should have, such as a file of another size. It does not read
// the delta, and does not look again for one that was there.
func (s *Store) Find(ctx context.Context, k Key) (*Made, error) {
	if m := s.found[k.Hex()]; m != nil {
		return m, nil
	}
	text, err := s.place.Note(ctx, k.Hex())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m := &Made{}
	if json.Unmarshal(text, m) != nil || m.Key.Hex() != k.Hex() || !m.describes(k) {
		return nil, nil
	}
	switch err := s.place.Has(ctx, *m.Variant.Content); {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, artifact.ErrOtherContent):
		return nil, nil
	case err != nil:
		return nil, err
	}
	s.found[k.Hex()] = m
	return m, nil
}

// describes reports whether the record is about a delta of the key: what anybody wrote into
// a store becomes part of the signed metadata of a release, and says which devices take it.
func (m *Made) describes(k Key) bool {
	v := m.Variant
	base := []artifact.Base{{URL: k.From.URL, Digest: k.From.Digest}}
	return v.Content != nil && v.Content.Digest.Check() == nil && v.Content.Size > 0 &&
		v.Format == artifact.FormatDelta && reflect.DeepEqual(v.Bases, base) && !v.Shared &&
		min(v.PayloadBytes, v.Temp, v.Memory, v.Engine, v.Decode) >= 0
}

// Verify reads a delta to its end, and returns an error unless it is what its record says.
func (s *Store) Verify(ctx context.Context, m *Made) error {
	if err := s.place.Compare(ctx, *m.Variant.Content); err != nil {
		return fmt.Errorf("%s: %s: %w", s.place, m.Variant.Content.Digest.Hex(), err)
	}
	return nil
}

// keep puts a delta from a file into the store, and then its record. It is durable then.
func (s *Store) keep(ctx context.Context, m *Made, path string) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err = s.place.Compare(ctx, *m.Variant.Content); errors.Is(err, fs.ErrNotExist) || errors.Is(err, artifact.ErrOtherContent) {
		err = s.place.Write(ctx, *m.Variant.Content, path)
	}
	if err == nil {
		err = s.place.SetNote(ctx, m.Key.Hex(), append(text, '\n'), []artifact.Content{*m.Variant.Content})
	}
	var local *fs.PathError
	if errors.As(err, &local) {
		err = &write.Error{Err: err}
	}
	return err
}
