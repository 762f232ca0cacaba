package backup

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/artifact/statement"
	"github.com/mender-app/mender-app/store"
)

// Maker makes an artifact from an installed release: full images, and nothing that the
// release did not come with. The artifact is not signed; the statement that the
// release's maker signed stays.
type Maker struct {
	App        *store.App
	Release    *store.Release
	DeviceType string
	Dir        string // for temporary files
	// Save writes a component to the file path, as the sub-module's SAVE does.
	Save func(ctx context.Context, c store.Component, path string) error
	Warn func(line string)
}

// Make returns the artifact. Its files are in m.Dir.
func (m *Maker) Make(ctx context.Context) (*mender.Spec, error) {
	r := m.Release
	meta := &artifact.Metadata{
		Version: artifact.VersionCurrent, ApplicationName: m.App.Name, ApplicationVersion: r.Version, Orchestrator: r.Orchestrator,
		Platform: r.Platform, Env: r.Env, Sizes: &artifact.Sizes{},
	}
	images, err := m.images(ctx, meta)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(m.Dir, artifact.ManifestsPayload)
	manifests, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	defer manifests.Close()
	root, err := os.OpenRoot(m.App.ReleaseManifests(r.ID))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	written, err := artifact.WriteManifests(manifests, root.FS())
	if err = cmp.Or(err, manifests.Close()); err != nil {
		return nil, err
	}
	meta.Sizes.ManifestsPayload, meta.Sizes.Manifests = written.Payload, written.Files
	reach, err := m.signed(meta, written.Digest)
	if err != nil {
		return nil, err
	}
	text, err := meta.Encode()
	if err != nil {
		return nil, err
	}
	key := "data-partition." + m.App.Name + "."
	spec := &mender.Spec{
		Name: r.ArtifactName, DeviceTypes: []string{m.DeviceType}, PayloadType: mender.PayloadTypeApp, MetaData: text,
		Provides: map[string]string{key + "version": r.ArtifactName}, ClearsProvides: []string{key + "*"},
	}
	if len(r.Provides) > 0 {
		spec.Provides = r.Provides // deltas of the maker depend on these
	} else if r.Version != "" {
		spec.Provides[key+"application_version"] = r.Version
	}
	if reach != nil { // the device compares them
		spec.Provides, spec.ClearsProvides, spec.Group = reach.Provides, reach.Clears, reach.Group
		spec.Depends, spec.DependsNames, spec.DependsGroups = reach.Depends, reach.DependsNames, reach.DependsGroups
	}
	for _, p := range []string{images, path} {
		st, err := os.Stat(p)
		if err != nil {
			return nil, err
		}
		spec.Files = append(spec.Files, mender.File{Name: filepath.Base(p), Size: st.Size(), Open: func() (io.ReadCloser, error) { return os.Open(p) }})
	}
	return spec, nil
}

// signed adds the policy, the maker's statement and the required features. It returns what
// the statement says of the artifact; nil if it does not.
func (m *Maker) signed(meta *artifact.Metadata, manifests digest.Digest) (reach *statement.Reach, err error) {
	if meta.Policy, err = compact(m.Release.Policy); err != nil {
		return nil, err
	}
	if meta.Policy != nil {
		meta.Requires = append(meta.Requires, artifact.FeaturePolicy)
	}
	if m.App.HasSecrets() {
		meta.Requires = append(meta.Requires, artifact.FeatureSecrets)
	}
	if slices.ContainsFunc(meta.Components, func(c artifact.Component) bool { return c.IsFile() }) {
		meta.Requires = append(meta.Requires, artifact.FeatureFiles)
	}
	text, err := compact(m.Release.Statement)
	if err != nil || text == nil {
		return nil, err
	}
	signed, err := statement.Parse(text)
	if err == nil {
		meta.Reboot = signed.Reboot // the store does not record it
		if err = signed.Check(meta); err == nil && signed.Manifests != manifests {
			err = fmt.Errorf("its manifests are %s", manifests)
		}
	}
	if err != nil {
		m.Warn(fmt.Sprintf("%s does not match what its maker signed and is backed up without the statement: %v", m.App.Name, err))
		return nil, nil
	}
	meta.Statement = text
	if signed.Reach != nil {
		meta.Requires = append(meta.Requires, artifact.FeatureReach)
	}
	return signed.Reach, nil
}

// compact restores the artifact's form of JSON: the store's files are indented.
func compact(text json.RawMessage) (json.RawMessage, error) {
	if text == nil {
		return nil, nil
	}
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// images writes the images payload, and adds the components to the metadata.
func (m *Maker) images(ctx context.Context, meta *artifact.Metadata) (string, error) {
	path := filepath.Join(m.Dir, artifact.ImagesPayload)
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	defer out.Close()
	w := artifact.NewImagesWriter(out)
	for _, c := range m.Release.Components {
		i := slices.IndexFunc(meta.Components, func(o artifact.Component) bool { return o.Digest == c.Digest && o.Type == c.Type })
		if i >= 0 { // another name for the same image
			again := meta.Components[i]
			again.URL = c.URL
			meta.Components = append(meta.Components, again)
			continue
		}
		added, err := m.component(ctx, w, c)
		if err != nil {
			return "", fmt.Errorf("%s: %w", c.URL, err)
		}
		meta.Components = append(meta.Components, *added)
		meta.Images = append(meta.Images, added.Digest.Hex())
		meta.Sizes.Engine += added.ConfigSize + added.Size
		for _, l := range added.Layers {
			meta.Sizes.Engine += max(l.Size, l.Unpacked)
		}
	}
	slices.Sort(meta.Images)
	if err := w.Close(); err != nil {
		return "", err
	}
	meta.Sizes.ImagesPayload = w.UnpackedSize()
	return path, out.Close()
}

// component writes one component.
func (m *Maker) component(ctx context.Context, w *artifact.ImagesWriter, c store.Component) (*artifact.Component, error) {
	path := filepath.Join(m.Dir, "component")
	defer os.Remove(path)
	if err := m.Save(ctx, c, path); err != nil {
		return nil, err
	}
	out := &artifact.Component{URL: c.URL, Type: c.Type, Digest: c.Digest, Platform: m.Release.Platform, Format: artifact.FormatFull}
	info := artifact.ImageInfo{Digest: c.Digest, URLNew: c.URL, Kind: artifact.KindFull}
	if out.IsFile() {
		return out, m.file(ctx, w, out, info, path)
	}
	archive, err := image.OpenArchive(path)
	if err != nil {
		return nil, err
	}
	defer archive.Close()
	images := archive.Images()
	i := slices.IndexFunc(images, func(img *image.Image) bool { return img.ConfigDigest == c.Digest })
	if i < 0 {
		return nil, fmt.Errorf("SAVE wrote an image other than %s", c.Digest)
	}
	img := images[i]
	if err := image.Verify(img); err != nil { // it sets the sizes
		return nil, err
	}
	spec := image.ArchiveSpec{Image: img}
	if !strings.Contains(c.URL, "@") {
		spec.RepoTags = []string{c.URL}
	}
	if out.PayloadBytes, err = image.ArchiveSize(spec); err != nil {
		return nil, err
	}
	out.Platform, out.ConfigSize = img.Platform.String(), int64(len(img.Config))
	for _, l := range img.Layers {
		files, err := unpacked(&l)
		if err != nil {
			return nil, fmt.Errorf("layer %s: %w", l.DiffID, err)
		}
		if files <= l.Size {
			files = 0
		}
		out.Layers = append(out.Layers, artifact.Layer{DiffID: l.DiffID, Size: l.Size, Encoding: artifact.EncodingVerbatim, Bytes: l.Size, Unpacked: files})
	}
	pr, pw := io.Pipe()
	done := make(chan struct{})
	go func() {
		pw.CloseWithError(image.WriteArchive(pw, spec))
		close(done)
	}()
	err = w.Add(info, out.PayloadBytes, metered.Reader(ctx, pr, nil))
	pr.CloseWithError(io.ErrClosedPipe)
	<-done // it reads the archive
	return out, err
}

// unpacked returns the size of a layer's files in bytes. It exceeds the tar's size if files
// are sparse.
func unpacked(l *image.Layer) (n int64, err error) {
	in, err := l.Open()
	if err != nil {
		return 0, err
	}
	defer in.Close()
	for tr := tar.NewReader(in); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return 0, err
		}
		n += h.Size
	}
}

// file writes a component that is a single file.
func (m *Maker) file(ctx context.Context, w *artifact.ImagesWriter, c *artifact.Component, info artifact.ImageInfo, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	c.Size, c.PayloadBytes = st.Size(), st.Size()
	return w.Add(info, c.Size, metered.Reader(ctx, f, nil))
}
