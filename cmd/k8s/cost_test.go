package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// cost is what a call of the sub-module took: wall time, processor time, and
// the largest resident size in KiB.
type cost struct {
	wall, cpu time.Duration
	peak      int64
}

// hundredth is the unit of /proc's processor times.
const hundredth = 10 * time.Millisecond

// sample reads what a process took so far. The kernel's rusage would count what
// the process that started it had resident.
func sample(pid string, c *cost) {
	if text, err := os.ReadFile("/proc/" + pid + "/status"); err == nil {
		for line := range strings.Lines(string(text)) {
			if v, ok := strings.CutPrefix(line, "VmHWM:"); ok {
				if n, err := strconv.ParseInt(strings.Fields(v)[0], 10, 64); err == nil {
					c.peak = max(c.peak, n)
				}
			}
		}
	}
	if f := stat(pid); len(f) > 12 {
		user, _ := strconv.ParseInt(f[11], 10, 64)
		system, _ := strconv.ParseInt(f[12], 10, 64)
		c.cpu = max(c.cpu, time.Duration(user+system)*hundredth)
	}
}

// measure runs a command to its end and returns what it said and took.
func measure(cmd *exec.Cmd) (string, cost, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return "", cost{}, err
	}
	var c cost
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case err := <-done:
			c.wall = time.Since(began)
			return out.String(), c, err
		case <-time.After(2 * time.Millisecond):
			sample(strconv.Itoa(cmd.Process.Pid), &c)
		}
	}
}

// startOf returns when a process started, in ticks since the boot, or "".
func startOf(pid string) string {
	if f := stat(pid); len(f) > 19 {
		return f[19]
	}
	return ""
}

// stat are the fields of /proc/PID/stat that follow the program's name; none if the process
// has ended.
func stat(pid string) []string {
	text, _ := os.ReadFile("/proc/" + pid + "/stat")
	_, rest, _ := strings.Cut(string(text), ") ")
	return strings.Fields(rest)
}

// calls watches the calls that anyone makes of a program until stop, and then
// returns the dearest of each verb.
func calls(program string) (stop func() map[string]cost) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	type call struct {
		verb  string
		began time.Time
		cost
	}
	found := map[string]*call{}
	wg.Go(func() {
		for {
			dirs, _ := filepath.Glob("/proc/[0-9]*")
			for _, dir := range dirs {
				// A process that ended may have given its number to another program.
				if exe, err := os.Readlink(dir + "/exe"); err != nil || filepath.Base(exe) != filepath.Base(program) {
					continue
				}
				pid := filepath.Base(dir)
				process := pid + " " + startOf(pid)
				c := found[process]
				if c == nil {
					line, err := os.ReadFile(dir + "/cmdline")
					args := strings.Split(string(line), "\x00")
					if err != nil || len(args) < 2 || args[0] != program && !strings.HasSuffix(args[0], "/app-modules/v1/k8s") {
						continue
					}
					c = &call{verb: args[1], began: time.Now()}
					found[process] = c
				}
				if _, err := os.Stat(dir); err == nil {
					c.wall = time.Since(c.began)
				}
				sample(pid, &c.cost)
			}
			select {
			case <-done:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	return func() map[string]cost {
		close(done)
		wg.Wait()
		all := map[string]cost{}
		for _, c := range found {
			have := all[c.verb]
			all[c.verb] = cost{max(have.wall, c.wall), max(have.cpu, c.cpu), max(have.peak, c.peak)}
		}
		return all
	}
}

func (c cost) String() string {
	return fmt.Sprintf("%.2f | %.2f | %.0f", c.wall.Seconds(), c.cpu.Seconds(), float64(c.peak)/1024)
}
