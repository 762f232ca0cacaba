package policy

import (
	"fmt"
	"regexp"
	"regexp/syntax"

	"github.com/mender-app/mender-app/artifact/clip"
)

// Bounds of an expression. Go's regular expressions take time linear in expression
// and text. The size of the compiled expression must be bounded too: (abc…){1000} is
// short and takes tens of MB.
const (
	maxExpression = 256  // bytes
	maxStates     = 4096 // of the compiled expression, about 100 bytes each
)

// compile checks and compiles an expression.
func compile(s string) (*regexp.Regexp, error) {
	if len(s) > maxExpression {
		return nil, fmt.Errorf("the expression has %d bytes, the maximum is %d", len(s), maxExpression)
	}
	tree, err := syntax.Parse(s, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("bad expression %q: %w", clip.Text(s), err)
	}
	if states(tree) > maxStates {
		return nil, fmt.Errorf("the expression %q is too large: write fewer repetitions", clip.Text(s))
	}
	return regexp.Compile(s)
}

// states estimates how many states an expression compiles to.
func states(re *syntax.Regexp) int {
	n := 1
	switch re.Op {
	case syntax.OpLiteral:
		n = len(re.Rune)
	case syntax.OpCharClass:
		n = 1 + len(re.Rune)/8
	}
	for _, sub := range re.Sub {
		n = min(n+states(sub), 2*maxStates)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min, re.Max, 1)
	}
	return min(n, 2*maxStates)
}

// matches reports whether an expression that compile accepts matches the whole
// text. "" as an expression matches every text.
func matches(expression, text string) bool {
	if expression == "" {
		return true
	}
	re, err := compile(expression)
	if err != nil {
		return false // checked when the policy was read
	}
	// If any match covers the whole text, the leftmost-longest match does.
	re.Longest()
	at := re.FindStringIndex(text)
	return at != nil && at[0] == 0 && at[1] == len(text)
}
