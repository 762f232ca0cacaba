package bed

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// watchInterval is the time between two questions of a Watch. Each of them costs the
// engine's proxy about a millisecond of processor time.
const watchInterval = 100 * time.Millisecond

// Watch asks a service of the device every watchInterval what it says, so that the
// time without an answer is known to about that.
type Watch struct {
	cmd     *exec.Cmd
	mu      sync.Mutex
	changes []change
	first   chan struct{} // closed when there is an answer, or none, for the first time
	done    chan struct{} // closed when the program has ended
}

type change struct {
	At   int64  `json:"at"`   // nanoseconds since 1970
	Says string `json:"says"` // "" is no answer
}

// Watch starts watching url from inside the device.
func (d *Device) Watch(url string) (*Watch, error) {
	program := d.Share("shop")
	if _, err := os.Stat(program); err != nil {
		data, err := Shop{Version: "0"}.compile()
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(program, data, 0o755); err != nil {
			return nil, err
		}
	}
	for attempt := 1; ; attempt++ {
		w, err := d.watch(program, url)
		// The program was just written. As long as a child of this process, which is about
		// to run something else, still has it open, it cannot be run.
		if err == nil || attempt == 5 {
			return w, err
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// watch starts the program, and returns when it has asked once.
func (d *Device) watch(program, url string) (*Watch, error) {
	var said bytes.Buffer
	w := &Watch{
		cmd:   d.Command(context.Background(), program, "-poll", url, "-every", watchInterval.String()),
		first: make(chan struct{}), done: make(chan struct{}),
	}
	w.cmd.Stderr = &said
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := w.cmd.Start(); err != nil {
		return nil, fmt.Errorf("watch %s: %w", url, err)
	}
	go func() {
		defer close(w.done)
		for dec := json.NewDecoder(out); ; {
			var c change
			if err := dec.Decode(&c); err != nil {
				return // it ends with the program
			}
			w.mu.Lock()
			w.changes = append(w.changes, c)
			if len(w.changes) == 1 {
				close(w.first)
			}
			w.mu.Unlock()
		}
	}()
	select {
	case <-w.first:
		return w, nil
	case <-w.done:
		return nil, fmt.Errorf("watch %s: %w: %s", url, w.cmd.Wait(), said.String())
	}
}

// Says returns the last answer, "" for none.
func (w *Watch) Says() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.changes) == 0 {
		return ""
	}
	return w.changes[len(w.changes)-1].Says
}

// Down returns for how long there was no answer between then and now, and how often.
func (w *Watch) Down(since time.Time) (total time.Duration, times int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	end := time.Now().UnixNano()
	for i := len(w.changes) - 1; i >= 0; i-- {
		c := w.changes[i]
		if c.Says == "" && end > since.UnixNano() {
			total += time.Duration(end - max(c.At, since.UnixNano()))
			times++
		}
		end = c.At
	}
	return total, times
}

// Stop ends the watch.
func (w *Watch) Stop() {
	// The program is nsenter's child: end the child, and nsenter ends with it.
	for _, child := range children(w.cmd.Process.Pid) {
		if p, err := os.FindProcess(child); err == nil {
			_ = p.Signal(os.Interrupt)
		}
	}
	select {
	case <-w.done:
	case <-time.After(5 * time.Second):
		_ = w.cmd.Process.Kill()
	}
	_ = w.cmd.Wait()
}

func children(pid int) []int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil
	}
	var all []int
	for _, field := range strings.Fields(string(text)) {
		if n, err := strconv.Atoi(field); err == nil {
			all = append(all, n)
		}
	}
	return all
}
