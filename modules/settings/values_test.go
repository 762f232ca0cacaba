package settings

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

func write(t *testing.T, file, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
}

// Who is closer to the application counts, and the operator more than the device.
func TestOrder(t *testing.T) {
	s := Values{Store: store.At(t.TempDir()), Dir: t.TempDir()}
	require.NoError(t, s.Store.Prepare())
	write(t, filepath.Join(s.Dir, "10.env"), "A=1\nB=1\nC=1\nD=1\n")
	write(t, filepath.Join(s.Dir, "20.env"), "# more\n\nA='1a'\n")
	write(t, filepath.Join(s.Dir, "shop", "10.env"), "B=2\nC=2\nD=2\n")
	require.NoError(t, s.Change(t.Context(), "", map[string]string{"C": "3", "D": "3"}, nil))
	require.NoError(t, s.Change(t.Context(), "shop", map[string]string{"D": "4 $x \"y\""}, nil))
	log := slog.New(slog.DiscardHandler)
	require.Equal(t, map[string]string{"A": "1a", "B": "2", "C": "3", "D": "4 $x \"y\""}, s.For(log, "shop"))
	require.Equal(t, map[string]string{"A": "1a", "B": "1", "C": "3", "D": "3"}, s.For(log, "club"))

	require.ErrorIs(t, s.Change(t.Context(), "shop", nil, []string{"A"}), ErrNoValue)
	require.NoError(t, s.Change(t.Context(), "shop", nil, []string{"D"}))
	require.Equal(t, "3", s.For(log, "shop")["D"])
	require.Empty(t, Values{}.For(log, "shop"))

	// What cannot be trusted or read is left out, and named.
	require.NoError(t, os.Chmod(filepath.Join(s.Dir, "20.env"), 0o666))
	write(t, filepath.Join(s.Dir, "30.env"), "COMPOSE_FILE=x\n")
	list, err := s.List("club")
	require.ErrorContains(t, err, "20.env can be changed by others")
	require.ErrorContains(t, err, "30.env: line 1: COMPOSE_FILE")
	require.Equal(t, Value{"A", "1", Device, ""}, list[0])
}

// An application uses the values that its manifests name as a word.
func TestUsed(t *testing.T) {
	s := Values{Store: store.At(t.TempDir())}
	require.NoError(t, s.Store.Prepare())
	require.NoError(t, s.Change(t.Context(), "", map[string]string{"PORT": "1", "PORTS": "2", "MODE": "3", "LAYER": "4"}, nil))
	dir := t.TempDir()
	write(t, filepath.Join(dir, "compose.yaml"), "ports: ['${PORT}:80']\nx: OLD_MODE MODE_2\n")
	log := slog.New(slog.DiscardHandler)
	require.Equal(t, map[string]string{"PORT": "1"}, s.Used(log, "shop", dir, nil))
	layers := []submodules.Override{{Name: "o", Text: "$LAYER"}}
	require.Equal(t, map[string]string{"PORT": "1", "LAYER": "4"}, s.Used(log, "shop", dir, layers))
	link := filepath.Join(t.TempDir(), "manifests")
	require.NoError(t, os.Symlink(dir, link))
	require.Equal(t, map[string]string{"PORT": "1"}, s.Used(log, "shop", link, nil))
	write(t, filepath.Join(dir, "hooks", "check"), "echo $MODE")
	require.Equal(t, "3", s.Used(log, "shop", dir, nil)["MODE"])
	require.NoError(t, os.Truncate(filepath.Join(dir, "compose.yaml"), maxFile+1))
	require.Len(t, s.Used(log, "shop", dir, nil), 4, "too long to be searched")
	require.Nil(t, s.Used(log, "shop", filepath.Join(dir, "none"), nil))
	require.NotEqual(t, ValuesFingerprint(map[string]string{"A": "1"}), ValuesFingerprint(map[string]string{"A": "2"}))
	require.Empty(t, ValuesFingerprint(nil))
}

func TestBounds(t *testing.T) {
	s := Values{Store: store.At(t.TempDir())}
	require.NoError(t, s.Store.Prepare())
	many := map[string]string{}
	for i := range submodules.MaxValues + 1 {
		many[fmt.Sprint("V", i)] = "x"
	}
	require.ErrorContains(t, s.Change(t.Context(), "", many, nil), "more than")
	for _, bad := range []string{"", "1A", "A-B", "MENDER_APP_X", "DOCKER_HOST", strings.Repeat("A", 129)} {
		require.Error(t, s.Change(t.Context(), "", map[string]string{bad: "x"}, nil), bad)
	}
	for _, bad := range []string{"a'b", "a\nb", "\x00", "\xff", strings.Repeat("x", 1025)} {
		require.Error(t, s.Change(t.Context(), "", map[string]string{"A": bad}, nil), bad)
	}
	require.Error(t, LacksValues("shop", submodules.Info{}, "k8s"))
	write(t, filepath.Join(s.Store.Meta("values"), "values.json"), "{")
	require.Error(t, s.Change(t.Context(), "", map[string]string{"A": "b"}, nil), "what cannot be read is not replaced")
}
