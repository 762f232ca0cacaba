package rules

import "strings"

// maxInterpolation bounds the work of filling in the variables of a project. The time that
// compose-go takes for a text grows with its length and with the square of the number of
// ${…} in it, nested or one after the other: by up to half a nanosecond for each unit.
const maxInterpolation = 4 << 30

// maxBraces bounds the ${…} of a text.
const maxBraces = 10_000

// Interpolation counts the work of filling in the variables of a project's texts.
type Interpolation struct{ spent int64 }

// Add counts a text, before its variables are filled in. It refuses one that would take too
// long, alone or after the others.
func (i *Interpolation) Add(text string) error {
	n := int64(strings.Count(text, "${"))
	if n <= maxBraces && len(text) <= maxText {
		i.spent += n * n * int64(len(text))
	}
	if n > maxBraces || len(text) > maxText || i.spent > maxInterpolation {
		return refused("the variables take too long to fill in: a text of %d characters has %d times ${: use fewer in one text", len(text), n)
	}
	return nil
}

// texts counts all texts of a document.
func (i *Interpolation) texts(value any) error {
	switch v := value.(type) {
	case string:
		return i.Add(v)
	case []any:
		for _, one := range v {
			if err := i.texts(one); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, one := range v {
			if err := i.texts(one); err != nil {
				return err
			}
		}
	case map[any]any:
		for _, one := range v {
			if err := i.texts(one); err != nil {
				return err
			}
		}
	}
	return nil
}
