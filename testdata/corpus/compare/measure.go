package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// measurement measures tools on one pair.
type measurement struct {
	ctx      context.Context
	temp     string
	runs     int
	limit    time.Duration
	old, new string
	digests  []string // of the new image's config and layers
}

// cost is what one call of a tool took, with all processes that it waited for.
type cost struct {
	cpu float64 // seconds
	rss int64   // KiB, the largest process
}

// tool encodes once and decodes some times. A tool that fails or makes another image
// has a row that says so; only a failure of the measurement itself is an error.
func (m *measurement) tool(t tool) (result, error) {
	r := result{tool: t.name, version: t.version}
	delta, made := filepath.Join(m.temp, "delta"), filepath.Join(m.temp, "new.tar")
	defer os.Remove(delta)
	defer os.Remove(made)
	var failed *failedError
	enc, err := m.call(t.path, "encode", m.old, m.new, delta)
	if errors.As(err, &failed) {
		r.note = "encode: " + failed.Error()
		return r, nil
	} else if err != nil {
		return r, err
	}
	info, err := os.Stat(delta)
	if err != nil {
		return r, err
	}
	dec := cost{}
	for n := range m.runs {
		if err := os.Remove(made); err != nil && !os.IsNotExist(err) {
			return r, err
		}
		c, err := m.call(t.path, "decode", m.old, delta, made)
		if errors.As(err, &failed) {
			r.note = "decode: " + failed.Error()
			return r, nil
		} else if err != nil {
			return r, err
		}
		if n == 0 || c.cpu < dec.cpu {
			dec.cpu = c.cpu
		}
		dec.rss = max(dec.rss, c.rss)
	}
	if err := m.same(made); err != nil {
		r.note = "decode: " + err.Error()
		return r, nil
	}
	r.bytes, r.enc, r.dec = info.Size(), enc, dec
	return r, nil
}

// same compares the image that was made with the new one: its config and its layers.
// A tool need not make the archive around them again.
func (m *measurement) same(made string) error {
	if m.digests == nil {
		var err error
		if m.digests, err = content(m.new); err != nil {
			return err
		}
	}
	have, err := content(made)
	if err != nil {
		return err
	}
	for i, d := range m.digests {
		if i >= len(have) || have[i] != d {
			return fmt.Errorf("another image: config or layer %d differs", i)
		}
	}
	if len(have) != len(m.digests) {
		return errors.New("another image: more layers")
	}
	return nil
}

// content returns the SHA-256 of an archive's config and layers, in their order.
func content(archive string) ([]string, error) {
	f, err := os.Open(archive)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	sums := map[string]string{}
	var manifest []struct {
		Config string
		Layers []string
	}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		sum := sha256.New()
		var in io.Reader = io.TeeReader(r, sum)
		if h.Name == "manifest.json" {
			if err := json.NewDecoder(in).Decode(&manifest); err != nil {
				return nil, err
			}
		}
		if _, err := io.Copy(io.Discard, in); err != nil {
			return nil, err
		}
		sums[h.Name] = fmt.Sprintf("%x", sum.Sum(nil))
	}
	if len(manifest) != 1 {
		return nil, fmt.Errorf("%s has no manifest.json with one image", filepath.Base(archive))
	}
	var list []string
	for _, name := range append([]string{manifest[0].Config}, manifest[0].Layers...) {
		if sums[name] == "" {
			return nil, fmt.Errorf("%s lacks %s", filepath.Base(archive), name)
		}
		list = append(list, sums[name])
	}
	return list, nil
}

// failedError is a tool's failure.
type failedError struct{ text string }

func (e *failedError) Error() string { return e.text }

// measuring is set for the small process between this one and the tool.
const measuring = "MENDER_APP_COMPARE_MEASURING"

// call runs a tool in a process group of its own. Between the two is a small process,
// this program in another role: the kernel counts a process's peak memory from what its
// parent has.
func (m *measurement) call(args ...string) (cost, error) {
	self, err := os.Executable()
	if err != nil {
		return cost{}, err
	}
	ctx, cancel := context.WithTimeout(m.ctx, m.limit)
	defer cancel()
	c := exec.CommandContext(ctx, self, args...)
	c.Env = append(os.Environ(), measuring+"=1")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.Dir = m.temp
	var costs, stderr bytes.Buffer
	c.Stdout, c.Stderr = &costs, &stderr
	err = c.Run()
	switch {
	case m.ctx.Err() != nil:
		return cost{}, m.ctx.Err()
	case ctx.Err() != nil:
		return cost{}, &failedError{fmt.Sprintf("takes longer than %s", m.limit)}
	case err != nil:
		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		return cost{}, &failedError{fmt.Sprintf("%v: %s", err, lines[len(lines)-1])}
	}
	var r cost
	if _, err := fmt.Sscan(costs.String(), &r.cpu, &r.rss); err != nil {
		return r, fmt.Errorf("%s: no measurement: %w", filepath.Base(args[0]), err)
	}
	return r, nil
}

// measureMain runs a tool and prints its processor time and peak memory.
func measureMain() int {
	c := exec.Command(os.Args[1], os.Args[2:]...)
	c.Env = append(os.Environ(), measuring+"=")
	c.Stderr = os.Stderr
	if err := c.Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	u := c.ProcessState.SysUsage().(*syscall.Rusage)
	fmt.Println(float64(u.Utime.Nano()+u.Stime.Nano())/1e9, int64(u.Maxrss))
	return 0
}
