package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestChangesStay holds that what an operator changes stays over an update: an override, a
// value, and a service that is switched off. An update that the override does not fit is
// refused with nothing changed.
func TestChangesStay(t *testing.T) {
	t.Parallel()
	d := newDevice(t)
	program := filepath.Join(d.dir, "bin/mender-app")
	settings := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cmVERSION, annotations: {mender-app.io/values: \"true\"}}\ndata: {LANGUAGE: en}\n"
	other := strings.NewReplacer("name: web}", "name: other}", "app: web", "app: other").Replace(strings.Split(manifests("1"), "---\n")[0])
	release := func(version string, change ...string) string {
		text := strings.Replace(manifests(version, other), "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm"+version+"}\n", strings.ReplaceAll(settings, "VERSION", version), 1)
		text = strings.ReplaceAll(text, "e2e/web:1", "e2e/web:"+version)
		return d.artifact(version, strings.NewReplacer(change...).Replace(text), "--image="+d.image(version))
	}
	replicas := func() string { return d.in("get", "deployment", "web", "-o", "jsonpath={.spec.replicas}") }
	d.installs(release("1"))
	require.Equal(t, "1", replicas())

	patch := filepath.Join(d.dir, "patch.yaml")
	write := func(text string) { require.NoError(t, os.WriteFile(patch, []byte(text), 0o600)) }
	write("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 2, nonsense: 3}\n")
	said, err := d.command(program, "overrides", "set", d.app, patch).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(said), "with the override", "%s", said)
	require.Contains(t, string(said), "nonsense")
	write("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 2}\n")
	d.byHand(program, "overrides", "set", d.app, patch)
	require.Equal(t, "2", replicas())
	require.Contains(t, d.byHand(program, "overrides", "show", d.app, "--combined"), "replicas: 2")
	d.byHand(program, "disable", d.app, "deployment/other")
	require.NotContains(t, d.in("get", "deployments", "-o", "name"), "other")
	d.byHand(program, "values", "set", "--app", d.app, "LANGUAGE=sv")
	d.byHand(program, "start", d.app)
	language := func(version string) string {
		return d.in("get", "configmap", "cm"+version, "-o", "jsonpath={.data.LANGUAGE}")
	}
	require.Equal(t, "sv", language("1"))

	d.installs(release("2"))
	d.provides("2")
	require.Equal(t, []string{"2", "sv"}, []string{replicas(), language("2")})
	require.NotContains(t, d.in("get", "deployments", "-o", "name"), "other")

	before := d.everything()
	out, err := d.mender("install", release("4", "name: web", "name: till", "app: web", "app: till"))
	require.Error(t, err)
	require.Contains(t, out, "the overrides of "+d.app+" do not fit release")
	require.Contains(t, out, "the release has no Deployment/web")
	require.Equal(t, before, d.everything())
	d.provides("2")

	d.byHand(program, "overrides", "clear", d.app)
	require.Equal(t, "1", replicas())
	d.byHand(program, "enable", d.app, "deployment/other")
	require.Contains(t, d.in("get", "deployments", "-o", "name"), "deployment.apps/other")
}
