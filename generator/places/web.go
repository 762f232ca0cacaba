package places

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact/input"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/generator/requests"
)

// ListFile is the file that names the releases under a URL: FILE.mender, one a line.
const ListFile = "releases.txt"

// maxList bounds a ListFile, in bytes.
const maxList = 1 << 20

// HeaderVariable is the variable of the environment with an HTTP header for files under a
// URL, NAME: VALUE, such as a token.
const HeaderVariable = "APP_GEN_RELEASES_HEADER"

// web is a URL below which the files are. It takes them with PUT.
type web struct {
	text   input.Source
	url    *url.URL
	header [2]string
	client *http.Client
}

func openWeb(text input.Source, u *url.URL) (Place, error) {
	w := &web{text: text, url: u}
	if h := os.Getenv(HeaderVariable); h != "" {
		key, value, ok := strings.Cut(h, ":")
		if !ok {
			return nil, &Error{Text: HeaderVariable + " is not NAME: VALUE"}
		}
		w.header = [2]string{strings.TrimSpace(key), strings.TrimSpace(value)}
	}
	w.client = &http.Client{
		Transport:     requests.Quiet(&http.Transport{Proxy: http.ProxyFromEnvironment, ResponseHeaderTimeout: stalled, TLSHandshakeTimeout: stalled}),
		CheckRedirect: w.redirect,
	}
	return w, nil
}

// redirect keeps the token from other hosts: a package registry sends downloads on to the
// store that has its files.
func (w *web) redirect(next *http.Request, _ []*http.Request) error {
	if next.URL.Scheme != "https" && !requests.Loopback(next.URL.Hostname()) {
		return &Error{Text: "the server redirects to " + next.URL.Scheme + "://" + next.URL.Host + ", which is not https"}
	}
	if w.header[0] != "" && (next.URL.Host != w.url.Host || next.URL.Scheme != w.url.Scheme) {
		next.Header.Del(w.header[0])
	}
	return nil
}

func (w *web) String() string { return w.text.String() }

// ask sends a request. An answer that is not a success is an error.
func (w *web) ask(ctx context.Context, method, name string, body io.Reader, size int64) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, w.url.JoinPath(name).String(), body)
	if err != nil {
		return nil, err
	}
	if r.ContentLength = size; size == 0 {
		r.Body = http.NoBody
	}
	r.Header.Set("User-Agent", "app-gen")
	if w.header[0] != "" {
		r.Header.Set(w.header[0], w.header[1])
	}
	answer, err := w.client.Do(r)
	if err != nil {
		return nil, requests.Failed(err)
	}
	if answer.StatusCode < 200 || answer.StatusCode > 299 {
		answer.Body.Close()
		return nil, status(answer.StatusCode)
	}
	return answer, nil
}

// status says what an answer means that is not a success.
func status(code int) error {
	switch {
	case code == http.StatusNotFound:
		return fs.ErrNotExist
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return &Error{Text: fmt.Sprintf("the server refuses (%d): set %s to the header with your token, such as JOB-TOKEN: …", code, HeaderVariable)}
	case code >= 500, code == http.StatusTooManyRequests, code == http.StatusRequestTimeout:
		return fmt.Errorf("the server answers %d %s", code, http.StatusText(code))
	}
	return &Error{Text: strings.TrimSpace(fmt.Sprintf("the server answers %d %s", code, http.StatusText(code)))}
}

func (w *web) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := check(name); err != nil {
		return nil, err
	}
	answer, err := w.ask(ctx, http.MethodGet, name, nil, 0)
	if err != nil {
		return nil, err
	}
	return answer.Body, nil
}

func (w *web) List(ctx context.Context) (names []string, err error) {
	body, err := w.Open(ctx, ListFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer body.Close()
	lines := bufio.NewScanner(io.LimitReader(body, maxList))
	for lines.Scan() {
		name := strings.TrimSpace(lines.Text())
		if name == "" {
			continue
		}
		if check(name) != nil || !strings.HasSuffix(name, release) {
			return nil, &Error{Text: fmt.Sprintf("%s: %q is not the name of a release, FILE.mender", ListFile, name[:min(len(name), 100)])}
		}
		if names = append(names, name); len(names) > maxFiles {
			return nil, &Error{Text: fmt.Sprintf("%s: more than %d releases", ListFile, maxFiles)}
		}
	}
	return names, lines.Err()
}

func (w *web) put(ctx context.Context, name string, from io.ReaderAt, size int64, moved func(int64)) error {
	return w.send(ctx, name, metered.Reader(ctx, io.NewSectionReader(from, 0, size), moved), size)
}

func (w *web) send(ctx context.Context, name string, body io.Reader, size int64) error {
	answer, err := w.ask(ctx, http.MethodPut, name, io.NopCloser(body), size)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &Error{Text: fmt.Sprintf("the server does not take %s (404)", name), Hint: "it is a URL that takes files with PUT, such as a generic package registry"}
	case err != nil:
		return err
	}
	return answer.Body.Close()
}

// enlist adds a release to the ListFile. If another job writes the list meanwhile, it does
// so again.
func (w *web) enlist(ctx context.Context, name string) error {
	for range attempts {
		names, err := w.List(ctx)
		if err != nil || slices.Contains(names, name) {
			return err
		}
		text := strings.Join(append(names, name), "\n") + "\n"
		if err := w.send(ctx, ListFile, strings.NewReader(text), int64(len(text))); err != nil {
			return err
		}
	}
	names, err := w.List(ctx)
	if err == nil && !slices.Contains(names, name) {
		err = fmt.Errorf("%s does not keep %s", ListFile, name)
	}
	return err
}
