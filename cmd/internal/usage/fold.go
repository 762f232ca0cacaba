package usage

import (
	"bytes"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// Columns is the maximum width of a program's help.
const Columns = 80

// FoldHelp folds the help of root and of all its commands to Columns.
func FoldHelp(root *cobra.Command) {
	help := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		out := c.OutOrStdout()
		var text bytes.Buffer
		c.SetOut(&text)
		help(c, args)
		c.SetOut(out)
		_, _ = io.WriteString(out, Fold(text.String()))
	})
}

// Fold folds a help text: it refills paragraphs with a line that is too long, and
// continues long list entries below their text. Examples stay as they are.
func Fold(text string) string {
	var out strings.Builder
	lines := strings.SplitAfter(text, "\n")
	example := false
	for len(lines) > 0 {
		line := lines[0]
		if word := strings.TrimSpace(line); !strings.HasPrefix(line, " ") && strings.HasSuffix(word, ":") {
			example = word == "Examples:"
		}
		n := 1
		switch {
		case example:
			out.WriteString(line)
		case isText(line):
			for n < len(lines) && isText(lines[n]) {
				n++
			}
			out.WriteString(paragraph(lines[:n]))
		default:
			out.WriteString(entry(line))
		}
		lines = lines[n:]
	}
	return out.String()
}

// isText reports whether a line belongs to a paragraph.
func isText(line string) bool {
	return strings.TrimSpace(line) != "" && !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "\t")
}

func tooLong(line string) bool {
	return utf8.RuneCountInString(strings.TrimRight(line, "\n")) > Columns
}

// paragraph refills lines if one is too long.
func paragraph(lines []string) string {
	whole := strings.Join(lines, "")
	for _, line := range lines {
		if tooLong(line) {
			return fill("", "", strings.Fields(whole))
		}
	}
	return whole
}

// entry folds a line of a list below its text, which begins after a dash or, as in a
// table of options, after two spaces.
func entry(line string) string {
	if !tooLong(line) {
		return line
	}
	text := strings.TrimLeft(line, " ")
	at := len(line) - len(text)
	if strings.HasPrefix(text, "- ") {
		at += 2
	} else if i := strings.Index(text, "  "); i >= 0 {
		at += i + len(text[i:]) - len(strings.TrimLeft(text[i:], " "))
	}
	if at > Columns/2 {
		at = Columns / 2
		i := strings.LastIndex(line[:at], " ") + 1
		return fill(line[:i], strings.Repeat(" ", 8), strings.Fields(line[i:]))
	}
	return fill(line[:at], strings.Repeat(" ", at), strings.Fields(line[at:]))
}

// fill writes words in lines; the first begins with first, the others with indent.
func fill(first, indent string, words []string) string {
	var out strings.Builder
	line, empty := first, true
	for _, w := range words {
		if !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(w) > Columns {
			out.WriteString(line + "\n")
			line, empty = indent, true
		}
		if !empty {
			line += " "
		}
		line, empty = line+w, false
	}
	return out.String() + line + "\n"
}
