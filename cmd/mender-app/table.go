package main

import (
	"io"
	"strings"

	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/cmd/internal/table"
)

// table prints rows under a heading, whose columns are separated by tabs. On a
// terminal, long cells are wrapped within their columns so that the table fits;
// elsewhere each row is one line.
func (p *program) table(heading string, rows [][]string) error {
	all := [][]string{strings.Split(heading, "\t")}
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			if cells[i] = device.OneLine(cell); cell == "" {
				cells[i] = "-"
			}
		}
		all = append(all, cells)
	}
	_, err := io.WriteString(p.stdout, table.LayOut(all, terminalWidth(p.stdout)))
	return err
}

// terminalWidth is the number of columns of a terminal; 0 if w is none.
func terminalWidth(w io.Writer) int {
	if f, ok := w.(*fitted); ok {
		return f.width
	}
	return table.Width(w)
}
