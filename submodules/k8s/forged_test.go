package k8s

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/k8s/cluster"
)

// TestForgedOnANode makes the attacks of TestForgedInventory and
// TestMetadataNamespace against a real API server.
func TestForgedOnANode(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	m, shop, evil := n.module(), n.ns, n.ns+"-evil"
	// The shop makes the namespace. Somebody else made precious before the shop took
	// it over.
	require.NoError(t, m.Rollout(ctx, n.request(shop, n.manifests(configMap("one")))))
	n.Apply(t, strings.Replace(configMap("precious"), "{name: precious}", "{name: precious, namespace: "+n.ns+"}", 1))
	taken := n.manifests(configMap("one"), strings.Replace(configMap("precious"), "k: v", "k: shop", 1))
	require.NoError(t, m.Rollout(ctx, n.request(shop, taken)))
	require.Contains(t, n.Kubectl("-n", n.ns, "get", "configmap", "precious", "--show-managed-fields", "-o", "jsonpath={.metadata.managedFields[*].manager}"), "mender-app-"+shop)
	list := n.get("", "ConfigMap", "mender-app-"+shop)
	require.Equal(t, shop, list.GetLabels()["mender-app.io/app"])
	precious := n.get("", "ConfigMap", "precious")

	forged := "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: mender-app-" + shop + "\n  labels: {mender-app.io/inventory: " + shop + "}\n" +
		"data: {app: " + shop + "}\nbinaryData:\n  inventory.json.gz: " + inventoryText(t, n.ns) + "\n"
	for name, c := range map[string]struct{ doc, says string }{
		"an inventory":         {forged, "mender-app's own"},
		"an application's own": {configMap("one"), "it belongs to the application " + shop},
		"another one's label":  {strings.Replace(configMap("mine"), "{name: mine}", "{name: mine, labels: {mender-app.io/app: "+shop+"}}", 1), "mender-app's own"},
	} {
		t.Run(name, func(t *testing.T) {
			err := m.Rollout(ctx, n.request(evil, n.manifests(c.doc)))
			require.ErrorIs(t, err, submodules.ErrContent)
			require.ErrorContains(t, err, c.says)
			require.Equal(t, list.GetResourceVersion(), n.get("", "ConfigMap", "mender-app-"+shop).GetResourceVersion())
			require.Equal(t, precious.GetResourceVersion(), n.get("", "ConfigMap", "precious").GetResourceVersion())
			require.Nil(t, n.get("", "ConfigMap", "mine"))
		})
	}

	// An inventory that another application wrote is not the shop's: nothing that it
	// names is deleted.
	t.Run("an inventory that is there", func(t *testing.T) {
		text := strings.Replace(forged, "name: mender-app-"+shop, "name: mender-app-"+evil+"\n  namespace: "+n.ns, 1)
		text = strings.Replace(text, "{mender-app.io/inventory: "+shop+"}", "{mender-app.io/inventory: "+evil+", mender-app.io/app: "+shop+"}", 1)
		n.Apply(t, strings.Replace(text, "data: {app: "+shop+"}", "data: {app: "+evil+"}", 1))
		require.NoError(t, m.Purge(ctx, submodules.PurgeRequest{Request: n.request(evil, taken)}))
		require.Equal(t, precious.GetResourceVersion(), n.get("", "ConfigMap", "precious").GetResourceVersion())
	})

	t.Run("a namespace of others", func(t *testing.T) {
		other := n.ns + "-monitoring"
		n.Apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+other+"}\n")
		t.Cleanup(func() { n.Kubectl("delete", "namespace", other, "--wait=false") })
		secret := "apiVersion: v1\nkind: Secret\nmetadata: {name: grafana, namespace: " + other + "}\nstringData: {password: admin}\n"
		n.Apply(t, secret)
		id := cluster.ID{Kind: "Secret", Namespace: other, Name: "grafana"}
		before, err := n.c.Get(ctx, id)
		require.NoError(t, err)
		over := n.manifests(strings.Replace(strings.Replace(secret, "password: admin", "password: evil", 1), ", namespace: "+other, "", 1))
		in := func(allowed string) caller {
			set := n.set
			set.Namespace, set.Asked, set.Namespaces = other, true, allowed
			return caller{New(func() (Settings, error) { return set, nil })}
		}
		err = in("default").Rollout(ctx, n.request(evil, over))
		require.ErrorIs(t, err, submodules.ErrContent)
		require.ErrorContains(t, err, "the namespace "+other+" was not made by mender-app")
		after, err := n.c.Get(ctx, id)
		require.NoError(t, err)
		require.Equal(t, before.GetResourceVersion(), after.GetResourceVersion())
		require.NoError(t, in(other).Rollout(ctx, n.request(evil, over)))
	})

	require.NoError(t, m.Purge(ctx, submodules.PurgeRequest{Request: n.request(shop, taken)}))
	require.NotNil(t, n.get("", "ConfigMap", "precious"), "it was there before the shop")
	require.Nil(t, n.get("", "ConfigMap", "mender-app-"+shop))
}
