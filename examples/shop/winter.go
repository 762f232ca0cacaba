//go:build winter

package main

import (
	"encoding/csv"
	"net/http"
	"text/tabwriter"
)

// season adds the winter release's sales list: real code, so that the releases of the
// program differ as real ones do.
func season(mux *http.ServeMux) {
	sales := [][]string{{"article", "sold"}, {"scarf", "12"}, {"gloves", "7"}}
	mux.HandleFunc("GET /sales.csv", func(w http.ResponseWriter, _ *http.Request) {
		_ = csv.NewWriter(w).WriteAll(sales)
	})
	mux.HandleFunc("GET /sales.txt", func(w http.ResponseWriter, _ *http.Request) {
		table := tabwriter.NewWriter(w, 0, 8, 1, ' ', 0)
		defer table.Flush()
		for _, row := range sales {
			_, _ = table.Write([]byte(row[0] + "\t" + row[1] + "\n"))
		}
	})
}
