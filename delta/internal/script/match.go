// Package script is the plan of a delta as data: how each object, member and
// stream of the new image is made from old content. The encoder makes the plan, and
// the codec follows it. This package only holds it.
package script

// Match says that Length bytes at New of the new file resemble those at Old of
// the old one. Single bytes may differ.
type Match struct{ New, Old, Length int64 }

// Covered returns how many bytes the matches cover.
func Covered(matches []Match) (n int64) {
	for _, m := range matches {
		n += m.Length
	}
	return n
}

// Clip returns the parts of the matches between two offsets of the new file. Their
// New is relative to the first offset.
func Clip(matches []Match, from, to int64) []Match {
	var out []Match
	for _, m := range matches {
		a, b := max(m.New, from), min(m.New+m.Length, to)
		if a < b {
			out = append(out, Match{New: a - from, Old: m.Old + a - m.New, Length: b - a})
		}
	}
	return out
}
