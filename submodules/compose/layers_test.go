package compose

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/submodules"
)

// TestOverridesOfAnOperator: overrides change what the manifests have, in their order,
// and reach no further than the manifests may.
func TestOverridesOfAnOperator(t *testing.T) {
	if testing.Short() {
		t.Skip("asks Compose for each case; left out of -short")
	}
	secret := filepath.Join(t.TempDir(), "secret.env")
	require.NoError(t, os.WriteFile(secret, []byte("PASSWORD=hunter2\n"), 0o600))
	read := func(t *testing.T, back bool, layers ...string) (*project, error) {
		r := newReader(t)
		r.write("compose.yaml", "services:\n  web: {image: web, environment: {A: '1'}}\n")
		r.write("own.env", "B=2\n")
		r.s.set.refuse = []string{"privileged"}
		r.s.back = back
		for i, text := range layers {
			r.s.req.Overrides = append(r.s.req.Overrides, submodules.Override{Name: []string{"one.yaml", "two.yaml"}[i], Text: text})
		}
		return r.read()
	}
	p, err := read(t, false, "services: {web: {mem_limit: 32m, scale: 2}}", "services: {web: {scale: 3, env_file: own.env, volumes: ['data:/data']}}\nvolumes: {data: {}}")
	require.NoError(t, err)
	require.Equal(t, 3, p.model.Services["web"].containers(), "the later layer wins")
	require.Contains(t, string(p.text), `"mem_limit": "33554432"`)
	require.Equal(t, "evil", p.name)
	for text, says := range map[string]string{
		"services: {db: {mem_limit: 32m}}":                                      "with the overrides: the compose files in",
		"services: {web: {no_such_key: 1}}":                                     "with the overrides",
		"services: {web: {image: other}}":                                       "override one.yaml: service web has image, but the images of a release must come from its artifact",
		"x: &x {image: other}\nservices: {web: {<<: *x}}":                       "override one.yaml has x",
		"x-x: &x {image: other}\nservices: {web: {<<: *x}}":                     "service web has image",
		"services: {web: {scale: 2}}\n---\nservices: {web: {build: .}}":         "service web has build",
		"services: {web: {extends: {file: " + secret + ", service: a}}}":        "service web has extends",
		"include: [" + secret + "]":                                             "override one.yaml has include",
		"name: other":                                                           "override one.yaml has name",
		"services: {web: {env_file: " + secret + "}}":                           "override one.yaml: env-file names " + secret + ", outside the manifests",
		"services: {web: {secrets: [s]}}\nsecrets: {s: {file: " + secret + "}}": "secret names " + secret + ", outside the manifests",
		"services: {web: {privileged: true}}":                                   "service web has privileged, and REFUSE",
		"services: [web]":                                                       "override one.yaml: services is no mapping",
		"- a":                                                                   "override one.yaml: yaml",
		"":                                                                      "override one.yaml is empty",
	} {
		_, err := read(t, false, text)
		require.ErrorContains(t, err, says, text)
		require.ErrorIs(t, err, submodules.ErrContent, text)
	}
}

// TestOverridesOnTheEngine: a change of the overrides restarts what they reach; what does
// not fit is refused before anything changes, and does not keep a release from coming back.
func TestOverridesOnTheEngine(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v1 := b.load("1")
	dir := b.release("1", compose(b.app, serviceText("stock", b.app+":1")))
	request := func(layers ...submodules.Override) submodules.Request {
		return submodules.Request{App: b.app, Dir: dir, Components: []submodules.Component{v1}, Overrides: layers}
	}
	require.NoError(t, b.mod.Rollout(t.Context(), request()))
	before := b.ids()
	limit := submodules.Override{Name: "operator.yaml", Text: "services: {web: {mem_limit: 48m}}"}
	_, err := b.mod.Check(t.Context(), request(limit))
	require.NoError(t, err)
	text, err := b.mod.Render(t.Context(), request(limit))
	require.NoError(t, err)
	require.Contains(t, string(text), `mem_limit: "50331648"`)
	require.Equal(t, before, b.ids())
	require.NoError(t, b.mod.Rollout(t.Context(), request(limit)))
	after := b.ids()
	require.NotEqual(t, before, after)
	ok, err := b.mod.Healthy(t.Context(), request(limit))
	require.NoError(t, err)
	require.True(t, ok)

	unfit := submodules.Override{Name: "operator.yaml", Text: "services: {gone: {mem_limit: 48m}}"}
	for _, verb := range []func(submodules.Request) error{
		func(r submodules.Request) error { return b.mod.Rollout(t.Context(), r) },
		func(r submodules.Request) error { return b.mod.Start(t.Context(), r) },
		func(r submodules.Request) error { _, err := b.mod.Render(t.Context(), r); return err },
	} {
		err := verb(request(unfit))
		require.ErrorIs(t, err, submodules.ErrContent)
		require.ErrorContains(t, err, "with the overrides")
	}
	require.Equal(t, after, b.ids(), "nothing was touched")
	require.NoError(t, b.mod.Rollback(t.Context(), submodules.RollbackRequest{Request: request(unfit)}))
	require.NotEqual(t, after, b.ids(), "it runs without overrides")
}
