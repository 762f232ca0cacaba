package k8s

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/k8s/manifest"
)

func readObject(t *testing.T, text string) *manifest.Object {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "app.yaml"), []byte(text), 0o600))
	objects, err := manifest.Read(dir, nil)
	require.NoError(t, err, text)
	return &objects[0]
}

// Pods of an application are not selected by objects of another one, nor the other way
// round, unless the operator allows the pair.
func TestSelectors(t *testing.T) {
	a := newAPIStub(t)
	a.put("/api/v1/namespaces/default/services/till", `{"kind":"Service","apiVersion":"v1","metadata":{"name":"till","namespace":"default","uid":"t","labels":{"mender-app.io/app":"kiosk"}},"spec":{"selector":{"app":"till","tier":"web"}}}`)
	a.put("/api/v1/namespaces/default/services/headless", `{"kind":"Service","apiVersion":"v1","metadata":{"name":"headless","namespace":"default","uid":"h","labels":{"mender-app.io/app":"kiosk"}},"spec":{}}`)
	a.put("/api/v1/namespaces/default/services/nobodys", `{"kind":"Service","apiVersion":"v1","metadata":{"name":"nobodys","namespace":"default","uid":"n"},"spec":{"selector":{"app":"free"}}}`)
	a.put("/api/v1/namespaces/default/pods/db", `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"db","namespace":"default","uid":"d","labels":{"mender-app.io/app":"kiosk","app":"db"}}}`)
	pod := func(labels string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: p, labels: {" + labels + "}}\nspec: {containers: [{name: c, image: 'a:1'}]}\n"
	}
	service := func(selector string) string {
		return "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {selector: {" + selector + "}}\n"
	}
	for text, says := range map[string]string{
		pod("app: till, tier: web, more: x"): "app.yaml:1: Pod/p: its pods have the labels app=till,tier=web, so they get what is sent to the Service till of application kiosk: refused unless ALLOW_OTHERS in mender-app-k8s.conf has shop:kiosk",
		service("app: db"):                   "app.yaml:1: Service/s: it selects the pods of the Pod db of application kiosk: refused unless ALLOW_OTHERS in mender-app-k8s.conf has shop:kiosk",
		pod("app: till"):                     "", pod("app: free"): "", service("app: web"): "", service(""): "",
	} {
		check := func(others ...string) string {
			_, err := a.module(func(s *Settings) { s.Others = others }).Check(t.Context(), a.request("shop", text))
			if err == nil || !strings.Contains(err.Error(), "ALLOW_OTHERS") {
				return ""
			}
			require.ErrorIs(t, err, submodules.ErrContent)
			return err.Error()
		}
		require.Equal(t, says != "", check() != "", text)
		require.Contains(t, check(), says)
		require.Empty(t, check("shop:kiosk"), text)
	}
}

// Everything that finds pods by labels is seen, and whose pods it finds.
func TestSelectorOf(t *testing.T) {
	db, web := labels.Set{"app": "db"}, labels.Set{"app": "web"}
	for text, want := range map[string]string{
		"apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: x}\nspec: {podSelector: {}}\n":                                                               "db web",
		"apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: x}\nspec: {policyTypes: [Ingress]}\n":                                                        "db web",
		"apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: x}\nspec: {podSelector: {matchExpressions: [{key: app, operator: NotIn, values: [web]}]}}\n": "db",
		"apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: x}\nspec: {selector: {matchLabels: {app: web}}}\n":                                                "web",
		"apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: x}\nspec: {selector: {}}\n":                                                                       "db web",
		"apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: x}\nspec: {}\n":                                                                                   "",
		"apiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec: {selector: {app: db}}\n":                                                                                   "db",
		"apiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec: {type: ExternalName, externalName: a.example}\n":                                                           "",
		"apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: x}\nspec: {hard: {pods: '0'}}\n":                                                                               "db web",
		"apiVersion: v1\nkind: LimitRange\nmetadata: {name: x}\nspec: {limits: []}\n":                                                                                         "db web",
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\nspec: {selector: {matchLabels: {app: db}}, template: {metadata: {labels: {app: db}}}}\n":                 "",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {spec: x}\n":                                                                                             "",
	} {
		selects, selector, err := selectorOf(readObject(t, text))
		require.NoError(t, err, text)
		got := ""
		for _, set := range []labels.Set{db, web} {
			if selects && selector.Matches(set) {
				got += " " + set["app"]
			}
		}
		require.Equal(t, want, strings.TrimSpace(got), text)
	}
	require.Equal(t, labels.Set{"app": "db"}, podLabels("batch/v1", "CronJob", map[string]any{"spec": map[string]any{"jobTemplate": map[string]any{"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "db"}}}}}}}))
}

// A confined application gets no port of the node on which a program of the node listens.
func TestPortsOfNode(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	u, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	defer u.Close()
	tcp, udp := l.Addr().(*net.TCPAddr).Port, u.LocalAddr().(*net.UDPAddr).Port
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	unused := free.Addr().(*net.TCPAddr).Port
	require.NoError(t, free.Close())

	pod := func(port string) string {
		return "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {template: {spec: {containers: [{name: c, image: 'a:1', ports: [{containerPort: 80, " + port + "}]}]}}}\n"
	}
	service := func(kind string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {type: %s, ports: [{port: %d}]}\n", kind, tcp)
	}
	for text, says := range map[string]string{
		pod(fmt.Sprintf("hostPort: %d", tcp)):                fmt.Sprintf("it asks for the port %d/tcp of the node", tcp),
		pod(fmt.Sprintf("hostPort: %d, protocol: UDP", udp)): fmt.Sprintf("it asks for the port %d/udp of the node", udp),
		pod(fmt.Sprintf("hostPort: %d", unused)):             "",
		pod("name: web"):                                     "",
		service("LoadBalancer"):                              fmt.Sprintf("it asks for the port %d/tcp of the node", tcp),
		service("ClusterIP"):                                 "",
	} {
		o := readObject(t, text)
		r := &release{app: "shop", objects: []*planned{{Object: o}}}
		err := (&session{set: Settings{Levels: []string{"confined"}}}).checkPorts(r)
		if says == "" {
			require.NoError(t, err, text)
		} else {
			require.ErrorIs(t, err, submodules.ErrContent)
			require.ErrorContains(t, err, says)
			require.ErrorContains(t, err, "needs the level host-network, and LEVEL in mender-app-k8s.conf gives this application confined")
		}
		require.NoError(t, (&session{set: Settings{Levels: []string{"host-network"}}}).checkPorts(r))
	}
}
