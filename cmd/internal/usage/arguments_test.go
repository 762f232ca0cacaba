package usage

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

func TestArguments(t *testing.T) {
	for _, c := range []struct{ words, args, want string }{
		{"", "", ""},
		{"", "x", `tool: unexpected argument "x"`},
		{"APP", "", "tool needs APP"},
		{"APP", "a", ""},
		{"APP", "a b c", `tool: unexpected argument "b"`},
		{"APP SERVICE", "", "tool needs APP and SERVICE"},
		{"APP SERVICE", "a", "tool needs SERVICE"},
		{"APP [SERVICE]", "a b", ""},
		{"APP [SERVICE]", "a b c", `tool: unexpected argument "c"`},
		{"[APP [NUMBER]]", "", ""},
		{"[APP [NUMBER]]", "a b", ""},
		{"[APP [NUMBER]]", "a b c", `tool: unexpected argument "c"`},
		{"FILE|- [APP…]", "", "tool needs FILE|-"},
		{"FILE|- [APP…]", "f a b c", ""},
		{"OLD... NEW -o DELTA", "a", "tool needs NEW"},
		{"OLD... NEW -o DELTA", "a b c d", ""},
		{"--version N", "a", `tool: unexpected argument "a"`},
		{"FILE|URL|- | --staged APP", "a b", `tool: unexpected argument "b"`},
		{"", "https://me:secret@host/x?token=y", `tool: unexpected argument "https://host/x"`},
	} {
		wrong, hint := Arguments(&cobra.Command{Use: "tool"}, c.words, strings.Fields(c.args))
		require.Equal(t, c.want, wrong, "%s: %s", c.words, c.args)
		require.Empty(t, hint)
	}
	noun := &cobra.Command{Use: "tool"}
	noun.AddCommand(&cobra.Command{Use: "show", Run: func(*cobra.Command, []string) {}})
	wrong, hint := Arguments(noun, "", []string{"shwo"})
	require.Equal(t, `unknown command "shwo" for "tool"`, wrong)
	require.Equal(t, "did you mean show?", hint)
}

func TestCheckArguments(t *testing.T) {
	run := func(*cobra.Command, []string) {}
	own := errors.New("its own")
	root := &cobra.Command{Use: "tool", Run: run, SilenceErrors: true, SilenceUsage: true}
	noun := &cobra.Command{Use: "noun", Run: run}
	noun.AddCommand(&cobra.Command{Use: "verb APP", Run: run})
	root.AddCommand(noun, &cobra.Command{Use: "other", Run: run, Args: func(*cobra.Command, []string) error { return own }})
	RefuseUnknown(root, func(*cobra.Command, string, string) error { return own })
	CheckArguments(root, func(c *cobra.Command, words string, args []string) error {
		if wrong, _ := Arguments(c, words, args); wrong != "" {
			return errors.New(wrong)
		}
		return nil
	})
	for line, want := range map[string]string{
		"noun verb":         "tool noun verb needs APP",
		"noun x":            `unknown command "x" for "tool noun"`,
		"completion bash x": `tool completion bash: unexpected argument "x"`,
		"other":             own.Error(),
	} {
		root.SetArgs(strings.Fields(line))
		require.EqualError(t, root.Execute(), want, line)
	}
}
