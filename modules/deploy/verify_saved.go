package deploy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// verifySaved verifies one component of a sub-module without the feature verify:
// SAVE writes it, and its SHA-256 is compared. It needs the lock.
func (t *target) verifySaved(ctx context.Context, c store.Component) (problems []string, err error) {
	tmp, err := t.e.Store.Temp()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	path := filepath.Join(tmp, "component")
	err = t.client().Save(ctx, submodules.SaveRequest{Request: t.only(c).request(), URL: c.URL, Path: path})
	if errors.Is(err, submodules.ErrNotFound) {
		return []string{c.URL + ": it is missing"}, nil
	}
	if err != nil {
		return nil, err
	}
	sum, err := sumOf(path)
	if err != nil || sum == c.Digest {
		return nil, err
	}
	if archive, err := isImageArchive(path); !isFile(c) && (archive || err != nil) {
		return nil, errors.Join(cannotVerify(t), err) // an image is not the same file each time
	}
	return []string{fmt.Sprintf("%s: it is %s, and should be %s", c.URL, sum, c.Digest)}, nil
}

func cannotVerify(t *target) error {
	return fmt.Errorf("%w: sub-module %s cannot verify", submodules.ErrUsage, t.r.Orchestrator)
}
