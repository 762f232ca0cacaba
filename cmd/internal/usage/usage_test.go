package usage

import (
	"bytes"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

func TestMeant(t *testing.T) {
	root := &cobra.Command{Use: "tool"}
	run := func(*cobra.Command, []string) {}
	root.PersistentFlags().Bool("json", false, "")
	root.AddCommand(&cobra.Command{Use: "install", Run: run}, &cobra.Command{Use: "list", Run: run}, &cobra.Command{Use: "secret", Run: run, Hidden: true})
	require.Equal(t, "did you mean install?", MeantCommand(root, "instal"))
	require.Equal(t, "did you mean list?", MeantCommand(root, "lsit"))
	require.Empty(t, MeantCommand(root, "secre"), "a hidden command")
	require.Empty(t, MeantCommand(root, "frobnicate"))

	list, _, err := root.Find([]string{"list"})
	require.NoError(t, err)
	list.Flags().Int("limit", 0, "")
	list.Flags().Bool("force", false, "")
	for arg, want := range map[string]string{
		"--limt":   "did you mean --limit?",
		"--jsno":   "did you mean --json?",
		"--fo":     "did you mean --force?",
		"-json":    "did you mean --json?",
		"-x":       "",
		"--nosuch": "",
	} {
		err := list.ParseFlags([]string{arg})
		require.Error(t, err, arg)
		require.Equal(t, want, MeantOption(list, err), arg)
	}
	require.Empty(t, MeantOption(list, list.ParseFlags([]string{"--limit", "x"})))
}

func TestAsksJSON(t *testing.T) {
	require.True(t, AsksJSON([]string{"list", "--nosuch", "--json"}))
	require.True(t, AsksJSON([]string{"--json=true", "list"}))
	require.False(t, AsksJSON([]string{"--json=false", "list"}))
	require.False(t, AsksJSON([]string{"show", "--", "--json"}))
	require.False(t, AsksJSON(nil))
}

func TestPrintJSON(t *testing.T) {
	var out bytes.Buffer
	PrintJSON(&out, "it is <broken>", "", 5)
	require.Equal(t, `{"error":"it is <broken>","code":5}`+"\n", out.String())
	out.Reset()
	PrintJSON(&out, "two\nlines", "try again", 75)
	require.Equal(t, `{"error":"two\nlines","hint":"try again","code":75}`+"\n", out.String())
}
