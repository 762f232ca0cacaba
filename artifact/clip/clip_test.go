package clip

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
	k8syaml "sigs.k8s.io/yaml"
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

// What both parsers say of passwords without quotes, in files for a device.
func TestYAML(t *testing.T) {
	const secret = "canary1"
	for _, text := range []string{
		"password: *" + secret, "password: {{" + secret + "}}", "password: {{ " + secret + " }}: x", secret, "password: [" + secret, "password: '" + secret,
		"password: !!int " + secret, "password: !!float " + secret + "`", "password: @" + secret, "password: `" + secret, "password: a: " + secret, "password: %" + secret + "\n%" + secret,
		"password: \"\\" + secret + "\"", "? {" + secret + ": 1}\n: 2", "- " + secret + "\n: 1", "password: &" + secret + " *" + secret, "<<: " + secret, "<<: *" + secret, "a: !!binary " + secret + "!",
	} {
		var doc map[string]any
		if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
			require.NotContains(t, YAML(err), secret, text)
		}
		if _, err := k8syaml.YAMLToJSONStrict([]byte(text)); err != nil {
			require.NotContains(t, YAML(err), secret, text)
		}
		if err := k8syaml.Unmarshal([]byte(text), &doc); err != nil {
			require.NotContains(t, YAML(err), secret, text)
		}
	}
	require.Equal(t, `yaml: line 2: mapping key "A" already defined at line 1`, YAML(errors.New(`yaml: line 2: mapping key "A" already defined at line 1`)))
	require.Equal(t, "yaml: line 1: did not find expected ',' or '}'", YAML(errors.New("yaml: line 1: did not find expected ',' or '}'")))
	require.Equal(t, "yaml: unknown anchor … referenced", YAML(errors.New("yaml: unknown anchor 'x' referenced")))
}
