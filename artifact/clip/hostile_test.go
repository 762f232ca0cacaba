package clip

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestQuote(t *testing.T) {
	for said, want := range map[string]string{
		"two\n\tlines": "two\n\tlines", "żółw 亀 🐢": "żółw 亀 🐢", "می\u200cخواهم": "می\u200cخواهم", "👩\u200d🚀": "👩\u200d🚀",
		"\x1b[2J\a\u009b2J\u202etxt\u2028\u2029\r": `\x1b[2J\a\u009b2J\u202etxt\u2028\u2029\r`,
		"half \xc3 of\x9b":                         "half \uFFFD of\uFFFD", "\ufeff\u200b\U000e0041\x7f": `\ufeff\u200b\U000e0041\x7f`,
	} {
		require.Equal(t, want, Quote(said), "%q", said)
	}
}

// TestJSON: no hostile character is left, and the text means what it did.
func TestJSON(t *testing.T) {
	const said = "\x1b[2J\a\u009b2J\u202etxt\u2028 \U000e0041\x7f żółw 🐢 </script>"
	var out strings.Builder
	enc := json.NewEncoder(JSONWriter(&out))
	enc.SetEscapeHTML(false)
	require.NoError(t, enc.Encode(map[string]string{said: said}))
	require.False(t, strings.ContainsFunc(out.String(), Hostile), "%q", out.String())
	var back map[string]string
	require.NoError(t, json.Unmarshal([]byte(out.String()), &back))
	require.Equal(t, map[string]string{said: said}, back)
}
