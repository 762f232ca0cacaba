package places

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/mender-app/mender-app/artifact/clip"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/input"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/generator/requests"
)

// artifactsPath is where the management API of a Mender server has artifacts.
const artifactsPath = "api/management/v1/deployments/artifacts"

// maxAnswer bounds what a Mender server says, in bytes.
const maxAnswer = 8 << 20

// MenderServer is a Mender server that takes artifacts (its management API, deployments
// service).
type MenderServer struct {
	url    *url.URL
	token  string
	client *http.Client
}

// OpenMenderServer finds out what a text names: https://HOST. The token is a personal access
// token, or one that the server gave at a login; no error has it. It connects to nothing.
func OpenMenderServer(text, token string) (*MenderServer, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Scheme != "https" && (u.Scheme != "http" || !requests.Loopback(u.Hostname())) {
		return nil, &Error{Text: input.Source(text).String() + " is not the URL of a Mender server", Hint: "it is https://HOST; http is for this machine alone"}
	}
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, &Error{Text: "the token is not one word", Hint: "the file has the token of a user of the server, and nothing else"}
	}
	return &MenderServer{url: u, token: token, client: &http.Client{
		Transport:     requests.Quiet(&http.Transport{Proxy: http.ProxyFromEnvironment, ResponseHeaderTimeout: stalled, TLSHandshakeTimeout: stalled}),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Upload gives an artifact to the server. there says that the server has the same bytes
// already, as after an earlier call whose answer was lost.
func (s *MenderServer) Upload(ctx context.Context, name, path string) (there bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	var refused *conflict
	err = tried(ctx, name, func(ctx context.Context, moved func(int64)) error {
		return s.post(ctx, filepath.Base(path), f, info.Size(), moved)
	})
	if !errors.As(err, &refused) {
		return false, err
	}
	same, err := s.has(ctx, name, f, info.Size())
	if err != nil {
		return false, err
	}
	if !same {
		return false, &Error{Text: fmt.Sprintf("the Mender server has another artifact %s for these devices (%s)", name, refused.says), Hint: "delete it there, or give the release another name"}
	}
	return true, nil
}

// conflict: the server has an artifact of the name.
type conflict struct{ says string }

func (c *conflict) Error() string { return c.says }

func (c *conflict) Is(err error) bool { return err == fs.ErrExist }

// post uploads a file. The size comes before the file: what follows the file is not read.
func (s *MenderServer) post(ctx context.Context, name string, from io.ReaderAt, size int64, moved func(int64)) error {
	var head bytes.Buffer
	form := multipart.NewWriter(&head)
	if err := form.WriteField("size", fmt.Sprint(size)); err != nil {
		return err
	}
	if _, err := form.CreateFormFile("artifact", name); err != nil {
		return err
	}
	tail := "\r\n--" + form.Boundary() + "--\r\n"
	body := io.MultiReader(bytes.NewReader(head.Bytes()), metered.Reader(ctx, io.NewSectionReader(from, 0, size), moved), strings.NewReader(tail))
	answer, err := s.ask(ctx, http.MethodPost, s.url.JoinPath(artifactsPath), form.FormDataContentType(), body, int64(head.Len())+size+int64(len(tail)))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusCreated {
		return nil
	}
	return s.explain(answer)
}

// has reports whether the server has an artifact of the name with the same bytes.
func (s *MenderServer) has(ctx context.Context, name string, file io.ReaderAt, size int64) (bool, error) {
	var list []struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	}
	all := s.url.JoinPath(artifactsPath)
	all.RawQuery = url.Values{"name": {name}}.Encode()
	if err := s.get(ctx, name, all, &list); err != nil {
		return false, err
	}
	for _, a := range list {
		if a.Name != name || a.ID == "" {
			continue
		}
		var link struct {
			URI string `json:"uri"`
		}
		if err := s.get(ctx, name, s.url.JoinPath(artifactsPath, url.PathEscape(a.ID), "download"), &link); err != nil {
			return false, err
		}
		var same bool
		err := tried(ctx, name, func(ctx context.Context, moved func(int64)) (err error) {
			same, err = s.compare(ctx, link.URI, file, size, moved)
			return err
		})
		if same || err != nil {
			return same, err
		}
	}
	return false, nil
}

// get reads an answer of the API.
func (s *MenderServer) get(ctx context.Context, name string, u *url.URL, into any) error {
	return tried(ctx, name, func(ctx context.Context, moved func(int64)) error {
		answer, err := s.ask(ctx, http.MethodGet, u, "", nil, 0)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return s.explain(answer)
		}
		text, err := input.Bounded(metered.Reader(ctx, answer.Body, moved), "the answer of the Mender server", maxAnswer)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(text, into); err != nil {
			return &Error{Text: "the answer of the Mender server is not what its API says", Err: err}
		}
		return nil
	})
}

// compare compares a file with what a link of the server has. The link leads to its store,
// which does not get the token.
func (s *MenderServer) compare(ctx context.Context, link string, file io.ReaderAt, size int64, moved func(int64)) (bool, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, link, nil)
	if err != nil {
		return false, requests.Failed(err)
	}
	answer, err := s.client.Do(r)
	if err != nil {
		return false, requests.Failed(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return false, status(answer.StatusCode)
	}
	there, _, err := digest.OfReader(metered.Reader(ctx, io.LimitReader(answer.Body, size+1), moved))
	if err != nil {
		return false, err
	}
	have, _, err := digest.OfReader(io.NewSectionReader(file, 0, size))
	return there == have, err
}

func (s *MenderServer) ask(ctx context.Context, method string, u *url.URL, kind string, body io.Reader, size int64) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, err
	}
	r.ContentLength = size
	r.Header.Set("User-Agent", "app-gen")
	r.Header.Set("Authorization", "Bearer "+s.token)
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	answer, err := s.client.Do(r)
	if err != nil {
		return nil, requests.Failed(err)
	}
	return answer, nil
}

// explain says what an answer means that is not a success.
func (s *MenderServer) explain(answer *http.Response) error {
	code := answer.StatusCode
	text, _ := io.ReadAll(io.LimitReader(answer.Body, maxAnswer)) // what it says may be cut
	var said struct {
		Error string `json:"error"`
	}
	_ = json.Unmarshal(text, &said) // a proxy says something else
	says := fmt.Sprintf("%d %s", code, http.StatusText(code))
	if said.Error != "" {
		says = fmt.Sprintf("%d: %s", code, strings.ReplaceAll(requests.Text(clip.Line(said.Error, 500)), s.token, "…"))
	}
	switch {
	case code == http.StatusUnauthorized:
		return &Error{Text: "the Mender server refuses the token (" + says + ")", Hint: "it may have expired: make a new one in the settings of your user"}
	case code == http.StatusForbidden:
		return &Error{Text: "the Mender server refuses this user (" + says + ")", Hint: "the user of the token may upload artifacts with the role of a release manager, or of an administrator"}
	case code == http.StatusConflict, code == http.StatusUnprocessableEntity:
		return &conflict{says}
	case code == http.StatusRequestEntityTooLarge:
		return &Error{Text: "the artifact is too large for the Mender server (" + says + ")", Hint: "raise the limit of the server, or of the proxy in front of it"}
	case code >= 500, code == http.StatusTooManyRequests, code == http.StatusRequestTimeout:
		return fmt.Errorf("the Mender server answers %s", says)
	}
	return &Error{Text: "the Mender server answers " + says}
}
