package metered

import "fmt"

// Human writes a number of bytes for a person, in decimal units: 12.3 MB. Every message
// about space uses it, so that two of them can be compared.
func Human(n int64) string {
	const unit = 1000
	if n < unit {
		return fmt.Sprintf("%d bytes", n)
	}
	f, exp := float64(n)/unit, 0
	for f >= unit && exp < 4 {
		f /= unit
		exp++
	}
	return fmt.Sprintf("%.1f %cB", f, "kMGTP"[exp])
}

// Count writes a number of things for a person, given the word for one of them: 1 application,
// 2 applications. Words whose plural does not end with a plain s are none of its business.
func Count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprint(n, " ", thing)
}
