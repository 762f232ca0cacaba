package places

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// menderAPI stands for the deployments service of a Mender server, which testdata/server
// runs itself: what it answers if something is wrong cannot be had from the real one.
type menderAPI struct {
	*httptest.Server
	answers  []int // codes that come before the real answers
	artifact []byte
	uploads  int
	leaked   []string // what the store got as a token
}

func newMenderAPI(t *testing.T) *menderAPI {
	a := &menderAPI{}
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.leaked = append(a.leaked, r.Header.Get("Authorization"))
		_, _ = w.Write(a.artifact)
	}))
	t.Cleanup(store.Close)
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fail := func(code int, text string) {
			w.WriteHeader(code)
			_ = json.NewEncoder(w).Encode(map[string]string{"error": text, "request_id": "1"})
		}
		if len(a.answers) > 0 {
			code := a.answers[0]
			a.answers = a.answers[1:]
			fail(code, "for "+r.Header.Get("Authorization"))
			return
		}
		path := strings.TrimPrefix(r.URL.Path, "/api/management/v1/deployments/artifacts")
		switch {
		case r.Header.Get("Authorization") != "Bearer secret":
			fail(http.StatusUnauthorized, "unauthorized")
		case r.Method == http.MethodPost && path == "":
			reader, err := r.MultipartReader()
			if err != nil {
				fail(http.StatusBadRequest, err.Error())
				return
			}
			size, content := "", []byte(nil)
			for content == nil {
				part, err := reader.NextPart()
				if err != nil {
					fail(http.StatusBadRequest, err.Error())
					return
				}
				text, err := io.ReadAll(part)
				if err != nil {
					fail(http.StatusBadRequest, err.Error())
					return
				}
				if part.FormName() == "size" {
					size = string(text)
				} else {
					content = text
				}
			}
			if size != fmt.Sprint(len(content)) {
				fail(http.StatusBadRequest, "the size is "+size)
				return
			}
			if a.artifact != nil {
				fail(http.StatusConflict, "an artifact with the same name and depends exists")
				return
			}
			a.artifact, a.uploads = content, a.uploads+1
			w.Header().Set("Location", "./management/v1/deployments/artifacts/7")
			w.WriteHeader(http.StatusCreated)
		case path == "" && r.URL.Query().Get("name") == "shop-5":
			_, _ = io.WriteString(w, `[{"id":"7","name":"shop-5","size":1}]`)
		case path == "/7/download":
			_ = json.NewEncoder(w).Encode(map[string]string{"uri": store.URL + "/file?signature=1"})
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(a.Close)
	return a
}

func (a *menderAPI) upload(t *testing.T, token, content string) (bool, error) {
	t.Helper()
	s, err := OpenMenderServer(a.URL, token)
	require.NoError(t, err)
	return s.Upload(t.Context(), "shop-5", file(t, content))
}

// An artifact is uploaded once. What is there with the same bytes is no fault, whoever put it
// there, and what is there with others is one.
func TestMenderServer(t *testing.T) {
	a := newMenderAPI(t)
	a.answers = []int{http.StatusBadGateway, http.StatusTooManyRequests}
	there, err := a.upload(t, "secret", "content")
	require.NoError(t, err)
	require.False(t, there)
	require.Equal(t, "content", string(a.artifact))
	there, err = a.upload(t, "secret", "content")
	require.NoError(t, err)
	require.True(t, there)
	require.Equal(t, 1, a.uploads)
	require.Equal(t, []string{""}, a.leaked)

	_, err = a.upload(t, "secret", "another")
	require.EqualError(t, err, "the Mender server has another artifact shop-5 for these devices (409: an artifact with the same name and depends exists)")
	_, err = a.upload(t, "secret", "longer content")
	require.ErrorContains(t, err, "has another artifact")
	a.answers = []int{http.StatusUnprocessableEntity} // of older servers
	there, err = a.upload(t, "secret", "content")
	require.NoError(t, err)
	require.True(t, there)
}

// What a server refuses is said, and the token is in no error.
func TestMenderServerRefuses(t *testing.T) {
	for code, says := range map[int]string{
		http.StatusUnauthorized:          "the Mender server refuses the token (401: for Bearer …)",
		http.StatusForbidden:             "the Mender server refuses this user (403: for Bearer …)",
		http.StatusRequestEntityTooLarge: "the artifact is too large for the Mender server (413: for Bearer …)",
		http.StatusBadRequest:            "the Mender server answers 400: for Bearer …",
		http.StatusBadGateway:            "the Mender server answers 502: for Bearer …",
		http.StatusFound:                 "the Mender server answers 302: for Bearer …",
	} {
		a := newMenderAPI(t)
		a.answers = []int{code, code, code}
		_, err := a.upload(t, "secret", "content")
		require.EqualError(t, err, says)
		require.Nil(t, a.artifact)
	}
	a := newMenderAPI(t)
	_, err := a.upload(t, "wrong", "content")
	require.EqualError(t, err, "the Mender server refuses the token (401: unauthorized)")
	a.Close()
	_, err = a.upload(t, "secret", "content")
	require.Error(t, err)
	require.NotContains(t, err.Error(), "secret")

	for _, text := range []string{"http://mender.example", "mender.example", "https://", "https://user:password@mender.example", "https://mender.example?a=b", "ftp://mender.example"} {
		_, err := OpenMenderServer(text, "secret")
		require.ErrorContains(t, err, "is not the URL of a Mender server", text)
		require.NotContains(t, err.Error(), "password")
	}
	for _, token := range []string{"", "two words", "line\nbreak"} {
		_, err := OpenMenderServer("https://mender.example", token)
		require.EqualError(t, err, "the token is not one word")
	}
}
