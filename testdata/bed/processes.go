package bed

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Processes watches the command lines of all processes of this machine until the test
// ends. seen returns those that had one of the words.
func Processes(t testing.TB, words ...string) (seen func() []string) {
	t.Helper()
	var mu sync.Mutex
	found := map[string]bool{}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
			names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
			for _, name := range names {
				line, _ := os.ReadFile(name) // a process may be gone
				text := strings.ReplaceAll(string(line), "\x00", " ")
				if slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) }) {
					mu.Lock()
					found[text] = true
					mu.Unlock()
				}
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-done })
	return func() (list []string) {
		mu.Lock()
		defer mu.Unlock()
		for text := range found {
			list = append(list, text)
		}
		return list
	}
}
