package store

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
)

// usual are documents in their usual form: a state, a release, and a line of the history.
func usual(t testing.TB) (list []string) {
	t.Helper()
	at := time.Date(2026, 11, 24, 7, 13, 39, 500, time.UTC)
	d := digest.Of([]byte("a"))
	for _, v := range []any{
		State{Format: 1, Application: "shop", Sequence: 7, Current: "7-b", Kept: []string{"6-a"}, Stopped: true, Applied: "x", Values: "y"},
		Release{Format: 1, ID: "7-b", Application: "shop", ArtifactName: `shop "7" > 6`, Version: "7", Orchestrator: "docker-compose", Platform: "linux/arm/v7",
			Env: map[string]string{"A": "1"}, Components: []Component{{Type: "image", URL: "web:1", Digest: d, DiffIDs: []digest.Digest{d}}, {Type: "image"}},
			Policy: json.RawMessage(`{"upgrades":{"allow":"> 1"},"n":null}`), Statement: json.RawMessage(`{"payload":"e30="}`), Created: at, BootID: "b", Complete: true},
		line{
			Record: Record{ID: "1", Number: 7, Application: "shop", ArtifactName: "shop-7", From: "6-a", To: "7-b", Status: StatusInstalled, Driver: "mender", Asked: &Asked{AskedByHand, "root", "boot"},
				Started: at, Ended: at.Add(time.Minute), Error: "service »web« is down:\n\"no\"", Steps: []Step{{Phase: "loaded", At: at, Error: "\\", End: at, Outcome: OutcomeDone}},
				Measured: &Measured{Received: 1, Written: 2, Downtimes: []Downtime{{"web", 1.25, at}, {Service: "db"}}},
				Changed:  &Changed{FromArtifact: "shop-6", Components: []Change{{Type: "image", URL: "web:1", To: d}}}},
			Totals: &Totals{map[string]int64{StatusInstalled: 7}, at},
		},
	} {
		text, err := json.Marshal(v)
		require.NoError(t, err)
		list = append(list, string(text))
		text, err = marshal(v)
		require.NoError(t, err)
		list = append(list, string(text))
	}
	return list
}

// quicks reads a document as a state, a release and a line. What one of them is nil for is
// not in its usual form.
func quicks(data []byte) (fast, slow [3]any, err [3]error) {
	var s, plain State
	if s.quick(data) {
		fast[0] = s
	}
	_, err[0] = decode(data, (*plainState)(&plain))
	slow[0] = plain
	var r, whole Release
	if r.quick(data) {
		fast[1] = r
	}
	_, err[1] = decode(data, (*plainRelease)(&whole))
	slow[1] = whole
	var l, full brief
	if l.quick(data) {
		fast[2] = l
	}
	err[2] = json.Unmarshal(data, &full)
	slow[2] = full
	return fast, slow, err
}

func TestUsualDocumentsAreReadQuickly(t *testing.T) {
	for i, text := range usual(t) {
		fast, slow, err := quicks([]byte(text))
		require.NoError(t, err[i/2])
		require.Equal(t, slow[i/2], fast[i/2], text)
	}
}

// Each field that a document can have is read, or encoding/json reads the document.
func TestNoFieldIsLost(t *testing.T) {
	for _, document := range usual(t) {
		for _, more := range []string{`"x":1`, `"deployment":{"id":"1","to":"1-a","phase":"loaded"}`, `"failed":["7-b"]`, `"services":{}`, `"overrides":{}`, `"off":{"7-b":"no"}`, `"purge":"data"`,
			`"adopted_from":"/"`, `"deciding":true`, `"keep_services":true`, `"adopted":true`, `"unstarted":true`, `"members":[]`, `"leader":{}`, `"Kept":["x"]`, `"kept":null`, `"env":{"B":"2"}`,
			`"components":[{"type":"binary","x":1}]`, `"measured":{"x":1}`, `"asked":{"x":1}`, `"totals":{"x":1}`} {
			text := "{" + more + "," + document[1:]
			fast, slow, err := quicks([]byte(text))
			for i := range fast {
				if fast[i] != nil {
					require.NoError(t, err[i], text)
					require.Equal(t, slow[i], fast[i], text)
				}
			}
		}
	}
	var s State
	require.NoError(t, json.Unmarshal([]byte(`{"format":1,"x":[2]}`), &s))
	text, err := json.Marshal(s)
	require.NoError(t, err)
	require.Contains(t, string(text), `"x":[2]`)
}

// FuzzQuick: what is read quickly, encoding/json reads the same.
func FuzzQuick(f *testing.F) {
	for _, text := range usual(f) {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		fast, slow, err := quicks(data)
		for i := range fast {
			if fast[i] != nil {
				require.NoError(t, err[i])
				require.True(t, reflect.DeepEqual(slow[i], fast[i]), "%+v\n%+v", slow[i], fast[i])
			}
		}
	})
}
