package submodules

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Override is a layer that changes the manifests of a release, in the orchestrator's own
// form: for Compose, an override file.
type Override struct {
	Name string // the file's name, for errors
	Text string
}

// Bounds of the overrides of an application.
const (
	MaxOverride  = 64 << 10 // bytes of one
	MaxOverrides = 64
)

// Renderer is a Session with the feature overrides/1.
type Renderer interface {
	// Render returns the manifests in the directory of the request, with the overrides.
	Render(ctx context.Context, r Request) ([]byte, error)
}

func render(ctx context.Context, s Renderer, r Request, out io.Writer) error {
	text, err := s.Render(ctx, r)
	if err == nil {
		_, err = out.Write(text)
	}
	return err
}

// writeOverrides writes the overrides into a new directory below dir. The names of the
// files keep the order.
func writeOverrides(dir string, list []Override) (string, error) {
	to, err := os.MkdirTemp(dir, "overrides-*")
	if err != nil {
		return "", err
	}
	for i, o := range list {
		name := filepath.Join(to, fmt.Sprintf("%02d-%s", i, filepath.Base(o.Name)))
		if err := os.WriteFile(name, []byte(o.Text), 0o600); err != nil {
			return "", errors.Join(err, os.RemoveAll(to))
		}
	}
	return to, nil
}

// readOverrides reads the files of a directory, in the order of their names.
func readOverrides(dir string) (list []Override, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() || info.Size() > MaxOverride || len(list) == MaxOverrides {
			return nil, fmt.Errorf("%s is not a file of at most %d bytes, or there are more than %d", filepath.Join(dir, e.Name()), MaxOverride, MaxOverrides)
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		list = append(list, Override{Name: e.Name(), Text: string(text)})
	}
	return list, nil
}
