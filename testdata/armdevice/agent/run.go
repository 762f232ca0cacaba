package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// maxOutput is how much of a command's output is kept, in bytes.
const maxOutput = 1 << 20

// result is what a command did, and what it cost the device.
type result struct {
	Output  string
	Code    int // exit code; -1 if a signal ended it
	Seconds float64
	// Idle is for how many of the seconds the device's processor had nothing to do.
	Idle float64
	// Peaks is the largest resident set in KiB (VmHWM) among the processes of
	// each program that ended meanwhile, by the program's path.
	Peaks map[string]int64
	// Used is the most memory in use on the whole device meanwhile, in KiB:
	// MemTotal less MemAvailable, looked at ten times a second.
	Used int64
	// Before is the same just before the command.
	Before int64
	// Written is what was written to the disk in bytes, all of it: the disk was
	// synced before and after.
	Written int64
}

// serve runs the body as a shell script and answers with its result as JSON.
func serve(w http.ResponseWriter, r *http.Request, how func(work func() (string, int)) result) {
	script, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	res := how(func() (string, int) { return shell(string(script)) })
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(res) // nobody is there to tell
}

func unmeasured(work func() (string, int)) (r result) {
	start := time.Now()
	r.Output, r.Code = work()
	r.Seconds = time.Since(start).Seconds()
	return r
}

func shell(script string) (output string, code int) {
	out := &capped{}
	c := exec.Command("/bin/bash", "-c", script)
	c.Stdout, c.Stderr = out, out
	c.Env = []string{"PATH=" + path, "HOME=/root", "LANG=C.UTF-8"}
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	c.WaitDelay = time.Second // what it left running may hold its output open
	if err := c.Run(); c.ProcessState == nil {
		return err.Error(), 127
	}
	return out.String(), c.ProcessState.ExitCode()
}

// capped keeps the first maxOutput bytes.
type capped struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (c *capped) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.buf.Write(p[:min(len(p), maxOutput-c.buf.Len())])
	return len(p), nil
}

func (c *capped) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.buf.String()
}

// ready answers with the engine's own answer to a ping. Asking with the docker
// command would cost an emulated processor seconds each time.
func ready(w http.ResponseWriter, _ *http.Request) {
	engine := http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return net.Dial("unix", "/run/docker.sock")
		},
	}}
	resp, err := engine.Get("http://docker/_ping")
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	_ = resp.Body.Close()
	w.WriteHeader(resp.StatusCode)
}

// put writes the body to the file ?path, executable, with its directories.
func put(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("path")
	err := os.MkdirAll(filepath.Dir(name), 0o755)
	var f *os.File
	if err == nil {
		f, err = os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	}
	if err == nil {
		_, err = io.Copy(f, r.Body)
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}
