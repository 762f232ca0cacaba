package compose

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What Compose has asked the engine for is read from what its versions say: up to 2.40 with
// two spaces before a step, since 5 with one. Test e2e TestEngineStillMakesAContainer has the real one.
func TestAsked(t *testing.T) {
	a := asked{}
	for _, line := range []string{
		"Network shop_default  Creating",
		"Container shop-a-1  Creating", "Container shop-a-1  Created", "Container shop-a-1  Starting",
		"Container shop-b-1  Creating",
		"Container shop-c-1 Creating", "Container shop-c-1 Error",
		"Container shop-d-1  Recreate", "Container shop-e-1 Recreate", "Container shop-e-1 Recreated",
		"Error response from daemon: unknown or invalid runtime name: none-such",
	} {
		a.note(line)
	}
	require.Equal(t, asked{"shop-b-1": false, "shop-c-1": false, "shop-d-1": true}, a)
}
