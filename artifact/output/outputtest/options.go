package outputtest

import (
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// Output is an option or argument that names an output.
type Output struct {
	Args  []string // without it; none: Test does not apply
	Whole func(t testing.TB, content []byte)
}

var (
	writes = regexp.MustCompile(`(?i)\bwrite\b`)
	file   = regexp.MustCompile(`\b(FILE|DIR|PATH)\b`)
)

// Options calls Test for each output of a program. Their keys are the path of the
// command and the option or the argument. It fails if the program has an option or
// argument that names an output, and outputs does not.
func Options(t *testing.T, root *cobra.Command, outputs map[string]Output, c Command, call func(args ...string) *exec.Cmd) {
	var found []string
	find(root, func(key string) { found = append(found, key) })
	slices.Sort(found)
	require.Equal(t, slices.Sorted(maps.Keys(outputs)), found, "the outputs of %s", root.Name())
	for _, key := range found {
		o := outputs[key]
		if o.Args == nil {
			continue
		}
		word := key[strings.LastIndex(key, " ")+1:]
		t.Run(key, func(t *testing.T) {
			c.Whole = o.Whole
			c.Run = func(name string) (string, error) {
				args := slices.Clone(o.Args)
				if strings.HasPrefix(word, "--") {
					return Said(call(append(args, word, name)...))
				}
				return Said(call(append(args, name)...))
			}
			Test(t, c)
		})
	}
}

// find finds what says of itself that it is written.
func find(c *cobra.Command, found func(key string)) {
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Value.Type() == "string" && (writes.MatchString(f.Usage) || strings.Contains(f.Name, "output")) {
			found(c.CommandPath() + " --" + f.Name)
		}
	})
	_, args, _ := strings.Cut(c.Use, " ")
	if word := file.FindString(args); word != "" && writes.MatchString(c.Short) {
		found(c.CommandPath() + " " + word)
	}
	for _, sub := range c.Commands() {
		find(sub, found)
	}
}
