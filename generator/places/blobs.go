package places

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
)

// Media types of content in a registry, and the ends of tags, which keep it.
const (
	contentType = "application/vnd.mender-app.content.v1"
	noteType    = "application/vnd.mender-app.note.v1+json"
	keeps       = ".content" // NAME.content: an artifact manifest with the content of an artifact as its layers
	noted       = ".note"    // NAME.note: one whose config is a note
)

// blobs is a repository with content as blobs. A manifest refers to each of them, because a
// registry removes blobs that have none.
type blobs struct{ registry }

func (b blobs) layer(ctx context.Context, c artifact.Content) (v1.Layer, error) {
	at, err := name.NewDigest(b.repo.Name() + "@sha256:" + c.Digest.Hex())
	if err != nil {
		return nil, err
	}
	l, err := remote.Layer(at, b.options(ctx)...)
	return l, b.explain(err)
}

func (b blobs) size(ctx context.Context, c artifact.Content) (int64, error) {
	l, err := b.layer(ctx, c)
	if err != nil {
		return 0, err
	}
	n, err := l.Size()
	return n, b.explain(err)
}

func (b blobs) open(ctx context.Context, c artifact.Content) (io.ReadCloser, error) {
	l, err := b.layer(ctx, c)
	if err != nil {
		return nil, err
	}
	r, err := l.Compressed() // as it is in the registry
	return r, b.explain(err)
}

func hash(d digest.Digest) v1.Hash { return v1.Hash{Algorithm: "sha256", Hex: d.Hex()} }

func (b blobs) write(ctx context.Context, c artifact.Content, from io.ReaderAt, moved func(int64)) error {
	l := &fileLayer{ctx: ctx, file: from, sum: hash(c.Digest), size: c.Size, moved: moved}
	return b.explain(remote.WriteLayer(b.repo.Repository, l, b.options(ctx)...))
}

func (b blobs) note(ctx context.Context, word string) ([]byte, error) {
	tag, err := name.NewTag(b.repo.Name() + ":" + word + noted)
	if err != nil {
		return nil, &Error{Text: fmt.Sprintf("a registry has no name for %s", word)}
	}
	img, err := remote.Image(tag, b.options(ctx)...)
	if err != nil {
		return nil, b.explain(err)
	}
	m, err := img.Manifest()
	if err != nil {
		return nil, b.explain(err)
	}
	if m.Config.MediaType != noteType || m.Config.Size > maxNote {
		return nil, &Error{Text: fmt.Sprintf("%s is not a note", tag)}
	}
	text, err := img.RawConfigFile()
	return text, b.explain(err)
}

func (b blobs) setNote(ctx context.Context, word string, text []byte, about []artifact.Content) error {
	return b.tagged(ctx, word+noted, noteType, text, about, nil)
}

// find returns the manifest of the first of the images that is in the repository; nil if none
// is. Of one with several platforms it is that of the platform.
func (b blobs) find(ctx context.Context, images []ImageName) (*v1.Descriptor, error) {
	for _, i := range images {
		ref, err := name.ParseReference(i.URL)
		if err != nil || ref.Context().Name() != b.repo.Name() {
			continue
		}
		platform, err := v1.ParsePlatform(i.Platform)
		if err != nil {
			return nil, err
		}
		img, err := remote.Image(ref, append(b.options(ctx), remote.WithPlatform(*platform))...)
		if err = b.explain(err); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		config, err := img.ConfigName()
		if err != nil {
			return nil, b.explain(err)
		}
		if config != hash(i.Config) { // the tag has moved
			continue
		}
		d, err := partial.Descriptor(img)
		if err != nil {
			return nil, b.explain(err)
		}
		return &v1.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size}, nil
	}
	return nil, nil
}

// tagged writes a manifest that has a text as its config and content as its layers. The
// content is there. subject may be nil.
func (b blobs) tagged(ctx context.Context, word string, kind types.MediaType, text []byte, all []artifact.Content, subject *v1.Descriptor) error {
	tag, err := name.NewTag(b.repo.Name() + ":" + word)
	if err != nil {
		return &Error{Text: fmt.Sprintf("a registry has no name for %s", word), Hint: "it has letters, digits, points, underscores and hyphens, 128 at most"}
	}
	sum, size, err := v1.SHA256(bytes.NewReader(text))
	if err != nil {
		return err
	}
	m := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: v1.Descriptor{MediaType: kind, Digest: sum, Size: size}, Layers: []v1.Descriptor{}, Subject: subject}
	layers := map[v1.Hash]artifact.Content{}
	for _, c := range all {
		h := hash(c.Digest)
		if _, twice := layers[h]; !twice {
			layers[h] = c
			m.Layers = append(m.Layers, v1.Descriptor{MediaType: contentType, Digest: h, Size: c.Size})
		}
	}
	raw, err := json.Marshal(m)
	if err != nil {
		return err
	}
	img, err := partial.CompressedToImage(&manifest{ctx, b, text, raw, layers})
	if err != nil {
		return err
	}
	return b.explain(remote.Write(tag, img, b.options(ctx)...))
}

// manifest is an image of a config and of layers that are in the registry.
type manifest struct {
	ctx    context.Context
	b      blobs
	config []byte
	raw    []byte
	layers map[v1.Hash]artifact.Content
}

func (m *manifest) RawConfigFile() ([]byte, error) { return m.config, nil }

func (m *manifest) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

func (m *manifest) RawManifest() ([]byte, error) { return m.raw, nil }

func (m *manifest) LayerByDigest(h v1.Hash) (partial.CompressedLayer, error) {
	c, ok := m.layers[h]
	if !ok {
		return nil, fmt.Errorf("no layer %s", h)
	}
	return m.b.layer(m.ctx, c)
}
