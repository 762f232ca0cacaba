package usage

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/artifact/input"
)

// CheckArguments makes all commands of root check their arguments against the words in
// their Use, except those with a check of their own. All commands of root must have been
// added, and RefuseUnknown called.
func CheckArguments(root *cobra.Command, check func(c *cobra.Command, words string, args []string) error) {
	if root.Args == nil {
		root.Args = func(c *cobra.Command, args []string) error {
			_, words, _ := strings.Cut(c.Use, " ")
			return check(c, words, args)
		}
	}
	for _, c := range root.Commands() {
		CheckArguments(c, check)
	}
}

// Arguments checks the number of arguments of a command against words such as
// "FILE [APP…]": one in brackets may be left out, one with dots may be repeated, and an
// option or a bar ends them. It returns what is wrong, "" if nothing is, and the next step
// if it knows one.
func Arguments(c *cobra.Command, words string, args []string) (wrong, hint string) {
	var required []string
	most := 0
	for _, w := range strings.Fields(words) {
		if strings.HasPrefix(w, "-") || w == "|" {
			break
		}
		name := strings.NewReplacer("...", "", "…", "").Replace(w)
		if name != w {
			most += len(args) // any number
		}
		most++
		if !strings.HasPrefix(w, "[") {
			required = append(required, name)
		}
	}
	switch n := len(args); {
	case n < len(required):
		return c.CommandPath() + " needs " + strings.Join(required[n:], " and "), ""
	case n <= most:
		return "", ""
	case c.HasSubCommands() && most == 0:
		return fmt.Sprintf("unknown command %q for %q", input.Source(args[0]), c.CommandPath()), MeantCommand(c, args[0])
	}
	return fmt.Sprintf("%s: unexpected argument %q", c.CommandPath(), input.Source(args[most])), ""
}
