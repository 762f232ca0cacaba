package artifact

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMetadataHasSimpleValues: what Mender's client 4.0 takes is a string, a
// number, or a list of these.
func TestMetadataHasSimpleValues(t *testing.T) {
	m := sample()
	m.Version, m.Reboot, m.Env = VersionCurrent, true, map[string]string{"K8S_NAMESPACE": "shop"}
	m.Policy, m.Requires = json.RawMessage(`{"managed":true}`), append(m.Requires, FeaturePolicy)
	b, err := m.Encode()
	require.NoError(t, err)
	var values map[string]any
	require.NoError(t, json.Unmarshal(b, &values))
	require.Subset(t, values, map[string]any{"reboot": 1.0, "env": `{"K8S_NAMESPACE":"shop"}`})
	for _, name := range []string{"components", "sizes", "env", "policy"} {
		require.Contains(t, values, name)
	}
	for name, v := range values {
		list, ok := v.([]any)
		if !ok {
			list = []any{v}
		}
		for _, v := range list {
			switch v.(type) {
			case string, float64:
			default:
				t.Errorf("%s is a %T", name, v)
			}
		}
	}
	back, _, err := ParseMetadata(b)
	require.NoError(t, err)
	require.Equal(t, m, back)
}

// TestMetadataOfEarlierVersions: values that are not in a string, as app-gen
// wrote them before and as the shell reference has them.
func TestMetadataOfEarlierVersions(t *testing.T) {
	m := sample()
	m.Reboot, m.Env = true, map[string]string{"K8S_NAMESPACE": "shop"}
	plain, err := json.Marshal(metadataFields(*m))
	require.NoError(t, err)
	require.Contains(t, string(plain), `"components":[{`)
	require.Contains(t, string(plain), `"reboot":true`)
	back, _, err := ParseMetadata(plain)
	require.NoError(t, err)
	require.Equal(t, m, back)
}

// TestMetadataForTheReference: the shell reference reads the environment from
// an object.
func TestMetadataForTheReference(t *testing.T) {
	m := sample()
	m.Version, m.Requires, m.Env = VersionReference, nil, map[string]string{"K8S_NAMESPACE": "shop"}
	b, err := json.Marshal(m)
	require.NoError(t, err)
	require.Contains(t, string(b), `"env":{"K8S_NAMESPACE":"shop"}`)
}
