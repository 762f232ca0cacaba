package usage

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFold(t *testing.T) {
	const long = "a paragraph whose first line is much too long for a terminal that has eighty columns,\nand a second one\n"
	require.Equal(t, "a paragraph whose first line is much too long for a terminal that has eighty\ncolumns, and a second one\n\nshort\nlines\n", Fold(long+"\nshort\nlines\n"))
	require.Equal(t, "      --key stringArray   public key (PEM) that must have signed the artifact;\n                          repeatable: one of them must\n",
		Fold("      --key stringArray   public key (PEM) that must have signed the artifact; repeatable: one of them must\n"))
	require.Equal(t, "  - an application of which something that should run does not, such as a\n    container that is gone\n",
		Fold("  - an application of which something that should run does not, such as a container that is gone\n"))
	example := "Examples:\n  mender-app staged --json | jq '.[] | select(.newer and .allowed) | .artifact_name, .version'\n\n"
	require.Equal(t, example+"Flags:\n  -x\n", Fold(example+"Flags:\n  -x\n"))
	require.Empty(t, Fold(""))
}
