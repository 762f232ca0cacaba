package source

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/mender-app/mender-app/artifact/image"
)

// checkManifest refuses a manifest whose blobs have no bounds: sizes that are
// missing, a config larger than image.MaxConfig, too many layers.
func checkManifest(img v1.Image) error {
	m, err := img.Manifest()
	if err != nil {
		return err
	}
	if m.Config.Size > image.MaxConfig {
		return fmt.Errorf("%w: an image config of %d bytes", image.ErrTooLarge, m.Config.Size)
	}
	if len(m.Layers) > image.MaxLayers {
		return fmt.Errorf("%w: an image of %d layers", image.ErrTooLarge, len(m.Layers))
	}
	for _, d := range append(m.Layers, m.Config) {
		if d.Size < 0 {
			return errors.New("the manifest has a negative size")
		}
		if d.Digest.Algorithm != "sha256" {
			return fmt.Errorf("digests of %.20q are not supported: push the image with sha256", d.Digest.Algorithm)
		}
	}
	return nil
}

// freeSpace is how many bytes a directory's file system has for us.
func freeSpace(dir string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}
