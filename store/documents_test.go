package store

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
)

// usual are documents with all fields of an application at rest: a state, a release,
// and a line of the history.
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

// What is written is read back, and a field that is not known stays.
func TestDocumentsAreReadBack(t *testing.T) {
	for i, text := range usual(t) {
		for _, more := range []string{"", `"x":[2],`} {
			var again []byte
			var err error
			document := []byte("{" + more + text[1:])
			switch i / 2 {
			case 0:
				var s State
				require.NoError(t, json.Unmarshal(document, &s), text)
				again, err = json.Marshal(s)
			case 1:
				var r Release
				require.NoError(t, json.Unmarshal(document, &r), text)
				again, err = json.Marshal(r)
			default:
				var l line
				require.NoError(t, json.Unmarshal([]byte(text), &l), text)
				again, err = json.Marshal(l)
				document = []byte(text)
			}
			require.NoError(t, err)
			require.JSONEq(t, string(document), string(again))
		}
	}
}

// A document that nests without end is refused, in whatever field.
func TestDeepDocuments(t *testing.T) {
	for _, field := range []string{"x", "kept", "policy", "components", "asked", "steps"} {
		deep := []byte(`{"` + field + `":` + strings.Repeat("[", 1<<20))
		require.Error(t, json.Unmarshal(deep, new(State)), field)
		require.Error(t, json.Unmarshal(deep, new(Release)), field)
		require.Error(t, json.Unmarshal(deep, new(brief)), field)
	}
}
