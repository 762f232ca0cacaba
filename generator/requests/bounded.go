package requests

import (
	"fmt"
	"io"
	"net/http"
	"strings"
)

// maxAnswer is the most bytes of an answer that are held in memory: a manifest, an index, a
// list, a token or an error. containerd takes manifests of at most 4 MiB too;
// go-containerregistry alone would take 100 MiB, and lists of any size.
const maxAnswer = 4 << 20

var errLongAnswer = fmt.Errorf("the server's answer is longer than %d MiB", maxAnswer>>20)

// Bounded returns a transport that ends answers that are too long. It does not bound
// successful answers to requests for content, which nobody holds in memory.
func Bounded(next http.RoundTripper, content func(*http.Request) bool) http.RoundTripper {
	return boundedAnswers{next, content}
}

// IsBlob reports whether a request is for a blob of a registry, even after redirects.
// go-containerregistry compares it with the size in the manifest while it reads it.
func IsBlob(r *http.Request) bool {
	r, _ = firstOf(r)
	return strings.HasPrefix(r.URL.Path, "/v2/") && strings.Contains(r.URL.Path, "/blobs/sha256:")
}

type boundedAnswers struct {
	http.RoundTripper
	content func(*http.Request) bool
}

func (b boundedAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err != nil || b.content(r) && resp.StatusCode < 300 {
		return resp, err
	}
	resp.Body = &boundedBody{ReadCloser: resp.Body, left: maxAnswer}
	return resp, nil
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
