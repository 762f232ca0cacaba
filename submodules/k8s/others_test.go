package k8s

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
)

// An application uses nothing that another one has in a namespace of both, unless the
// operator allows the pair. CHECK says so too, and nothing is applied.
func TestOthers(t *testing.T) {
	a := newAPIStub(t)
	kiosk := a.module(nil)
	secret := "apiVersion: v1\nkind: Secret\nmetadata: {name: login}\nstringData: {password: x}\n"
	require.NoError(t, kiosk.Rollout(t.Context(), a.request("kiosk", secret+"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf}\ndata: {a: b}\n"+
		"---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: account}\n")))
	a.put("/api/v1/namespaces/default/persistentvolumeclaims/data", `{"kind":"PersistentVolumeClaim","apiVersion":"v1","metadata":{"name":"data","namespace":"default","uid":"d","labels":{"mender-app.io/app":"kiosk"}}}`)
	a.put("/api/v1/namespaces/default/secrets/nobodys", `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"nobodys","namespace":"default","uid":"n"}}`)
	pod := func(spec string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {" + spec + "}\n"
	}
	container := func(more string) string { return pod("containers: [{name: c, image: 'a:1', " + more + "}]") }
	for text, what := range map[string]string{
		pod("volumes: [{name: v, secret: {secretName: login}}]"):                          "Secret login",
		pod("volumes: [{name: v, projected: {sources: [{secret: {name: login}}]}}]"):      "Secret login",
		pod("imagePullSecrets: [{name: nobodys}, {name: login}]"):                         "Secret login",
		container("envFrom: [{secretRef: {name: login}}]"):                                "Secret login",
		container("env: [{name: A, valueFrom: {secretKeyRef: {name: login, key: a}}}]"):   "Secret login",
		container("env: [{name: A, valueFrom: {configMapKeyRef: {name: conf, key: a}}}]"): "ConfigMap conf",
		pod("volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]"):             "PersistentVolumeClaim data",
		pod("serviceAccountName: account"):                                                "ServiceAccount account",
	} {
		err := a.module(nil).Rollout(t.Context(), a.request("shop", text))
		require.ErrorIs(t, err, submodules.ErrContent, text)
		require.ErrorContains(t, err, "app.yaml:1: Pod/p: it uses the "+what+" of application kiosk: refused unless ALLOW_OTHERS in mender-app-k8s.conf has shop:kiosk", text)
		_, err = a.module(nil).Check(t.Context(), a.request("shop", text))
		require.ErrorContains(t, err, "it uses the "+what, text)
		for _, pair := range []string{"shop:kiosk", "shop:*"} {
			_, err := a.module(func(s *Settings) { s.Others = []string{"till:web", pair} }).Check(t.Context(), a.request("shop", text))
			if err != nil { // there is no such image
				require.NotContains(t, err.Error(), "it uses", text)
			}
		}
	}
	require.Nil(t, a.get("/api/v1/namespaces/default/pods/p"))
	for _, text := range []string{
		pod("volumes: [{name: v, secret: {secretName: nobodys}}, {name: w, secret: {secretName: later}}], serviceAccountName: default"),
		strings.ReplaceAll(secret, "login", "own") + "---\n" + container("envFrom: [{secretRef: {name: own}}]"),
	} {
		if _, err := a.module(nil).Check(t.Context(), a.request("shop", text)); err != nil {
			require.NotContains(t, err.Error(), "it uses", text)
		}
	}
}
