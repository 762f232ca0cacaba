package manifest

import (
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// Encrypted manifests are read in memory, may have Secrets alone, and nothing of
// their content gets into an error.
func TestSealed(t *testing.T) {
	const secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {key: hunter2}\n"
	const plain = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n"
	open := func(r io.Reader) ([]byte, error) { // encrypted by "x"
		b, err := io.ReadAll(r)
		if err == nil && (len(b) == 0 || b[0] != 'x') {
			err = errors.New("it is encrypted to other keys")
		}
		return b[min(1, len(b)):], err
	}
	dir := write(t, map[string]string{"a.yaml": plain, "s.yaml.age": "x" + secret + "---\n" + `{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "j"}}`, "other.age": "y", "notes.txt.age": "y"})
	objects, err := Read(dir, open)
	require.NoError(t, err)
	sealed := map[string]bool{}
	for _, o := range objects {
		sealed[o.String()] = o.Sealed
	}
	require.Equal(t, map[string]bool{"a.yaml:1: ConfigMap/c": false, "s.yaml.age:1: Secret/s": true, "s.yaml.age:6: Secret/j": true}, sealed)
	for i := range objects {
		require.Equal(t, objects[i].Line, Position(dir, &objects[i], "stringData.nothing"))
	}

	for name, c := range map[string]struct {
		text, says string
		open       func(io.Reader) ([]byte, error)
	}{
		"no key":          {"x" + secret, "s.yaml.age: is encrypted, and there is no key", nil},
		"another key":     {"y" + secret, "s.yaml.age: it is encrypted to other keys", open},
		"another kind":    {"x" + secret + "---\n" + plain, "s.yaml.age:6: ConfigMap: an encrypted manifest may contain only Secrets", open},
		"another group":   {"x" + "apiVersion: evil/v1\nkind: Secret\nmetadata: {name: s}\n", "an encrypted manifest may contain only Secrets", open},
		"in a list":       {"x" + "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Pod, metadata: {name: p}}]\n", "Pod: an encrypted manifest", open},
		"no YAML":         {"x" + "apiVersion: v1\nhunter2 hunter2: [\n", "s.yaml.age:", open},
		"a key twice":     {"x" + "apiVersion: v1\nhunter2: 1\nhunter2: 2\n", "s.yaml.age:", open},
		"no object":       {"x" + "hunter2\n", "not a Kubernetes object", open},
		"the same object": {"x" + secret + "---\n" + secret, "Secret/s is in s.yaml:1 already", open},
	} {
		_, err := Read(write(t, map[string]string{"s.yaml.age": c.text}), c.open)
		require.ErrorContains(t, err, c.says, name)
		require.NotContains(t, err.Error(), "hunter2", name)
	}
}
