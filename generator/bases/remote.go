package bases

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/generator/source"
)

// ListFile is the file that names the releases under a URL: FILE.mender, one a line.
const ListFile = "releases.txt"

// HeaderVariable is the variable of the environment with an HTTP header for releases under a
// URL, NAME: VALUE, such as a token.
const HeaderVariable = "APP_GEN_RELEASES_HEADER"

// ociPrefix begins the name of a repository with releases.
const ociPrefix = "oci:"

// Bounds of a place with releases.
const (
	maxList     = 1 << 20 // bytes of a ListFile
	maxReleases = 10_000
	// stalled is how long a server may send nothing.
	stalled  = time.Minute
	attempts = 3
)

// Remote reports whether releases are not in a directory here, but under a URL or in a
// registry.
func Remote(place string) bool {
	return strings.Contains(place, "://") || strings.HasPrefix(place, ociPrefix)
}

// Fetch downloads releases into the directory dir. Of an https URL these are the
// files that its ListFile names; of oci:REPOSITORY, each of its tags is a release, whose
// manifest has the file as its only layer. If last is not 0, it downloads only what can
// count for the artifact of this name: the last releases that are not newer, and one of the
// same name. A place without any release yet has none.
func Fetch(ctx context.Context, place, dir, artifact string, last int, tell func(source.Event)) error {
	from, err := openPlace(ctx, place)
	if err != nil {
		return err
	}
	names, err := from.list(ctx)
	if err != nil {
		return &Error{Text: "releases in " + place, Err: err}
	}
	for _, file := range wanted(names, artifact, last) {
		report := func(n int64) { tell(source.Event{Stage: "fetch", What: file, Done: n, Total: -1}) }
		for try := 1; ; try++ {
			err = download(ctx, from, file, filepath.Join(dir, file), report)
			var status *statusError
			var full *source.WriteError
			if err == nil || ctx.Err() != nil || errors.As(err, &status) || errors.As(err, &full) || try == attempts {
				break
			}
		}
		if err != nil {
			return &Error{Text: "release " + file + " in " + place, Err: err}
		}
	}
	return nil
}

// wanted chooses the releases to download.
func wanted(names []string, artifact string, last int) []string {
	slices.SortFunc(names, func(a, b string) int { return compareWords(b, a) })
	names = slices.Compact(names)
	if last == 0 {
		return names
	}
	var list []string
	older := 0
	for _, n := range names {
		base := strings.TrimSuffix(n, ".mender")
		switch {
		case base == artifact:
			list = append(list, n)
		case older < last && !newer(base, artifact):
			list = append(list, n)
			older++
		}
	}
	return list
}

// place is where releases are kept.
type place interface {
	list(ctx context.Context) ([]string, error)
	open(ctx context.Context, file string) (io.ReadCloser, error)
}

func openPlace(_ context.Context, text string) (place, error) {
	if repository, ok := strings.CutPrefix(text, ociPrefix); ok {
		repo, err := name.NewRepository(repository)
		if err != nil {
			return nil, &Error{Text: fmt.Sprintf("%s%q is not a repository", ociPrefix, repository), Hint: "it is " + ociPrefix + "HOST/PATH, without a tag"}
		}
		return ociPlace{repo, map[string]string{}}, nil
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, &Error{Text: "releases in " + text, Err: err}
	}
	if u.Scheme != "https" && !(u.Scheme == "http" && loopback(u.Hostname())) {
		return nil, &Error{Text: text + " is not a place of releases", Hint: "it is a directory, an https URL or oci:REPOSITORY; http is for this machine alone"}
	}
	p := webPlace{url: *u, client: &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, ResponseHeaderTimeout: stalled, TLSHandshakeTimeout: stalled}}}
	if h := os.Getenv(HeaderVariable); h != "" {
		key, value, ok := strings.Cut(h, ":")
		if !ok {
			return nil, &Error{Text: HeaderVariable + " is not NAME: VALUE"}
		}
		p.header = [2]string{strings.TrimSpace(key), strings.TrimSpace(value)}
	}
	return p, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// fileName refuses a name that is not that of a file in one directory.
func fileName(file string) error {
	if filepath.Base(file) != file || strings.HasPrefix(file, ".") || !strings.HasSuffix(file, ".mender") || strings.ContainsAny(file, `/\`) {
		return fmt.Errorf("%q is not the name of a release, FILE.mender", cut(file))
	}
	return nil
}

func cut(s string) string { return s[:min(len(s), 100)] }

// webPlace is a URL below which the releases are.
type webPlace struct {
	url    url.URL
	header [2]string
	client *http.Client
}

// statusError is an answer of a server that is no success.
type statusError struct{ code int }

func (e *statusError) Error() string {
	switch e.code {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Sprintf("the server refuses (%d): set %s to the header with your token, such as JOB-TOKEN: …", e.code, HeaderVariable)
	}
	return fmt.Sprintf("the server answers %d %s", e.code, http.StatusText(e.code))
}

func (p webPlace) open(ctx context.Context, file string) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url.JoinPath(file).String(), nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("User-Agent", "app-gen")
	if p.header[0] != "" {
		r.Header.Set(p.header[0], p.header[1])
	}
	answer, err := p.client.Do(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		answer.Body.Close()
		return nil, &statusError{answer.StatusCode}
	}
	return answer.Body, nil
}

func (p webPlace) list(ctx context.Context) (names []string, err error) {
	body, err := p.open(ctx, ListFile)
	var status *statusError
	if errors.As(err, &status) && status.code == http.StatusNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer body.Close()
	lines := bufio.NewScanner(io.LimitReader(body, maxList))
	for lines.Scan() {
		file := strings.TrimSpace(lines.Text())
		if file == "" {
			continue
		}
		if err := fileName(file); err != nil {
			return nil, fmt.Errorf("%s: %w", ListFile, err)
		}
		if names = append(names, file); len(names) > maxReleases {
			return nil, fmt.Errorf("%s: more than %d releases", ListFile, maxReleases)
		}
	}
	return names, lines.Err()
}

// ociPlace is a repository of a registry; tags are by the names of the files.
type ociPlace struct {
	repo name.Repository
	tags map[string]string
}

func (p ociPlace) options(ctx context.Context) []remote.Option {
	return []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithUserAgent("app-gen")}
}

func (p ociPlace) list(ctx context.Context) (names []string, err error) {
	tags, err := remote.List(p.repo, p.options(ctx)...)
	var status *transport.Error
	if errors.As(err, &status) && status.StatusCode == http.StatusNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, tag := range tags {
		file := tag + ".mender"
		if fileName(file) != nil || strings.HasPrefix(tag, "sha256-") { // signatures of cosign
			continue
		}
		p.tags[file] = tag
		if names = append(names, file); len(names) > maxReleases {
			return nil, fmt.Errorf("more than %d releases", maxReleases)
		}
	}
	return names, nil
}

func (p ociPlace) open(ctx context.Context, file string) (io.ReadCloser, error) {
	img, err := remote.Image(p.repo.Tag(p.tags[file]), p.options(ctx)...)
	if err != nil {
		return nil, err
	}
	layers, err := img.Layers()
	if err != nil {
		return nil, err
	}
	if len(layers) != 1 {
		return nil, fmt.Errorf("it has %d layers, and a release is one", len(layers))
	}
	return layers[0].Compressed() // as it is in the registry; it is compared with its digest
}

// download writes a release to a file. A server that sends nothing for a while is given up.
func download(ctx context.Context, from place, file, to string, tell func(int64)) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(stalled, func() { cancel(fmt.Errorf("nothing came for %s", stalled)) })
	defer timer.Stop()
	body, err := from.open(ctx, file)
	if err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	defer body.Close()
	f, err := os.Create(to)
	if err != nil {
		return &source.WriteError{Err: err}
	}
	defer func() {
		if cerr := f.Close(); err == nil && cerr != nil {
			err = &source.WriteError{Err: cerr}
		}
		if err != nil {
			os.Remove(to)
		}
	}()
	var total int64
	in := metered.Reader(ctx, body, func(n int64) {
		timer.Reset(stalled)
		total += n
		tell(total)
	})
	if _, err := io.Copy(f, in); err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	return nil
}
