package generator

import (
	"testing"

	"github.com/compose-spec/compose-go/v2/dotenv"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/generator/manifests"
)

func variable(name, value string) manifests.Variable {
	return manifests.Variable{Name: name, Value: value}
}

// readEnv reads an env file as compose on the device does.
func readEnv(t testing.TB, path string) map[string]string {
	t.Helper()
	m, err := dotenv.GetEnvFromFile(map[string]string{}, []string{path})
	require.NoError(t, err)
	return m
}
