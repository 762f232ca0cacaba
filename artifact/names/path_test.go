package names_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/names"
)

func TestCheckPath(t *testing.T) {
	long := strings.Repeat("x", names.MaxPathPart)
	for _, s := range []string{"a", "A/a", "a b/café.d", "コンフィグ", long, long + "/" + long + "/" + long, `a"b\n'$`} {
		require.NoError(t, names.CheckPath(s), s)
	}
	for s, want := range map[string]string{
		"":                                  "is empty",
		"a\xff":                             `"a\xff" is not UTF-8`,
		"d/a\nb":                            `"d/a\nb" has a character that cannot be printed`,
		"a\tb":                              "cannot be printed",
		"a\u200bb":                          `"a\u200bb" has a character`,
		"a\x1b[2J":                          "cannot be printed",
		"d/" + long + "x":                   "has 256 bytes, and no file system holds more than 255",
		strings.Repeat("d/", names.MaxPath): "has 2028 bytes, the maximum is 1014",
	} {
		err := names.CheckPath(s)
		require.ErrorContains(t, err, want)
		require.Less(t, len(err.Error()), 300)
	}
}
