// Package usage responds to a wrong command line: it suggests the intended command or
// option, and prints errors for programs that read JSON.
package usage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mender-app/mender-app/artifact/clip"
)

// distance is how many letters of a misspelt word may be wrong.
func distance(word string) int {
	if len(word) < 4 {
		return 1
	}
	return 2
}

// MeantCommand asks whether a similar command of c was meant; "" if none is
// similar.
func MeantCommand(c *cobra.Command, word string) string {
	c.SuggestionsMinimumDistance = distance(word)
	return meant(c.SuggestionsFor(word))
}

// MeantOption asks whether a similar option of c was meant, if err is about an
// option that c does not have; "" if none is similar.
func MeantOption(c *cobra.Command, err error) string {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return ""
	}
	if short := unknown.GetSpecifiedShortnames(); short != "" {
		if f := c.Flags().Lookup(short); f != nil { // -json
			return meant([]string{"--" + f.Name})
		}
		return ""
	}
	// cobra compares the names of commands: make each option a command.
	options := &cobra.Command{SuggestionsMinimumDistance: distance(unknown.GetSpecifiedName())}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			options.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
		}
	})
	like := options.SuggestionsFor(unknown.GetSpecifiedName())
	for i := range like {
		like[i] = "--" + like[i]
	}
	return meant(like)
}

func meant(like []string) string {
	if len(like) == 0 {
		return ""
	}
	return "did you mean " + strings.Join(like, " or ") + "?"
}

// AsksJSON reports whether a command line has the option --json. It is for errors
// before or in the parsing of the options.
func AsksJSON(args []string) (asks bool) {
	for _, a := range args {
		switch value, ok := strings.CutPrefix(a, "--json="); {
		case a == "--":
			return asks
		case a == "--json":
			asks = true
		case ok:
			asks, _ = strconv.ParseBool(value)
		}
	}
	return asks
}

// PrintJSON prints an error as one line of JSON: the error, the next step if there
// is one, and the exit code.
func PrintJSON(w io.Writer, err, hint string, code int) {
	e := json.NewEncoder(clip.JSONWriter(w))
	e.SetEscapeHTML(false)
	_ = e.Encode(struct {
		Error string `json:"error"`
		Hint  string `json:"hint,omitempty"`
		Code  int    `json:"code"`
	}{err, hint, code})
}

// RefuseUnknown makes cobra's own commands help and completion refuse a command
// or a shell that does not exist; by default they print the program's help and
// succeed. wrong makes the error. All commands of root must have been added.
func RefuseUnknown(root *cobra.Command, wrong func(c *cobra.Command, text, hint string) error) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.RunE = func(_ *cobra.Command, args []string) error {
				of, rest, err := root.Find(args)
				if err != nil || len(rest) > 0 {
					word := append(rest, args...)[0]
					return wrong(root, fmt.Sprintf("there is no help for %q", word), MeantCommand(of, word))
				}
				of.InitDefaultHelpFlag()
				return of.Help()
			}
			c.Args = cobra.ArbitraryArgs // RunE names the one that it does not know
		case "completion":
			c.Args = func(_ *cobra.Command, args []string) error {
				if len(args) == 0 {
					return nil
				}
				return wrong(c, fmt.Sprintf("unknown shell %q", args[0]), MeantCommand(c, args[0]))
			}
			c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
			for _, shell := range c.Commands() {
				shell.Args = nil // for CheckArguments; cobra's error has no hint
			}
		}
	}
}
