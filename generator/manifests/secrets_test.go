package manifests

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Secrets that everybody who has the artifact can read are warned of; those of
// the device are not.
func TestPlainSecrets(t *testing.T) {
	found, err := Compose(t.Context(), writeFiles(t, map[string]string{
		".env": "PASSWORD=x\n", "key": "k",
		"compose.yaml": `
services: {a: {image: "a:1", secrets: [shipped, variable, device, outside]}}
secrets:
  shipped: {file: ./key}
  variable: {environment: PASSWORD}
  device: {file: /etc/key}
  outside: {external: true}
`,
	}), ComposeOptions{})
	require.NoError(t, err)
	const text = ` is shipped in plain, and whoever has the artifact can read it: name a file of the device by its absolute path instead`
	require.Equal(t, []string{
		`compose.yaml:6: secret device /etc/key is a file of the device: it refuses this release unless ALLOW_OUTSIDE in its mender-app-docker-compose.conf has secret`,
		`compose.yaml:4: secret "shipped"` + text, `compose.yaml:5: secret "variable"` + text,
	}, found.Warnings)

	found, err = Kubernetes(writeFiles(t, map[string]string{"a.yaml": `
kind: Secret
metadata: {name: empty}
---
kind: Secret
metadata: {name: encoded}
data: {key: eA==}
---
kind: Secret
metadata: {name: text}
stringData: {key: x}
`}))
	require.NoError(t, err)
	require.Len(t, found.Warnings, 2)
	require.Equal(t, `a.yaml:5: Secret "encoded" is shipped in plain, and whoever has the artifact can read it: create it on the device instead`, found.Warnings[0])
}
