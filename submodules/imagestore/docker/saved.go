package docker

import (
	"context"
	"errors"

	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

type oldContent = imagestore.Old

type saved struct{}

func (e *Engine) openSaved() (oldContent, error) { return saved{}, nil }

func (saved) OpenFile(context.Context, delta.Digest, string) (delta.File, error) {
	return nil, errors.New("not yet")
}
func (saved) Headers(context.Context, delta.Digest) (delta.HeaderReader, error) {
	return nil, errors.New("not yet")
}
func (saved) Close() error { return nil }
