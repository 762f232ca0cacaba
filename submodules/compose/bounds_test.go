package compose

import (
	"errors"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMemoryFor(t *testing.T) {
	require.EqualValues(t, 256<<20, memoryFor(240<<20))
	require.EqualValues(t, 512<<20, memoryFor(1<<30))
	require.EqualValues(t, 1<<30, memoryFor(64<<30))
}

// The time that a program has used when the kernel ends it is not exactly the limit.
func TestWhichBoundEndedIt(t *testing.T) {
	for _, c := range []struct {
		name, end        string
		nearly, exceeded bool // what is said with 5 % more time, and with less
	}{
		{"killed", "kill -KILL $$", true, true},
		{"the docker command of 20.10, its child was killed", "exit 255", true, true},
		{"the docker command of 28, its child was killed", "exit 137", true, true},
		{"an error", "exit 15", false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := exec.Command("sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; "+c.end).Run()
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit)
			used := exit.UserTime() + exit.SystemTime()
			require.NotZero(t, used)
			over := func(limit time.Duration) bool {
				b := bounds{Memory: 1 << 30, Processor: limit}
				return errors.Is(b.Explain(err, &overrun{}), errOverrun)
			}
			require.Equal(t, c.exceeded, over(used-used/20))
			require.Equal(t, c.nearly, over(used+used/20))
			require.False(t, over(2*used))
		})
	}
}
