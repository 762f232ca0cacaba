package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/mender-app/mender-app/store/durable"
)

// MaxHandover is the maximum size of the data hooks hand on, in bytes.
const MaxHandover = 64 << 10

const handoverFile = "handover"

// Handover is what a hook of the open deployment left for later ones; nil for nothing.
func (a *App) Handover() ([]byte, error) {
	data, err := readUpTo(filepath.Join(a.Dir(), handoverFile), MaxHandover)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// SetHandover replaces the data that later hooks get.
func (a *App) SetHandover(data []byte) error {
	if len(data) > MaxHandover {
		return fmt.Errorf("a hook hands on %d bytes, the most is %d", len(data), MaxHandover)
	}
	return durable.WriteFile(filepath.Join(a.Dir(), handoverFile), data, 0o600)
}

// DropHandover removes the data that hooks handed on, if there is any.
func (a *App) DropHandover() error {
	path := filepath.Join(a.Dir(), handoverFile)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return durable.Remove(path)
}
