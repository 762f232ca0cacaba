package submodules

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Answers in their usual form are read as encoding/json reads them; others are left to it.
func TestAnswersAreReadQuickly(t *testing.T) {
	at := time.Date(2026, 11, 24, 7, 13, 39, 500, time.UTC)
	for _, s := range []appStatus{
		{"shop", Status{Alive: true, Services: []Service{}}},
		{"shop", Status{Alive: true, Healthy: true, Services: []Service{
			{Name: "web", Instance: "shop-web-1", Health: Unhealthy, Since: at, Restarts: 3, Failure: "\"exited\" »1«\n", Failed: at, Said: "\\"}, {Name: "db", Health: Down},
		}}},
	} {
		text, err := json.Marshal(s)
		require.NoError(t, err)
		var fast, slow appStatus
		require.True(t, fast.quick(text), "%s", text)
		require.NoError(t, json.Unmarshal(text, &slow))
		require.Equal(t, slow, fast)
	}
	text, err := json.Marshal(Info{Protocol: "1.1", Name: "fake", Version: "1", Features: []string{FeatureStatus}, Env: []string{"A"}})
	require.NoError(t, err)
	var fast, slow Info
	require.True(t, fast.quick(text))
	require.NoError(t, json.Unmarshal(text, &slow))
	require.Equal(t, slow, fast)
	for _, text := range []string{
		`{"application":"shop","services":null}`, `{"application":"shop","x":1}`, `{"services":[{"service":"a"}],"services":[{}]}`, `{"services":[{"service":"a","x":1}]}`, `{`, `true`, ``,
	} {
		require.False(t, new(appStatus).quick([]byte(text)), text)
		require.False(t, new(Info).quick([]byte(text)), text)
	}
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
