package rules

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestName(t *testing.T) {
	for app, want := range map[string]string{"shop": "shop", "My App 2": "myapp2", "-_x": "x", "a.b_c-d": "ab_c-d", "ü": "app-c3bc"} {
		require.Equal(t, want, ProjectName(app))
	}
}

func TestNamed(t *testing.T) {
	for text, want := range map[string]bool{
		"name: x\nservices: {}": true, "services: {}\nname: ${A}\n": true, "services:\n  a:\n    name: x\n": false,
		`{"name": "x", "services": {}}`: true, "\uFEFFname: x\r\nservices: {}\r\n": true, "\uFEFF{\"name\": \"x\"}": true, "\"name\" : x": true, "# name: x\n": false, "names: x": false,
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "compose.yaml")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		got, err := Named(dir, []string{file})
		require.NoError(t, err)
		require.Equal(t, want, got, text)
	}
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	_, err := FindFiles(dir)
	require.ErrorAs(t, err, new(*Refused))
	write("docker-compose.yml", "")
	write("compose.override.yml", "")
	got, err := FindFiles(dir)
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(dir, "docker-compose.yml"), filepath.Join(dir, "compose.override.yml")}, got)
	write("compose.yaml", "")
	got, err = FindFiles(dir)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "compose.yaml"), got[0])
	write(".env", "# x\nCOMPOSE_PATH_SEPARATOR=,\nexport COMPOSE_FILE=\"a.yml,sub/b.yml\"\n")
	got, err = FindFiles(dir)
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(dir, "a.yml"), filepath.Join(dir, "sub/b.yml")}, got)
	for _, text := range []string{
		"\uFEFFCOMPOSE_FILE=a.yml\r\nA=b\r\n", "COMPOSE_FILE=a.yml # the one of gateways\n", "COMPOSE_FILE: a.yml\n", "NAME=a\nCOMPOSE_FILE=${NAME}.yml\n",
	} {
		write(".env", text)
		got, err = FindFiles(dir)
		require.NoError(t, err, text)
		require.Equal(t, []string{filepath.Join(dir, "a.yml")}, got, text)
	}
	write(".env", "COMPOSE_FILE=/etc/passwd\n")
	_, err = FindFiles(dir)
	require.ErrorAs(t, err, new(*Refused))
}
