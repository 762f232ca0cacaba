package artifact

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/metered"
)

// ErrOtherContent: a file has not the content that its name says.
var ErrOtherContent = errors.New("it is not what its name says")

// Compare reads a file to its end. The error is an ErrOtherContent if it is not the content.
// No more is read than the content has, and a byte.
func (c Content) Compare(ctx context.Context, file io.Reader) error {
	sum := sha256.New()
	n, err := io.Copy(sum, metered.Reader(ctx, io.LimitReader(file, c.Size+1), nil))
	if err != nil {
		return err
	}
	if n != c.Size || digest.OfHash(sum) != c.Digest {
		return ErrOtherContent
	}
	return nil
}
