package k8s

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
)

const (
	precious = "/api/v1/namespaces/default/configmaps/precious"
	shopList = "/api/v1/namespaces/default/configmaps/mender-app-shop"
)

// inventoryText is the data of an inventory with the ConfigMap precious of a namespace.
func inventoryText(t *testing.T, namespace string) string {
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	_, err := w.Write([]byte(`{"format":1,"items":[{"kind":"ConfigMap","namespace":"` + namespace + `","name":"precious"}]}`))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return base64.StdEncoding.EncodeToString(z.Bytes())
}

// TestForgedInventory: no application can write what another one has in the
// cluster, and so have deleted what was there before, or break it for good.
func TestForgedInventory(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const take = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: precious}\ndata: {k: shop}\n"
	start := func(t *testing.T) (*apiStub, caller) {
		a := newAPIStub(t)
		a.put(precious, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"precious","namespace":"default","uid":"p"},"data":{"k":"admin"}}`)
		m := a.module(nil)
		require.NoError(t, m.Rollout(ctx, a.request("shop", take)))
		require.Equal(t, "mender-app-shop", a.manager(precious), "each application has a field manager")
		require.Equal(t, "shop", a.get(shopList)["metadata"].(map[string]any)["labels"].(map[string]any)["mender-app.io/app"])
		return a, m
	}
	for name, data := range map[string]string{"forged": inventoryText(t, "default"), "garbage": "AAAA"} {
		t.Run("refused/"+name, func(t *testing.T) {
			a, m := start(t)
			before := copyJSON(a.get(shopList))
			err := m.Rollout(ctx, a.request("evil", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: mender-app-shop\n  labels: {mender-app.io/inventory: shop}\n"+
				"data: {app: shop}\nbinaryData:\n  inventory.json.gz: "+data+"\n"))
			require.ErrorContains(t, err, "names that begin with mender-app- are mender-app's own")
			require.ErrorIs(t, err, submodules.ErrContent)
			require.Equal(t, before, a.get(shopList))
			require.NoError(t, m.Rollout(ctx, a.request("shop", take)))
			require.NoError(t, m.Purge(ctx, submodules.PurgeRequest{Request: a.request("shop", take)}))
			require.NotNil(t, a.get(precious), "it was there before the application")
			require.Nil(t, a.get(shopList))
		})
		// One that an earlier version let through has that application's label.
		t.Run("already there/"+name, func(t *testing.T) {
			a, m := start(t)
			a.put(shopList, fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"mender-app-shop","namespace":"default","uid":"f",
				"labels":{"mender-app.io/inventory":"shop","mender-app.io/app":"evil"}},"data":{"app":"shop"},"binaryData":{"inventory.json.gz":%q}}`, data))
			require.NoError(t, m.Purge(ctx, submodules.PurgeRequest{Request: a.request("shop", take)}))
			require.NotNil(t, a.get(precious))
			require.NoError(t, m.Rollout(ctx, a.request("shop", take)))
		})
	}
	t.Run("an earlier version's", func(t *testing.T) {
		a, m := start(t)
		a.put(precious, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"precious","namespace":"default","uid":"p","labels":{"mender-app.io/app":"shop"}}}`)
		a.put(shopList, fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"mender-app-shop","namespace":"default","uid":"f",
			"labels":{"mender-app.io/inventory":"shop"}},"data":{"app":"shop"},"binaryData":{"inventory.json.gz":%q}}`, inventoryText(t, "default")))
		require.NoError(t, m.Purge(ctx, submodules.PurgeRequest{Request: a.request("shop", take)}))
		require.Nil(t, a.get(precious), "an inventory without the label is read")
	})
}

// TestMetadataNamespace: the metadata cannot name a namespace that others made.
func TestMetadataNamespace(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const grafana = "/api/v1/namespaces/monitoring/secrets/grafana"
	over := "apiVersion: v1\nkind: Secret\nmetadata: {name: grafana}\ndata: {password: ZXZpbA==}\n"
	a := newAPIStub(t)
	a.put("/api/v1/namespaces/monitoring", `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"monitoring","uid":"m"}}`)
	a.put("/api/v1/namespaces/monitoring/serviceaccounts/default", `{"kind":"ServiceAccount","apiVersion":"v1","metadata":{"name":"default"}}`)
	a.put("/api/v1/namespaces/fresh/serviceaccounts/default", `{"kind":"ServiceAccount","apiVersion":"v1","metadata":{"name":"default"}}`)
	a.put(grafana, `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"grafana","namespace":"monitoring","uid":"g"},"data":{"password":"YWRtaW4="}}`)
	in := func(ns, allowed string) caller {
		return a.module(func(s *Settings) { s.Namespace, s.Asked, s.Namespaces = ns, true, allowed })
	}
	err := in("monitoring", "other").Rollout(ctx, a.request("evil", over))
	require.ErrorContains(t, err, "the namespace monitoring was not made by mender-app")
	require.ErrorIs(t, err, submodules.ErrContent)
	require.Equal(t, map[string]any{"password": "YWRtaW4="}, a.get(grafana)["data"])

	require.NoError(t, in("fresh", "").Rollout(ctx, a.request("honest", over)), "one that is created")
	require.NoError(t, in("fresh", "").Rollout(ctx, a.request("honest", over)), "one that was")
	require.NoError(t, in("monitoring", "other monitoring").Rollout(ctx, a.request("allowed", over)))
}
