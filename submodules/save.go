package submodules

import (
	"context"
	"io"

	"github.com/mender-app/mender-app/artifact/output"
)

// SaveTo writes what SAVE saves to Path, or to Stdout for "-". A regular file appears
// when it is whole, and only its owner can read it; see package output for what else
// Path may be.
func (r Request) SaveTo(ctx context.Context, save func(io.Writer) error) error {
	if r.Path == "-" {
		return save(r.Stdout)
	}
	return output.Write(ctx, r.Path, 0o600, save)
}
