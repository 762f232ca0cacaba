package generator

import (
	"testing"

	"github.com/compose-spec/compose-go/v2/dotenv"
	"github.com/stretchr/testify/require"
)

// readEnv reads an env file as compose on the device does.
func readEnv(t testing.TB, path string) map[string]string {
	t.Helper()
	m, err := dotenv.GetEnvFromFile(map[string]string{}, []string{path})
	require.NoError(t, err)
	return m
}
