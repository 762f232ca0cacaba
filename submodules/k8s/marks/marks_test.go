package marks

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestValues(t *testing.T) {
	require.Equal(t, "shop", Value("shop"))
	require.Equal(t, "mender-app-shop", InventoryName("shop"))
	require.Equal(t, "mender-app-shop", FieldManager("shop"))
	long := strings.Repeat("a", 200)
	for _, app := range []string{"Shöp", "x-1", long} {
		require.Regexp(t, `^x-[0-9a-f]{20}$`, Value(app))
		require.Equal(t, "mender-app-"+Value(app), InventoryName(app))
		require.LessOrEqual(t, len(FieldManager(app)), 128, "the API's bound of a manager's name")
	}
}

func TestCheck(t *testing.T) {
	check := func(group, kind, text string) error {
		var o map[string]any
		require.NoError(t, json.Unmarshal([]byte(text), &o))
		name := o["metadata"].(map[string]any)["name"].(string)
		return Check(group, kind, name, o)
	}
	for _, c := range []struct{ group, kind, text, want string }{
		{"", "ConfigMap", `{"metadata":{"name":"mender-app-shop"}}`, "names that begin with mender-app- are"},
		{"", "Secret", `{"metadata":{"name":"mender-app-x"}}`, "names that begin with mender-app- are"},
		{"", "Secret", `{"metadata":{"name":"s"},"type":"mender-app.io/manifests"}`, "the type mender-app.io/manifests is"},
		{"", "ConfigMap", `{"metadata":{"name":"c","labels":{"mender-app.io/inventory":"shop"}}}`, "labels: mender-app.io/inventory is"},
		{"", "ConfigMap", `{"metadata":{"name":"c","labels":{"mender-app.io/app":"shop"}}}`, "labels: mender-app.io/app is"},
		{"", "Namespace", `{"metadata":{"name":"n","labels":{"mender-app.io/created-for":"shop"}}}`, "mender-app.io/created-for is"},
		{"apps", "Deployment", `{"metadata":{"name":"d","annotations":{"mender-app.io/stopped":"1"}}}`, "annotations: mender-app.io/stopped is"},
		{"apps", "Deployment", `{"metadata":{"name":"d"},"spec":{"template":{"metadata":{"annotations":{"mender-app.io/images":"x"}}}}}`, "mender-app.io/images is"},
		{"apps", "StatefulSet", `{"metadata":{"name":"d"},"spec":{"volumeClaimTemplates":[{"metadata":{"labels":{"mender-app.io/app":"shop"}}}]}}`, "mender-app.io/app is"},
	} {
		require.ErrorContains(t, check(c.group, c.kind, c.text), c.want, c.text)
	}
	for _, c := range []struct{ group, kind, text string }{
		{"", "ConfigMap", `{"metadata":{"name":"shop-mender-app"},"data":{"labels":"mender-app.io/app"}}`},
		{"apps", "Deployment", `{"metadata":{"name":"mender-app-web","annotations":{"mender-app.io/keep":"true","mender-app.io/allow-pull":"true","mender-app.io/wait":"false"}}}`},
		{"", "Secret", `{"metadata":{"name":"s","labels":null},"type":"Opaque"}`},
	} {
		require.NoError(t, check(c.group, c.kind, c.text), c.text)
	}
}
