package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
)

// What try changes of the first service, however it is written; the rest stays.
func TestTryChanges(t *testing.T) {
	for compose, want := range map[string][2]string{
		"services: {web: {image: 'a', labels: [x=1], command: sh}, db: {image: b}}": {
			`{"image":"a","labels":["x=1","mender-app.try=2"],"command":"sh"}`, `{"image":"a","labels":["x=1"],"command":[],"entrypoint":["/broken-on-purpose"]}`,
		},
		"x: &l {x: '1'}\nservices: {web: {image: a, labels: {y: '2'}, entrypoint: [run]}, db: {image: b}}": {
			`{"image":"a","labels":{"y":"2","mender-app.try":"2"},"entrypoint":["run"]}`, `{"image":"a","labels":{"y":"2"},"entrypoint":["/broken-on-purpose"],"command":[]}`,
		},
		"services:\n  web: &w\n    image: a\n  db: {image: b}": {
			`{"image":"a","labels":{"mender-app.try":"2"}}`, `{"image":"a","entrypoint":["/broken-on-purpose"],"command":[]}`,
		},
	} {
		for i, change := range []func([]byte) ([]byte, error){labelled, broken} {
			text, err := change([]byte(compose))
			require.NoError(t, err)
			var got struct{ Services map[string]any }
			require.NoError(t, yaml.Unmarshal(text, &got))
			var expected any
			require.NoError(t, yaml.Unmarshal([]byte(want[i]), &expected))
			require.Equal(t, expected, got.Services["web"], "%s", text)
			require.Equal(t, map[string]any{"image": "b"}, got.Services["db"])
		}
	}
	for _, bad := range []string{"", "[]", "services: {}", "services: {web: null}", "services: [", "include: [x.yaml]"} {
		_, err := labelled([]byte(bad))
		require.Error(t, err, bad)
	}
}
