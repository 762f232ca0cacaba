package submodules

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func try(env map[string]string, args ...string) (code int, out, err string) {
	var o, e bytes.Buffer
	f := frame{o: fake{}, name: "fake", version: "0.1", in: strings.NewReader(""), out: &o, err: &e,
		getenv: func(n string) string { return env[n] }}
	return f.main(context.Background(), args), o.String(), e.String()
}

func TestFrame(t *testing.T) {
	code, out, _ := try(nil, "--help")
	require.Zero(t, code)
	for _, v := range verbs() {
		require.Contains(t, out, v.name)
		code, out, _ := try(nil, v.name, "--help")
		require.Zero(t, code)
		require.Contains(t, out, strings.TrimSpace("usage: fake "+v.name+" "+v.args))
	}
	for _, c := range codeText {
		require.Contains(t, out, c.text)
	}
	code, out, _ = try(nil, "completion")
	require.Zero(t, code)
	require.Contains(t, out, "ROLLBACK")
	_, out, _ = try(nil, "--version")
	require.Equal(t, "fake 0.1\n", out)

	for _, args := range [][]string{nil, {"NONE"}, {"LOAD", "a"}, {"LOAD", "a", "u", "p", "c", "x"}, {"SYNC", ".."}, {"SYNC", ""}, {"rollout", "a", "d"}} {
		code, _, errs := try(nil, args...)
		require.Equal(t, CodeUsage, code, args)
		require.Contains(t, errs, "error: ")
	}
	for verb, hint := range map[string]string{"rollout": "did you mean ROLLOUT?", "ROLOUT": "did you mean ROLLOUT?", "FROBNICATE": "see fake --help"} {
		_, _, errs := try(nil, verb, "a", "d")
		require.Equal(t, "error: unknown verb \""+verb+"\"; "+hint+"\n", errs)
	}
	code, out, _ = try(nil, "ALIVE", "a")
	require.Zero(t, code)
	require.Equal(t, "true\n", out)
	code, out, errs := try(nil, "HEALTHY", "a")
	require.Equal(t, CodeFailed, code)
	require.Equal(t, "false\n", out)
	require.Empty(t, errs)
	_, out, _ = try(nil, "LS_COMPONENTS", "a")
	require.Equal(t, `[{"type":"image","url":"web:1","digest":"sha256:00","additional_data":{"size":1}}]`+"\n", out)
	code, _, errs = try(nil, "ROLLOUT", "a", "/unhealthy")
	require.Equal(t, CodeUnhealthy, code)
	require.Equal(t, "error: web is unhealthy\n", errs)
}

// withoutFeatures is a sub-module that announces nothing.
type withoutFeatures struct{ fake }

func (withoutFeatures) Features() []string { return nil }

// A verb of a feature is there only if the feature is announced.
func TestFrameFeatures(t *testing.T) {
	code, out, _ := try(nil, "STATUS", "a")
	require.Zero(t, code)
	require.Equal(t, `{"alive":true,"healthy":false,"services":[{"service":"web","health":"unhealthy","restarts":2,"failure":"is on fire"}]}`+"\n", out)

	t.Setenv("TEST_SUBMODULE", t.TempDir())
	code, out, _ = try(nil, "CHECK", "a", "/r")
	require.Zero(t, code)
	require.Equal(t, `{"starts":["web in /r"],"restarts":[],"keeps":[],"removes":[]}`+"\n", out, "no list is null")

	code, out, _ = try(map[string]string{EnvLogLines: "2"}, "LOGS", "a", "web")
	require.Zero(t, code)
	require.Equal(t, strings.Repeat(`{"service":"web","stream":"stderr","line":"<web> \u001b[2J \ufffd"}`+"\n", 2), out)
	for _, wrong := range []string{"-1", "many", "1000001"} {
		code, _, _ = try(map[string]string{EnvLogLines: wrong}, "LOGS", "a")
		require.Equal(t, CodeUsage, code)
	}

	over := t.TempDir()
	for name, text := range map[string]string{"02-b.yaml": "two", "01-a.yaml": "one", ".hidden": "none"} {
		require.NoError(t, os.WriteFile(filepath.Join(over, name), []byte(text), 0o600))
	}
	code, out, _ = try(map[string]string{EnvOverrides: over}, "RENDER", "a", "/r")
	require.Zero(t, code)
	require.Equal(t, "01-a.yaml: one\n02-b.yaml: two\n", out)
	require.NoError(t, os.Truncate(filepath.Join(over, "01-a.yaml"), MaxOverride+1))
	code, _, errs := try(map[string]string{EnvOverrides: over}, "RENDER", "a", "/r")
	require.Equal(t, CodeUsage, code)
	require.Contains(t, errs, "01-a.yaml is not a file of at most 65536 bytes")

	needed := map[string]int{VerbStatus: 1, VerbLogs: 1, VerbCheck: 2, VerbRender: 2, VerbVolumes: 2, VerbRun: 4} // arguments
	for verb, feature := range optional {
		var o, e bytes.Buffer
		f := frame{o: withoutFeatures{}, name: "old", out: &o, err: &e, getenv: func(string) string { return "" }}
		require.Equal(t, CodeUsage, f.main(t.Context(), append([]string{verb}, slices.Repeat([]string{"a"}, needed[verb])...)))
		require.Equal(t, "error: "+verb+": old does not have the feature "+feature+"\n", e.String())
		require.Zero(t, f.main(t.Context(), []string{"--help"}))
		require.NotContains(t, o.String(), "\n  "+verb+" ")
	}
}

func TestFrameEnvironment(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.json")
	for text, want := range map[string]int{
		`[{"type":"image","url":"x","from":"the future"}]`: CodeFailed,
		`[]`:           CodeDone,
		`{}`:           CodeUsage,
		`not json`:     CodeUsage,
		`[{"url": 17`:  CodeUsage,
		`[{"url":17}]`: CodeUsage,
	} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		code, _, errs := try(map[string]string{EnvComponents: file}, "VERIFY", "a")
		require.Equal(t, want, code, text+errs)
	}
	code, _, _ := try(map[string]string{EnvComponents: file + "-none"}, "VERIFY", "a")
	require.Equal(t, CodeUsage, code)
	code, _, _ = try(map[string]string{EnvDeadline: "soon"}, "VERIFY", "a")
	require.Equal(t, CodeUsage, code)
}

func TestSplitURL(t *testing.T) {
	ref, d := SplitURL("host:5000/web:2@sha256:ab")
	require.Equal(t, "host:5000/web:2", ref)
	require.EqualValues(t, "sha256:ab", d)
	ref, d = SplitURL("web:2")
	require.Equal(t, "web:2", ref)
	require.Empty(t, d)
	r := Request{Components: []Component{{URL: "web:2", Digest: "sha256:ab"}}}
	_, ok := r.Component("web:2")
	require.True(t, ok)
	_, ok = r.Component("web:2@sha256:ab")
	require.True(t, ok)
	_, ok = r.Component("web:2@sha256:cd")
	require.False(t, ok)
}

// Both sides use the same tables: what a caller says in a request, the frame reads.
func TestArgumentsOfEachVerb(t *testing.T) {
	text := map[string]string{"app": "shop", "url": "web:1", "path": "/content", "source": "/contents", "current_url": "web:0", "dir": "/manifests", "failed_dir": "/failed", "service": "web"}
	lists := map[string][]string{"app…": {"door", "lamp"}, "word": {"migrate", "", "--to=2"}, "word…": {"migrate", "", "--to=2"}}
	for _, spec := range verbs() {
		act, ok := actions()[spec.name]
		if !ok {
			require.Equal(t, VerbProtocol, spec.name)
			continue
		}
		for _, optional := range []bool{true, false} {
			sent := act.request()
			for word := range strings.FieldsSeq(spec.args) {
				if word[0] == '[' && !optional && word != "[word…]" {
					continue
				}
				word = strings.Trim(word, "[]")
				switch field := sent.fields().args[word].(type) {
				case *string:
					*field = text[word]
					require.NotEmpty(t, *field, "%s %s", spec.name, word)
				case *[]string:
					*field = lists[word]
				default:
					require.Fail(t, "no field", "%s %s", spec.name, word)
				}
			}
			args, err := arguments(spec.name, sent)
			require.NoError(t, err, spec.name)
			got, err := frame{getenv: func(string) string { return "" }}.request(&spec, act.request(), args)
			require.NoError(t, err, spec.name)
			for word := range strings.FieldsSeq(spec.args) {
				word = strings.Trim(word, "[]")
				require.Equal(t, sent.fields().args[word], got.fields().args[word], "%s %s", spec.name, word)
			}
		}
	}
	_, err := arguments("NONSENSE", &Request{App: "shop"})
	require.ErrorContains(t, err, "unknown verb")
	_, err = arguments(VerbStop, &StopRequest{Request: Request{App: "shop", Dir: "a\x00b"}})
	require.ErrorContains(t, err, "NUL byte")
	_, err = arguments(VerbLoad, &Request{App: "shop"})
	require.ErrorContains(t, err, "the request is not one of LOAD: it has no url")
}

// Each option and variable of a request comes through, and to no other verb.
func TestOptionsOfEachVerb(t *testing.T) {
	m := &Module{Name: "fake"}
	lines := 7
	for _, sent := range []AnyRequest{
		&LoadRequest{Stage: true, Distrust: true}, &LoadRequest{Delta: true, DeepDelta: true}, &StopRequest{Remove: true},
		&PurgeRequest{Data: true, First: true}, &PurgeRequest{First: true}, &RepairRequest{Finish: true}, &VolumesRequest{Make: true},
		&ReqsRequest{Secrets: true, Recipients: []string{"age1a", "age1b"}}, &LogsRequest{Follow: true, Lines: &lines},
		&RunRequest{Probe: true, OldVersion: "1.0", NewVersion: "2 beta"}, &Request{},
	} {
		env, cleanup, err := m.environ(t.Context(), sent)
		require.NoError(t, err)
		cleanup()
		getenv := func(name string) string {
			for _, kv := range env {
				if value, ok := strings.CutPrefix(kv, name+"="); ok {
					return value
				}
			}
			return ""
		}
		for _, spec := range verbs() {
			act, ok := actions()[spec.name]
			if !ok {
				continue
			}
			got, err := frame{getenv: getenv}.request(&spec, act.request(), slices.Repeat([]string{"a"}, len(strings.Fields(strings.Split(spec.args, "[")[0]))))
			require.NoError(t, err, spec.name)
			if reflect.TypeOf(got) == reflect.TypeOf(sent) {
				require.Equal(t, sent.fields().options, got.fields().options, spec.name)
				require.Equal(t, sent.fields().env, got.fields().env, spec.name)
			}
		}
	}
}

// A sub-module without the method of a verb refuses the verb as one that it does not
// know.
func TestVerbsOfFeatures(t *testing.T) {
	for _, spec := range verbs() {
		act, ok := actions()[spec.name]
		if !ok {
			require.Equal(t, VerbProtocol, spec.name)
			continue
		}
		err := act.run(t.Context(), plainSession{}, act.request(), io.Discard)
		if slices.Contains(strings.Fields("VERIFY SYNC REPAIR STORAGE ENGINE RESTORE STATUS LOGS CHECK RENDER VOLUMES RUN"), spec.name) {
			require.ErrorIs(t, err, ErrUsage, spec.name)
			require.ErrorContains(t, err, "this sub-module ", spec.name)
		} else {
			require.NotErrorIs(t, err, ErrUsage, spec.name)
		}
	}
}

// plainSession has the verbs of protocol 1.0 alone.
type plainSession struct{}

func (plainSession) Save(context.Context, SaveRequest) error                  { return nil }
func (plainSession) Load(context.Context, LoadRequest) error                  { return nil }
func (plainSession) List(context.Context, Request) ([]Component, error)       { return nil, nil }
func (plainSession) Delete(context.Context, DeleteRequest) error              { return nil }
func (plainSession) ExportManifest(context.Context, Request) error            { return nil }
func (plainSession) Rollout(context.Context, Request) error                   { return nil }
func (plainSession) Rollback(context.Context, RollbackRequest) error          { return nil }
func (plainSession) Purge(context.Context, PurgeRequest) error                { return nil }
func (plainSession) Stop(context.Context, StopRequest) error                  { return nil }
func (plainSession) Start(context.Context, Request) error                     { return nil }
func (plainSession) Alive(context.Context, Request) (bool, error)             { return false, nil }
func (plainSession) Healthy(context.Context, Request) (bool, error)           { return true, nil }
func (plainSession) Reqs(context.Context, ReqsRequest) ([]Requirement, error) { return nil, nil }
func (plainSession) Close() error                                             { return nil }
