package similar

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWord(t *testing.T) {
	known := []string{"env_file", "environment", "image", "k8s", "docker-compose", "a"}
	for word, want := range map[string]string{
		"env_fil": "env_file", "imag": "image", "imgae": "image", "Image": "image", "docker-compos": "docker-compose",
		"k3s": "k8s", "k0": "", "nosuch": "", "image": "", "": "a", strings.Repeat("x", 1<<20): "",
	} {
		require.Equal(t, want, Word(word, known), word)
	}
	require.Equal(t, "did you mean image?", Meant("imag", known))
	require.Empty(t, Meant("image", known))
}
