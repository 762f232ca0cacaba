package submodules

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// several is a sub-module that cannot tell of the application lost.
type several struct{ fake }

func (several) Open(_ context.Context, _ string, r Request) (Session, error) {
	return severalSession{fakeSession{r}}, nil
}

type severalSession struct{ fakeSession }

// asked are the components that STATUS was asked with, by application.
var asked = map[string][]Component{}

func (s severalSession) Status(ctx context.Context, r Request) (Status, error) {
	asked[r.App] = r.Components
	if s.App == "lost" {
		return Status{}, Mark(fmt.Errorf("no such thing"), ErrNotFound)
	}
	return s.fakeSession.Status(ctx, r)
}

// STATUS with several applications prints a line for each, and leaves out what it cannot
// tell of.
func TestFrameStatuses(t *testing.T) {
	var out, errs strings.Builder
	f := frame{o: several{}, name: "fake", version: "0.1", out: &out, err: &errs, getenv: func(string) string { return "" }}
	require.Zero(t, f.main(t.Context(), []string{"STATUS", "a", "lost", "b"}))
	const rest = `"alive":true,"healthy":false,"services":[{"service":"web","health":"unhealthy","restarts":2,"failure":"is on fire"}]}`
	require.Equal(t, `{"application":"a",`+rest+"\n"+`{"application":"b",`+rest+"\n", out.String())
	require.Equal(t, "warning: lost: no such thing\n", errs.String())
	require.Contains(t, f.features(), FeatureStatuses)

	path := filepath.Join(t.TempDir(), "components")
	require.NoError(t, os.WriteFile(path, []byte(`[{"type":"image","url":"x","application":"b"},{"type":"image","url":"y","application":"a"},{"type":"image","url":"z","application":"b"}]`), 0o600))
	f.getenv = func(name string) string { return map[string]string{EnvComponents: path}[name] }
	require.Zero(t, f.main(t.Context(), []string{"STATUS", "a", "b", "c"}))
	require.Equal(t, []Component{{Type: "image", URL: "y"}}, asked["a"])
	require.Equal(t, []Component{{Type: "image", URL: "x"}, {Type: "image", URL: "z"}}, asked["b"])
	require.Empty(t, asked["c"])
	f.o = withoutFeatures{}
	require.Empty(t, f.features())
	for _, wrong := range [][]string{{"a", ".."}, slices.Repeat([]string{"a"}, MaxApps+1)} {
		code, out, _ := try(nil, append([]string{"STATUS"}, wrong...)...)
		require.Equal(t, CodeUsage, code)
		require.Empty(t, out)
	}
}

// What a sub-module answers is read line by line, and what is no answer is an error.
func TestStatuses(t *testing.T) {
	for script, want := range map[string]string{
		`echo '{"application":"a","alive":true}'; echo '{"application":"b"}'`:                                        "",
		`echo '{"application":"a","alive":true}'; echo 'error: no engine' >&2; exit 3`:                               "no engine",
		`echo '{"application":"a","alive":true}'; echo '{"application":"a"}'; exec sleep 60`:                         "not the JSON of an application's status",
		`echo '{"application":"a","alive":true}'; echo '{"application":"other"}'`:                                    "not the JSON of an application's status",
		`echo '{"application":"a","alive":true}'; yes | tr -d '\n'`:                                                  "longer than",
		`echo '{"application":"a","alive":true}'; grep -q '"application":"b"' "$MENDER_APP_COMPONENTS" || echo none`: "",
	} {
		path := filepath.Join(t.TempDir(), "m")
		require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755))
		m := &Module{Name: "m", Path: path}
		got := map[string]bool{}
		err := m.Client().Statuses(t.Context(), Request{Components: []Component{{URL: "x", App: "b"}}}, []string{"a", "b"}, func(app string, s Status) { got[app] = s.Alive })
		require.True(t, got["a"], script)
		if want == "" {
			require.NoError(t, err, script)
		} else {
			require.ErrorContains(t, err, want, script)
		}
	}
}
