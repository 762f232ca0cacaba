package source

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/generator/gentest"
)

// A registry that is asked without TLS may name a token service of its own host. Another host
// is never given credentials, and over plain HTTP is not asked at all.
func TestTokenServiceElsewhere(t *testing.T) {
	var realm atomic.Value
	var asked, shown atomic.Int32
	tokens := func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Header.Get("Authorization") != "" || r.Method == http.MethodPost {
			shown.Add(1)
		}
		if to := r.URL.Query().Get("to"); to != "" {
			http.Redirect(w, r, to, http.StatusTemporaryRedirect)
			return
		}
		fmt.Fprint(w, `{"token": "for everybody"}`)
	}
	host := gentest.Serve(t, "", "", func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			named, _ := realm.Load().(string)
			switch {
			case r.URL.Path == "/token":
				tokens(w, r)
			case named != "" && r.Header.Get("Authorization") != "Bearer for everybody":
				w.Header().Set("WWW-Authenticate", `Bearer realm="`+named+`",service="x"`)
				w.WriteHeader(http.StatusUnauthorized)
			default:
				next.ServeHTTP(w, r)
			}
		})
	})
	gentest.Push(t, host+"/web:1", gentest.Image(t, "linux/amd64", gentest.Files{"a": "x"}), "", "")
	other := httptest.NewServer(http.HandlerFunc(tokens))
	defer other.Close()
	elsewhere := strings.Replace(other.URL, "127.0.0.1", "localhost", 1) + "/token"
	for name, c := range map[string]struct {
		realm string
		login bool
		want  string // in the error; "" for none
		asked bool
		shown bool
	}{
		"the registry":                     {"http://" + host + "/token", false, "", true, false},
		"the registry, with a login":       {"http://" + host + "/token", true, "", true, true},
		"elsewhere":                        {elsewhere, false, "plain HTTP", false, false},
		"elsewhere, with a login":          {elsewhere, true, "gets no login", false, false},
		"elsewhere with TLS, with a login": {strings.Replace(elsewhere, "http:", "https:", 1), true, "gets no login", false, false},
		"redirected":                       {"http://" + host + "/token?to=" + elsewhere, false, "plain HTTP", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := opener(t, "linux/amd64")
			if c.login {
				auth := base64.StdEncoding.EncodeToString([]byte("me:secret"))
				require.NoError(t, os.WriteFile(filepath.Join(os.Getenv("DOCKER_CONFIG"), "config.json"), []byte(`{"auths":{"`+host+`":{"auth":"`+auth+`"}}}`), 0o600))
			}
			realm.Store(c.realm)
			defer realm.Store("")
			asked.Store(0)
			shown.Store(0)
			f, err := open(t, o, host+"/web:1")
			if c.want == "" {
				require.NoError(t, err)
				content(t, f)
			} else {
				require.ErrorContains(t, err, c.want)
			}
			require.Equal(t, c.asked, asked.Load() > 0)
			require.Equal(t, c.shown, shown.Load() > 0)
		})
	}
}
