package memory

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
)

// DropProgram gives back the memory that holds the program's code. Starting reads
// megabytes of code that are not needed again, such as the initialisation of packages
// that a call never uses. Needed pages come back from the kernel's cache of the file.
// The code is never written to, so nothing is lost (madvise(2), MADV_DONTNEED). If the
// kernel does not say where the code is, DropProgram does nothing.
func DropProgram() {
	path, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer maps.Close()
	for _, c := range codeOf(maps, path) {
		// Without effect if it fails.
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, c.from, c.to-c.from, syscall.MADV_DONTNEED)
	}
}

// mapped is where a part of a file is in memory.
type mapped struct{ from, to uintptr }

// codeOf reads where the code of the program at path is in memory (proc_pid_maps(5)).
func codeOf(maps io.Reader, path string) (code []mapped) {
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || fields[1] != "r-xp" || !strings.HasSuffix(lines.Text(), " "+path) {
			continue
		}
		var m mapped
		if n, err := fmt.Sscanf(fields[0], "%x-%x", &m.from, &m.to); n == 2 && err == nil && m.from < m.to {
			code = append(code, m)
		}
	}
	return code
}
