// Command apply is the decoder alone, for the tests that measure it: it
// writes the target of a delta to stdout, and to stderr the most memory the
// process had resident (KiB) and the CPU time it used (ms).
//
//	apply OLD DELTA > NEW
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/mender-app/mender-app/delta/vcdiff"
)

func main() {
	if err := apply(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	cpu := int64(u.Utime.Sec+u.Stime.Sec)*1000 + int64(u.Utime.Usec+u.Stime.Usec)/1000
	fmt.Fprintf(os.Stderr, "rss %s\ncpu %d\n", peak(), cpu)
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
