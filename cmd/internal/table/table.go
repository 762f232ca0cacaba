// Package table lays out rows in columns that fit a terminal. Table libraries draw
// frames or cut off long cells, but no part of a name or an error may be lost.
package table

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

const (
	columnGap = 2 // blanks between two columns
	// minColumn is the least width of a column that is wrapped. A terminal without room
	// for that gets the table unwrapped.
	minColumn = 8
)

// LayOut writes rows in columns. If limit is not 0, no line has more characters,
// and cells are wrapped.
func LayOut(rows [][]string, limit int) string {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	if limit > 0 {
		widths = narrow(widths, limit-columnGap*(len(widths)-1))
	}
	var out strings.Builder
	for _, row := range rows {
		cells := make([][]string, len(row))
		height := 0
		for i, cell := range row {
			cells[i] = wrap(cell, widths[i])
			height = max(height, len(cells[i]))
		}
		for n := range height {
			blanks := 0 // before the next text
			for i := range cells {
				text := ""
				if n < len(cells[i]) {
					text = strings.TrimRight(cells[i][n], " ")
				}
				if text != "" {
					out.WriteString(strings.Repeat(" ", blanks))
					out.WriteString(text)
					blanks = 0
				}
				blanks += widths[i] - utf8.RuneCountInString(text) + columnGap
			}
			out.WriteByte('\n')
		}
	}
	return out.String()
}

// narrow reduces the widest columns until the sum of all widths is at most room.
func narrow(widths []int, room int) []int {
	if sum(widths) <= room || room < minColumn*len(widths) {
		return widths
	}
	// Columns that are narrower than an equal share keep their width, and leave
	// the rest of their share to the others.
	byWidth := slices.Sorted(slices.Values(widths))
	share := 0
	for i, w := range byWidth {
		share = room / (len(byWidth) - i)
		if w > share {
			room -= share * (len(byWidth) - i) // the remainder of the division
			break
		}
		room -= w
	}
	out := slices.Clone(widths)
	for i := len(out) - 1; i >= 0; i-- {
		if out[i] > share {
			out[i] = share + room // the last of the wide columns gets what is left over
			room = 0
		}
	}
	return out
}

func sum(list []int) (n int) {
	for _, i := range list {
		n += i
	}
	return n
}

// wrap breaks a text into lines of at most width characters: at a blank, else
// after a character at which names and paths can be broken, else anywhere.
func wrap(text string, width int) (lines []string) {
	if utf8.RuneCountInString(text) <= width {
		return []string{text}
	}
	rest := []rune(text)
	for len(rest) > width {
		end, skip := width, 0
		if i := lastIndex(rest[:width+1], " "); i > 0 && strings.TrimSpace(string(rest[:i])) != "" {
			end, skip = i, 1
		} else if i := lastIndex(rest[:width], "/:-_.,@"); i >= width/2 {
			end = i + 1
		}
		lines = append(lines, string(rest[:end]))
		rest = rest[end+skip:]
	}
	return append(lines, string(rest))
}

// lastIndex is the index of the last of the characters in text, or -1.
func lastIndex(text []rune, characters string) int {
	for i := len(text) - 1; i >= 0; i-- {
		if strings.ContainsRune(characters, text[i]) {
			return i
		}
	}
	return -1
}

// Width is the number of columns of a terminal; 0 if w is none.
func Width(w io.Writer) int {
	if !IsTerminal(w) {
		return 0
	}
	width, _, err := term.GetSize(int(file(w).Fd()))
	if err != nil {
		return 0
	}
	return width
}

// IsTerminal reports whether w is a terminal. A serial terminal may not know its
// width.
func IsTerminal(w io.Writer) bool {
	f := file(w)
	return f != nil && term.IsTerminal(int(f.Fd()))
}

// file is the file that a writer, such as that of package clip, writes to; nil if there is
// none.
func file(w io.Writer) *os.File {
	for {
		switch to := w.(type) {
		case *os.File:
			return to
		case interface{ Unwrap() io.Writer }:
			w = to.Unwrap()
		default:
			return nil
		}
	}
}

// Bytes formats a number of bytes for a person.
func Bytes(n int64) string {
	switch {
	case n >= 10_000_000:
		return fmt.Sprintf("%.0f MB", float64(n)/1e6)
	case n >= 10_000:
		return fmt.Sprintf("%.0f kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%d B", n)
}
