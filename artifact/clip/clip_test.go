package clip

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestText(t *testing.T) {
	long := strings.Repeat("x", most)
	require.Equal(t, long, Text(long))
	require.Equal(t, long+"…", Text(long+"y"))
	half := long[:most-1] + "é" // its second byte would be the first one too many
	require.Equal(t, long[:most-1]+"…", Text(half))
	require.Equal(t, "…", Text(strings.Repeat("\x80", 2*most)), "no character begins here")
}

func TestLine(t *testing.T) {
	for _, c := range []struct {
		said  string
		bytes int
		want  string
	}{
		{"", 8, ""},
		{"  two\n\tlines \r\n", 9, "two lines"},
		{"  two\n\tlines \r\n", 8, "two line…"},
		{"\x1b[31mred\x1b[0m\x00!", 20, "[31mred [0m !"},
		{"half \xc3 of a character", 30, "half of a character"},
		{"żółw żółw", 9, "żółw …"},
		{"żółw żółw", 10, "żółw ż…"},
	} {
		require.Equal(t, c.want, Line(c.said, c.bytes), "%q", c.said)
	}
}
