package places

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/generator/requests"
	"github.com/mender-app/mender-app/generator/source"
)

// registryPrefix begins the name of a repository with releases.
const registryPrefix = "oci:"

// Of a release in a registry.
const (
	releaseType = "application/vnd.mender.artifact"
	titleKey    = "org.opencontainers.image.title" // the name of a file (OCI image-spec, annotations)
)

// registry is a repository of a registry. The file FILE.mender is the tag FILE, whose
// manifest has it as its only layer.
type registry struct {
	text string
	repo source.Remote
}

func openRegistry(text, repository string) (Place, error) {
	config, err := source.LoadConfig()
	if err != nil {
		return nil, err
	}
	repo, err := config.Repository(repository)
	if err != nil {
		if at := strings.LastIndex(repository, "@"); at >= 0 { // perhaps a password before it
			text = registryPrefix + "…" + repository[at:]
		}
		return nil, &Error{Text: text + " is not a repository", Hint: "it is " + registryPrefix + "HOST/REPOSITORY, without a tag"}
	}
	return registry{text, repo}, nil
}

func (p registry) String() string { return p.text }

func (p registry) options(ctx context.Context) []remote.Option {
	return []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithUserAgent("app-gen"),
		remote.WithTransport(requests.Bounded(p.repo.Transport, requests.IsBlob))}
}

// tag is where a file is in the repository.
func (p registry) tag(file string) (name.Tag, error) {
	word, ok := strings.CutSuffix(file, release)
	if err := check(file); err != nil {
		return name.Tag{}, err
	}
	tag, err := name.NewTag(p.repo.Name() + ":" + word)
	if !ok || err != nil {
		return tag, &Error{Text: fmt.Sprintf("a registry has no name for %s", file), Hint: "it is FILE.mender, with FILE of letters, digits, points, underscores and hyphens, 128 at most"}
	}
	return tag, nil
}

// explain says what an error of a registry means.
func (p registry) explain(err error) error {
	var status *transport.Error
	if !errors.As(err, &status) {
		return err
	}
	switch code := status.StatusCode; {
	case code == http.StatusNotFound:
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return &Error{Text: fmt.Sprintf("the registry refuses (%d)", code), Hint: "docker login " + p.repo.RegistryStr() + " with a user who may read and write " + p.repo.RepositoryStr()}
	case code < 500 && code != http.StatusTooManyRequests:
		return &Error{Text: "the registry", Err: err}
	}
	return err
}

func (p registry) List(ctx context.Context) (names []string, err error) {
	tags, err := p.tags(ctx)
	if err = p.explain(err); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, tag := range tags {
		file := tag + release
		if check(file) != nil || strings.HasPrefix(tag, "sha256-") || // signatures of cosign
			strings.HasSuffix(tag, keeps) || strings.HasSuffix(tag, noted) {
			continue
		}
		if names = append(names, file); len(names) > maxFiles {
			return nil, &Error{Text: fmt.Sprintf("%s: more than %d releases", p.text, maxFiles)}
		}
	}
	return names, nil
}

// tags are all tags of the repository: of content and notes too, which are many more than
// the releases.
func (p registry) tags(ctx context.Context) (tags []string, err error) {
	puller, err := remote.NewPuller(p.options(ctx)...)
	if err != nil {
		return nil, err
	}
	pages, err := puller.Lister(ctx, p.repo.Repository)
	if err != nil {
		return nil, err
	}
	for pages.HasNext() {
		page, err := pages.Next(ctx)
		if err != nil {
			return nil, err
		}
		if tags = append(tags, page.Tags...); len(tags) > maxTags {
			return nil, &Error{Text: fmt.Sprintf("%s: more than %d tags", p.text, maxTags)}
		}
	}
	return tags, nil
}

func (p registry) Open(ctx context.Context, file string) (io.ReadCloser, error) {
	tag, err := p.tag(file)
	if err != nil {
		return nil, err
	}
	img, err := remote.Image(tag, p.options(ctx)...)
	if err != nil {
		return nil, p.explain(err)
	}
	layers, err := img.Layers()
	if err != nil {
		return nil, p.explain(err)
	}
	if len(layers) != 1 {
		return nil, &Error{Text: fmt.Sprintf("%s has %d layers, and a release is one", tag, len(layers))}
	}
	body, err := layers[0].Compressed() // as it is in the registry; it is compared with its digest
	return body, p.explain(err)
}

func (p registry) put(ctx context.Context, file string, from io.ReaderAt, size int64, moved func(int64)) error {
	tag, err := p.tag(file)
	if err != nil {
		return err
	}
	sum, _, err := v1.SHA256(metered.Reader(ctx, io.NewSectionReader(from, 0, size), nil))
	if err != nil {
		return err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err = mutate.Append(img, mutate.Addendum{
		Layer: &fileLayer{ctx, from, sum, size, moved}, MediaType: releaseType, Annotations: map[string]string{titleKey: file},
	})
	if err != nil {
		return err
	}
	return p.explain(remote.Write(tag, img, p.options(ctx)...))
}

// fileLayer is a file as a layer: its bytes are what the registry has.
type fileLayer struct {
	ctx   context.Context
	file  io.ReaderAt
	sum   v1.Hash
	size  int64
	moved func(int64)
}

func (l *fileLayer) Digest() (v1.Hash, error) { return l.sum, nil }

func (l *fileLayer) DiffID() (v1.Hash, error) { return l.sum, nil }

func (l *fileLayer) Compressed() (io.ReadCloser, error) {
	return io.NopCloser(metered.Reader(l.ctx, io.NewSectionReader(l.file, 0, l.size), l.moved)), nil
}

func (l *fileLayer) Uncompressed() (io.ReadCloser, error) { return l.Compressed() }

func (l *fileLayer) Size() (int64, error) { return l.size, nil }

func (l *fileLayer) MediaType() (types.MediaType, error) { return releaseType, nil }
