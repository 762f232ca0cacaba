// Package composemodule reads the artifacts of the update module docker-compose of
// mender-container-modules. Their metadata names nothing but the project. Only the
// image archives in the payload have the names and digests of the images, so an
// archive is kept in a file until it is read.
package composemodule

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/internal/tarin"
	"github.com/mender-app/mender-app/artifact/strictjson"
)

// PayloadType is the payload type of the artifacts, and the name of the module.
const PayloadType = "docker-compose"

// ManifestsPayload is the second file of the payload. The first has the name of ours,
// artifact.ImagesPayload.
const ManifestsPayload = "manifests.tar"

// orchestrator is the sub-module that runs the projects.
const orchestrator = "docker-compose"

// version is the one version of the metadata.
const version = "1"

// Parser returns a function that reads the metadata, as artifact.ParseMetadata does.
// The artifact does not name its platform: it is taken to be for the first of the
// device's platforms, or the platform of this program. The error is an
// artifact.ErrMetadata.
func Parser(platforms []image.Platform) func([]byte) (*artifact.Metadata, []string, error) {
	platform := image.Platform{OS: runtime.GOOS, Arch: runtime.GOARCH}
	if len(platforms) > 0 {
		platform = platforms[0]
	}
	return func(b []byte) (*artifact.Metadata, []string, error) {
		m, err := parse(b, platform)
		return m, nil, err
	}
}

func parse(b []byte, platform image.Platform) (*artifact.Metadata, error) {
	var text struct {
		Version json.RawMessage `json:"version"`
		Project string          `json:"project_name"`
	}
	if len(b) > artifact.MaxMetadata {
		return nil, fmt.Errorf("%w: larger than %d bytes", artifact.ErrMetadata, artifact.MaxMetadata)
	}
	if err := strictjson.Unmarshal(b, &text); err != nil {
		return nil, fmt.Errorf("%w: not the metadata of mender-container-modules: %w", artifact.ErrMetadata, err)
	}
	if v := strings.Trim(string(text.Version), `"`); v != version {
		return nil, fmt.Errorf("%w: version %q of mender-container-modules, want %s", artifact.ErrMetadata, v, version)
	}
	m := &artifact.Metadata{
		Version: artifact.VersionReference, ApplicationName: text.Project, Orchestrator: orchestrator, Platform: platform.String(),
	}
	if err := m.Validate(); err != nil {
		return nil, err
	}
	return m, nil
}

// Image is one image of the payload.
type Image struct {
	URLs   []string // the names that the archive gives it, at least one
	Digest digest.Digest
	Path   string // the archive, until fn returns
	Bytes  int64  // of the archive
}

const (
	imagesDir   = "images"
	maxArchives = 1024
	maxNames    = 64 // of one image
)

// ReadImages reads the images payload (tar, or tar.gz) and calls fn for each image
// that has a name. It keeps one archive at a time in dir, of at most room bytes.
// ReadImages returns nil only if the payload was read to its end and every image is
// whole.
func ReadImages(r io.Reader, dir string, room int64, fn func(Image) error) error {
	seen := map[string]bool{} // by name and digest
	tr, err := tarin.NewReader(r, tarin.Options{
		MaxBytes: artifact.DefaultMaxImages, MaxMembers: maxArchives, Format: artifact.ErrPayload, TooLarge: artifact.ErrTooLarge,
	})
	if err != nil {
		return fmt.Errorf("images: %w", err)
	}
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("images: %w", err)
		}
		name, below := strings.CutPrefix(h.Name, imagesDir+"/")
		switch {
		case h.Typeflag == tar.TypeDir && (below || h.Name == imagesDir):
			continue
		case h.Typeflag != tar.TypeReg || !below || strings.Contains(name, "/"):
			return fmt.Errorf("images: %w: member %q is not an image", artifact.ErrPayload, h.Name)
		case h.Size > room:
			return fmt.Errorf("images: %w: %q has %d bytes, %d may be kept", artifact.ErrSpool, name, h.Size, room)
		}
		if err := readArchive(filepath.Join(dir, "archive"), tr, seen, fn); err != nil {
			return fmt.Errorf("images: %q: %w", name, err)
		}
	}
}

// readArchive keeps an archive at path and calls fn for each of its images.
func readArchive(path string, content io.Reader, seen map[string]bool, fn func(Image) error) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("%w: %w", artifact.ErrSpool, err)
	}
	defer os.Remove(path)
	defer f.Close()
	size, err := io.Copy(f, content)
	if err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	images, err := image.ReadStream(f, image.Limits{}, image.Handler{})
	if err != nil {
		return fmt.Errorf("%w: %w", artifact.ErrPayload, err)
	}
	for _, i := range images {
		if len(i.Tags) > maxNames {
			return fmt.Errorf("%w: an image with %d names", artifact.ErrTooLarge, len(i.Tags))
		}
		var names []string
		for _, name := range i.Tags {
			if err := artifact.CheckURL(name); err != nil {
				return fmt.Errorf("%w: %w", artifact.ErrPayload, err)
			}
			if key := name + " " + i.ConfigDigest.String(); !seen[key] {
				names, seen[key] = append(names, name), true
			}
		}
		if len(names) == 0 {
			continue // without a name no Compose file can use it
		}
		if err := fn(Image{URLs: names, Digest: i.ConfigDigest, Path: path, Bytes: size}); err != nil {
			return err
		}
	}
	return nil
}
