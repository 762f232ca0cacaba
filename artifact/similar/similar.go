// Package similar finds the intended word for a misspelt one.
package similar

import "strings"

// maxWord bounds the words that are compared, in bytes.
const maxWord = 64

// Word returns the candidate that is most like word: at most two letters are added,
// missing or changed, or one in words of up to four letters. It returns "" if none is,
// or if word is a candidate itself.
func Word(word string, candidates []string) string {
	best, least := "", 3
	if len(word) <= 4 {
		least = 2
	}
	if len(word) > maxWord {
		return ""
	}
	for _, c := range candidates {
		if c == word {
			return ""
		}
		if len(c) > maxWord {
			continue
		}
		if d := distance(strings.ToLower(word), strings.ToLower(c)); d < least {
			best, least = c, d
		}
	}
	return best
}

// Meant is Word as a question: "did you mean image?"; "" if there is no such word.
func Meant(word string, candidates []string) string {
	if w := Word(word, candidates); w != "" {
		return "did you mean " + w + "?"
	}
	return ""
}

// distance is Levenshtein's distance of two words, in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
