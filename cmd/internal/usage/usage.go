// Package usage answers a wrong command line: it finds what was meant by a
// misspelt command or option, and prints an error for programs that read JSON.
package usage

import (
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// distance is how many letters of a misspelt word may be wrong.
const distance = 2

// MeantCommand asks whether a similar command of c was meant; "" if none is
// similar.
func MeantCommand(c *cobra.Command, word string) string {
	c.SuggestionsMinimumDistance = distance
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
	// cobra compares the names of commands: make one of each option.
	options := &cobra.Command{SuggestionsMinimumDistance: distance}
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
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(struct {
		Error string `json:"error"`
		Hint  string `json:"hint,omitempty"`
		Code  int    `json:"code"`
	}{err, hint, code})
}
