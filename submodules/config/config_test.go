package config

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestForms(t *testing.T) {
	for name, text := range map[string]string{
		"toml":      "# comment\npersistent_store = \"/data/mender-app\"\n",
		"documents": "persistent_store=/data/mender-app\n",
		"shell":     "#!/bin/sh\nPERSISTENT_STORE=/data/mender-app\n",
		"quoted":    "PERSISTENT_STORE=\"/data/mender-app\" # where\r\n",
		"single":    "export PERSISTENT_STORE='/data'/mender-\\app\n",
		"toml-also": "persistent_store=\"/data/mender-app\"",
	} {
		t.Run(name, func(t *testing.T) {
			f, err := Parse("x.conf", []byte(text))
			require.NoError(t, err)
			require.Equal(t, "/data/mender-app", f.String("", "persistent_store"))
			require.Empty(t, f.Unknown())
		})
	}
}

func TestTOMLOnly(t *testing.T) {
	f, err := Parse("x.conf", []byte("[health]\ndeadline = 30\nwindow = \"1m\"\nretry = true\n[other]\nx = 1.5\n"))
	require.NoError(t, err)
	d, err := f.Duration(0, "HEALTH_DEADLINE", "health.deadline")
	require.NoError(t, err)
	require.Equal(t, 30*time.Second, d)
	d, err = f.Duration(0, "health.window")
	require.NoError(t, err)
	require.Equal(t, time.Minute, d)
	b, err := f.Bool(false, "health.retry")
	require.NoError(t, err)
	require.True(t, b)
	require.Equal(t, []string{`x.conf: unknown setting "other.x" is ignored`}, f.Unknown())
}

func TestBroken(t *testing.T) {
	for text, want := range map[string]string{
		"A=1\nDOCKER_COMMAND=docker compose\n": "x.conf:2: DOCKER_COMMAND: a value with a blank must be quoted",
		"A=1\n\nB=$(reboot)\n":                 "x.conf:3: B: expansions are not supported; write the value itself",
		"B=`reboot`":                           "x.conf:1: B: expansions are not supported; write the value itself",
		"B=\"${HOME}\"":                        "x.conf:1: B: expansions are not supported; write the value itself",
		"B='x":                                 "x.conf:1: B: a quote is not closed",
		"B=x; reboot":                          `x.conf:1: B: ";" must be quoted`,
		"a = 1\nb = \n":                        "x.conf:2: ",
		"a = 1\nwhat is this\n":                "x.conf:2: ",
		"a = 1\na = 2\n":                       "x.conf:2: ",
		"\xff=1":                               "x.conf: not UTF-8 text",
	} {
		_, err := Parse("x.conf", []byte(text))
		require.ErrorContains(t, err, want, text)
	}
	f, err := Parse("x.conf", []byte("A=x\nB=-3s"))
	require.NoError(t, err)
	_, err = f.Int(0, "a")
	require.EqualError(t, err, `x.conf:1: A: "x" is not a whole number`)
	_, err = f.Bool(false, "a")
	require.EqualError(t, err, `x.conf:1: A: "x" is neither true nor false`)
	_, err = f.Duration(0, "b")
	require.EqualError(t, err, `x.conf:2: B: "-3s" is not a duration such as "90s"`)
}

func TestUnknownAndMissing(t *testing.T) {
	f, err := Parse("x.conf", []byte("A=1\nB=2\nC=3\n"))
	require.NoError(t, err)
	require.Equal(t, "2", f.String("", "b"))
	require.Equal(t, []string{`x.conf:1: unknown setting "A" is ignored`, `x.conf:3: unknown setting "C" is ignored`}, f.Unknown())

	f, err = Read(filepath.Join(t.TempDir(), "none.conf"))
	require.NoError(t, err)
	require.Equal(t, "default", f.String("default", "A"))
	require.Empty(t, f.Unknown())

	big := filepath.Join(t.TempDir(), "big.conf")
	require.NoError(t, os.WriteFile(big, make([]byte, maxSize+2), 0o600))
	_, err = Read(big)
	require.ErrorContains(t, err, "larger than")
}

func TestWords(t *testing.T) {
	for value, want := range map[string][]string{
		"docker compose":                {"docker", "compose"},
		`  "/opt/my docker"  compose  `: {"/opt/my docker", "compose"},
		`'a b'c "d\"e" f\ g`:            {"a bc", `d"e`, "f g"},
		"":                              nil,
	} {
		got, err := Words(value)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, value := range []string{`"x`, "a $b", "a;b"} {
		_, err := Words(value)
		require.Error(t, err, value)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("PERSISTENT_STORE=/data\n")
	f.Add("a = [1, 2]\n[b]\nc = 'd'\n")
	f.Add("export A=\"b\\\"c\" # d")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse("fuzz", []byte(text))
		if err == nil {
			c.Unknown()
			_, _ = Words(c.String("", "a"))
		} else if c != nil {
			t.Fatal("a file beside an error")
		}
	})
}

func TestArrays(t *testing.T) {
	text := "names = [\"a b\", \"c\"]\nwords = \"x, y\"\n[[keys]]\nfile = \"k\"\napplications = [\"shop\", \"ci-*\"]\n[[keys]]\nfile = \"l\"\nfiel = \"m\"\n"
	f, err := Parse("c", []byte(text), "names", "words", "keys", "keys.applications")
	require.NoError(t, err)
	require.Equal(t, []string{"a b", "c"}, f.Strings("names"))
	require.Equal(t, []string{"x", "y"}, f.Strings("nothing", "words"))
	require.Nil(t, f.Strings("nothing"))
	tables, err := f.Tables("keys")
	require.NoError(t, err)
	require.Len(t, tables, 2)
	require.Equal(t, "k", tables[0].String("", "file"))
	require.Equal(t, []string{"shop", "ci-*"}, tables[0].Strings("applications"))
	require.NoError(t, tables[0].RefuseUnknown(""))
	require.Equal(t, "l", tables[1].String("", "file"))
	require.EqualError(t, tables[1].RefuseUnknown(""), `c: unknown setting "fiel"`)
	require.NoError(t, tables[1].RefuseUnknown("other"))
	require.Empty(t, f.Unknown())

	for text, want := range map[string]string{
		"keep = [1]":           "keep: arrays are not used here",
		"[[keep]]\nx = 1":      "keep: arrays are not used here",
		"names = [1]":          "names: a int64 is not used in this array",
		"names = [[\"a\"]]":    "names: a []interface {} is not used in this array",
		"[[keys]]\nx = [\"\"]": "x: arrays are not used here",
	} {
		_, err := Parse("c", []byte(text), "names", "keys")
		require.ErrorContains(t, err, want, text)
	}
	f, err = Parse("c", []byte("keys = \"k\""), "keys")
	require.NoError(t, err)
	_, err = f.Tables("keys")
	require.ErrorContains(t, err, `keys: "k" is not a table [[keys]]`)
}
