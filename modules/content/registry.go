package content

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/input"
)

// A registry has content below the end for blobs of a repository (OCI distribution-spec,
// "Pulling blobs"): https://HOST/v2/NAME/blobs/sha256:HEX. For a public repository many
// registries want a token that they give to anybody who asks (distribution, "Token
// Authentication Specification").

var blobsPath = regexp.MustCompile(`^/v2/[a-z0-9][a-z0-9._/-]*/blobs/?$`)

// inPlace is the URL of content below a place.
func inPlace(place string, want digest.Digest) string {
	name := want.Hex()
	if u, err := url.Parse(place); err == nil && blobsPath.MatchString(u.Path) {
		name = "sha256:" + name
	}
	return strings.TrimSuffix(place, "/") + "/" + name
}

// Bounds of what a registry says about tokens.
const (
	maxToken   = 64 << 10
	tokenBound = 30 * time.Second
)

// tokens is a transport that gets the token that a registry asks for.
type tokens struct {
	next http.RoundTripper
	mu   sync.Mutex
	have map[string]string // by the path of a repository's blobs, with the host
}

func (t *tokens) RoundTrip(r *http.Request) (*http.Response, error) {
	at, _, ok := strings.Cut(r.URL.Path, "/blobs/")
	if !ok || !blobsPath.MatchString(at+"/blobs") || r.Header.Get("Authorization") != "" {
		return t.next.RoundTrip(r)
	}
	at = r.URL.Scheme + "://" + r.URL.Host + at
	t.mu.Lock()
	token := t.have[at]
	t.mu.Unlock()
	answer, err := t.next.RoundTrip(with(r, token))
	if err != nil || answer.StatusCode != http.StatusUnauthorized {
		return answer, err
	}
	ask, ok := challenge(answer.Header.Get("WWW-Authenticate"), r.URL)
	if !ok {
		return answer, nil
	}
	answer.Body.Close() //nolint:errcheck // its content is not wanted
	if token, err = t.fetch(r, ask); err != nil {
		return nil, err
	}
	t.mu.Lock()
	t.have[at] = token
	t.mu.Unlock()
	return t.next.RoundTrip(with(r, token))
}

func with(r *http.Request, token string) *http.Request {
	if token == "" {
		return r
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

var parameter = regexp.MustCompile(`(realm|service|scope)="([^"]*)"`)

// challenge reads Bearer realm="URL",service="…",scope="…". A server that is to be asked over
// plain HTTP must be the one that was asked so: anybody on the way could have named another.
func challenge(header string, asked *url.URL) (*url.URL, bool) {
	rest, ok := strings.CutPrefix(header, "Bearer ")
	if !ok || len(header) > maxToken {
		return nil, false
	}
	query := url.Values{}
	var realm *url.URL
	for _, m := range parameter.FindAllStringSubmatch(rest, 3) {
		if m[1] != "realm" {
			query.Set(m[1], m[2])
			continue
		}
		u, err := url.Parse(m[2])
		if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && (u.Scheme != asked.Scheme || !strings.EqualFold(u.Hostname(), asked.Hostname())) {
			return nil, false
		}
		realm = u
	}
	if realm == nil {
		return nil, false
	}
	for key, values := range realm.Query() {
		query[key] = values
	}
	realm.RawQuery, realm.Fragment = query.Encode(), ""
	return realm, true
}

// fetch asks for a token that anybody gets.
func (t *tokens) fetch(r *http.Request, ask *url.URL) (string, error) {
	client := &http.Client{Transport: t.next, Timeout: tokenBound, CheckRedirect: func(*http.Request, []*http.Request) error {
		return errors.New("the registry redirects for its token")
	}}
	q, err := http.NewRequestWithContext(r.Context(), http.MethodGet, ask.String(), nil)
	if err != nil {
		return "", err
	}
	answer, err := client.Do(q)
	if err != nil {
		return "", fmt.Errorf("the token of the registry: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s gives no token to everybody (%d): content_token_file may have one", ask.Host, answer.StatusCode)
	}
	text, err := input.Bounded(answer.Body, "the token of the registry", maxToken)
	if err != nil {
		return "", err
	}
	var got struct {
		Token       string `json:"token"`
		AccessToken string `json:"access_token"`
	}
	if err := json.Unmarshal(text, &got); err != nil {
		return "", fmt.Errorf("the token of the registry: %w", err)
	}
	if got.Token == "" {
		got.Token = got.AccessToken
	}
	if got.Token == "" || strings.ContainsAny(got.Token, "\r\n\x00") {
		return "", errors.New("the registry gives no token")
	}
	return got.Token, nil
}
