package memory

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCodeOf(t *testing.T) {
	const maps = `00400000-00871000 r-xp 00000000 fe:00 1234                               /usr/bin/app gen
00871000-00c31000 r--p 00471000 fe:00 1234                               /usr/bin/app gen
00c31000-00c79000 rw-p 00831000 fe:00 1234                               /usr/bin/app gen
00d00000-00d01000 r-xp 00000000 00:00 0
c000000000-c000400000 rw-p 00000000 00:00 0
7ffff7fc0000-7ffff7fc2000 r-xp 00000000 00:00 0                          [vdso]
7fff00000000-7fff00001000 r-xp 00000000 fe:00 99                         /lib/other
00900000-00800000 r-xp 00000000 fe:00 1234                               /usr/bin/app gen
x-y r-xp 00000000 fe:00 1234                                             /usr/bin/app gen
`
	require.Equal(t, []mapped{{0x400000, 0x871000}}, codeOf(strings.NewReader(maps), "/usr/bin/app gen"))
}

// The code is out of the program's memory, and the program goes on.
func TestDropProgram(t *testing.T) {
	before := programMemory(t)
	DropProgram()
	require.Less(t, programMemory(t), before)
}

// programMemory returns how much of files is in the process's memory, in KiB.
func programMemory(t *testing.T) (n int) {
	f, err := os.Open("/proc/self/status")
	require.NoError(t, err)
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if _, err := fmt.Sscanf(lines.Text(), "RssFile: %d kB", &n); err == nil {
			return n
		}
	}
	t.Skip("the kernel does not tell what is in memory")
	return 0
}
