package source

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"golang.org/x/sys/unix"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/mender-app/mender-app/artifact/image"
)

// maxAnswer is the most bytes of a registry's answer that are held in memory: a
// manifest, an index, a token or an error. containerd takes manifests of at most
// 4 MiB too; go-containerregistry alone would take 100 MiB.
const maxAnswer = 4 << 20

var errLongAnswer = fmt.Errorf("the registry's answer is longer than %d MiB", maxAnswer>>20)

// boundedAnswers ends answers that are too long. It does not bound blobs:
// go-containerregistry compares them with the size in the manifest while it reads
// them, and checkManifest bounds those sizes.
type boundedAnswers struct{ http.RoundTripper }

func (b boundedAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err != nil || isBlob(r) && resp.StatusCode < 300 {
		return resp, err
	}
	resp.Body = &boundedBody{ReadCloser: resp.Body, left: maxAnswer}
	return resp, nil
}

// isBlob reports whether a request is for a blob, even after redirects.
func isBlob(r *http.Request) bool {
	for r.Response != nil && r.Response.Request != nil {
		r = r.Response.Request
	}
	return strings.HasPrefix(r.URL.Path, "/v2/") && strings.Contains(r.URL.Path, "/blobs/sha256:")
}

type boundedBody struct {
	io.ReadCloser
	left int64
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, errLongAnswer
	}
	// reading one byte too many shows that the answer is too long
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left+1)])
	if b.left -= int64(n); b.left < 0 {
		return n - 1, errLongAnswer
	}
	return n, err
}

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
