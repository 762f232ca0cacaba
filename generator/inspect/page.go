package inspect

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string

	pageLayout = template.Must(template.New("page").Parse(pageHTML))
)

// document is a page for a browser. A page is a single file: it has no script, asks
// for nothing from anywhere, and its Content-Security-Policy keeps it so. Everything in
// it comes from an artifact that may be hostile: it is escaped, shown in printable
// characters only, and bounded.
type document struct {
	Title, About, Footer string
	Figures              []fact // the few that a reader looks for first
	Sections             []section
}

// section is a part of a page under a heading.
type section struct {
	Title  string
	Notes  []string
	Facts  []fact
	Items  []string
	Tables []table
	Parts  []section // one level of them
	More   string    // says what was left out
}

type fact struct {
	Name   string
	Values []string
}

// table has the numbers, and beside them bars of the same numbers: who does not
// see the bars has everything.
type table struct {
	Caption string
	Head    []cell
	Rows    []row
	More    string
}

type row struct {
	Name  string
	Bar   *bar
	Cells []cell
}

// cell is one field of a table. Class is a class of page.css or "".
type cell struct{ Text, Class string }

// Classes of cells.
const (
	number = "number"
	short  = "short" // a word or two that stay in one line
)

// bar is a part of a whole, both in thousandths of the widest bar beside it.
type bar struct {
	Whole, Part int
	Class       string
}

// newBar draws part of whole. Something is at least a hairline.
func newBar(class string, part, whole, widest int64) *bar {
	if widest <= 0 || part < 0 || whole < 0 {
		return nil
	}
	width := func(n int64) int {
		w := int(1000 * min(float64(n)/float64(widest), 1))
		if n > 0 {
			w = max(w, 2)
		}
		return w
	}
	return &bar{Whole: width(whole), Part: width(part), Class: class}
}

// write writes the page.
func (d *document) write(w io.Writer) error {
	sum := sha256.Sum256([]byte(pageCSS))
	return pageLayout.Execute(w, struct {
		*document
		Style  template.CSS
		Policy string
	}{
		d, template.CSS(pageCSS), // #nosec: it is page.css
		fmt.Sprintf("default-src 'none'; style-src 'sha256-%s'; img-src data:; base-uri 'none'; form-action 'none'", base64.StdEncoding.EncodeToString(sum[:])),
	})
}
