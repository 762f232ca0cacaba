// Command apply is the decoder alone, for the tests that measure it: it
// writes the target of a delta to stdout, and to stderr the most memory the
// process had resident (KiB) and the CPU time it used (ms).
//
//	apply OLD DELTA > NEW
//	apply -run COMMAND ARGS…
//
// The second form measures another command: a child of a small process, since
// Linux counts the memory of the process that forks as the child's.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/mender-app/mender-app/delta/vcdiff"
)

func main() {
	if os.Args[1] == "-run" {
		run(os.Args[2:])
		return
	}
	code := 0
	if err := apply(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	fmt.Fprintf(os.Stderr, "rss %s\ncpu %d\n", peak(), cpu(u))
	os.Exit(code)
}

func cpu(u syscall.Rusage) int64 {
	return int64(u.Utime.Sec+u.Stime.Sec)*1000 + int64(u.Utime.Usec+u.Stime.Usec)/1000
}

func run(argv []string) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	u := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	fmt.Fprintf(os.Stderr, "rss %d\ncpu %d\n", u.Maxrss, cpu(*u))
}

func apply(oldName, deltaName string) error {
	old, err := os.Open(oldName)
	if err != nil {
		return err
	}
	defer old.Close()
	st, err := old.Stat()
	if err != nil {
		return err
	}
	delta, err := os.Open(deltaName)
	if err != nil {
		return err
	}
	defer delta.Close()
	r, err := vcdiff.NewReader(context.Background(), old, st.Size(), delta, vcdiff.Options{})
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = r.WriteTo(os.Stdout)
	return err
}

// peak reads VmHWM: getrusage's maximum also counts the process that started
// this one.
func peak() string {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if v, ok := strings.CutPrefix(s.Text(), "VmHWM:"); ok {
			return strings.TrimSuffix(strings.TrimSpace(v), " kB")
		}
	}
	return "unknown"
}
