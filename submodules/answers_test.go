package submodules

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Answers are read as they were written, and a line that nests without end is refused.
func TestAnswersAreReadBack(t *testing.T) {
	at := time.Date(2026, 11, 24, 7, 13, 39, 500, time.UTC)
	for _, s := range []appStatus{
		{"shop", Status{Alive: true, Services: []Service{}}},
		{"shop", Status{Alive: true, Healthy: true, Services: []Service{
			{Name: "web", Instance: "shop-web-1", Health: Unhealthy, Image: "shop/web:2", Since: at, Restarts: 3, Failure: "\"exited\" »1«\n", Failed: at, Said: "\\"}, {Name: "db", Health: Down},
		}}},
	} {
		text, err := json.Marshal(s)
		require.NoError(t, err)
		var read appStatus
		require.NoError(t, json.Unmarshal(text, &read), "%s", text)
		require.Equal(t, s, read)
	}
	info := Info{Protocol: "1.1", Name: "fake", Version: "1", Features: []string{FeatureStatus}, Env: []string{"A"}}
	text, err := json.Marshal(info)
	require.NoError(t, err)
	var read Info
	require.NoError(t, json.Unmarshal(text, &read))
	require.Equal(t, info, read)
	for _, hostile := range []string{`{`, `true`, ``, `{"application":"a","x":` + strings.Repeat("[", 900_000)} {
		m := script(t, "case $1 in\nPROTOCOL) echo '{\"protocol\":\"1.1\",\"name\":\"bad\",\"features\":[\"statuses/1\"]}' ;;\nSTATUS) cat "+file(t, hostile)+" ;;\nesac")
		err := m.Statuses(t.Context(), Request{}, []string{"a"}, func(string, Status) { require.Fail(t, "told of a status") })
		require.Error(t, err, "%.20s", hostile)
	}
}

// file writes a line into a file.
func file(t *testing.T, line string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "line")
	require.NoError(t, os.WriteFile(path, []byte(line+"\n"), 0o600))
	return path
}

// What a newer sub-module adds to its answers is ignored.
func TestNewerAnswer(t *testing.T) {
	var said []string
	m := script(t, `case $1 in
PROTOCOL) echo '{"protocol":"1.9","name":"newer","version":"9","features":["statuses/1"],"more":{"x":[1]}}' ;;
STATUS) shift; for app; do echo '{"application":"'$app'","alive":true,"healthy":true,"more":1,"services":[{"service":"web","health":"healthy","restarts":0,"more":[]}]}'; done ;;
esac`)
	info, err := m.Describe(t.Context())
	require.NoError(t, err)
	require.Equal(t, Info{Protocol: "1.9", Name: "newer", Version: "9", Features: []string{FeatureStatuses}}, info)
	require.NoError(t, m.Statuses(t.Context(), Request{}, []string{"a", "b"}, func(app string, s Status) {
		said = append(said, app)
		require.Equal(t, Status{Alive: true, Healthy: true, Services: []Service{{Name: "web", Health: Healthy}}}, s)
	}))
	require.Equal(t, []string{"a", "b"}, said)
}
