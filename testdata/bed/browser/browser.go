// Package browser drives a real browser, for the tests of pages.
package browser

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mender-app/mender-app/testdata/bed"
)

// Require skips a test that has no browser; in CI it fails.
func Require(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a browser; left out of -short")
	}
	if _, err := exec.LookPath("chromium"); err != nil {
		missing(t, "chromium")
	}
}

// Axe returns the script of axe-core, which finds what makes a page hard to use for people who
// do not see it or use no mouse. A test without npm is skipped; in CI it fails.
func Axe(t testing.TB) string {
	t.Helper()
	script, err := ReadAxe()
	if errors.Is(err, exec.ErrNotFound) {
		missing(t, "npm")
	}
	if err != nil {
		t.Fatal(err)
	}
	return script
}

// ReadAxe is Axe without a test; the error is exec.ErrNotFound without npm.
func ReadAxe() (string, error) {
	const integrity = "sha512-FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
	if _, err := exec.LookPath("npm"); err != nil {
		return "", err
	}
	cmd := exec.Command(filepath.Join(bed.Repository(), "testdata/npmfile"), "axe-core", "4.14.1", integrity, "axe.min.js")
	cmd.Stderr = os.Stderr
	path, err := cmd.Output()
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(strings.TrimSpace(string(path)))
	return string(text), err
}

// Violations are what axe-core finds wrong with the open page.
func (b *Browser) Violations(axe string) (list []string, err error) {
	if err := b.Run(nil, axe+"\n;undefined"); err != nil {
		return nil, err
	}
	err = b.Run(&list, `axe.run(document, {resultTypes: ["violations"]}).then(found => found.violations.flatMap(v => v.nodes.map(n => 'axe, ' + v.id + ': ' + v.help + ': ' + n.html.slice(0, 200))))`)
	return list, err
}

func missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal("missing in CI: " + what)
	}
	t.Skip("needs " + what + " (make setup)")
}

// Browser is a real Chromium without a window, spoken to in its DevTools protocol
// over a pair of pipes.
type Browser struct {
	to      io.Writer
	from    *bufio.Reader
	session string
	id      int
	events  []message
}

// message is one of the protocol: an answer has an ID, an event has none.
type message struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// Start starts a browser with one tab. close ends it.
func Start() (b *Browser, close func(), err error) {
	home, err := os.MkdirTemp("", "mender-app-browser-")
	if err != nil {
		return nil, nil, err
	}
	toBrowser, to, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	from, fromBrowser, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	// It has no sandbox where root runs it. The pages are our own.
	cmd := exec.Command("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe", "--user-data-dir="+home, "about:blank")
	cmd.Env = append(os.Environ(), "HOME="+home)
	cmd.ExtraFiles = []*os.File{toBrowser, fromBrowser} // 3 and 4
	err = cmd.Start()
	toBrowser.Close()
	fromBrowser.Close()
	if err != nil {
		return nil, nil, err
	}
	late := time.AfterFunc(10*time.Minute, func() { _ = cmd.Process.Kill() }) // its pipe ends then
	close = func() {
		late.Stop()
		_ = to.Close() // it ends without its pipe
		done := time.AfterFunc(5*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		done.Stop()
		_ = from.Close()
		_ = os.RemoveAll(home)
	}
	b = &Browser{to: to, from: bufio.NewReader(from)}
	var tab struct{ TargetID, SessionID string }
	if err = b.Call(&tab, "Target.createTarget", map[string]any{"url": "about:blank"}); err == nil {
		err = b.Call(&tab, "Target.attachToTarget", map[string]any{"targetId": tab.TargetID, "flatten": true})
	}
	b.session = tab.SessionID
	for _, domain := range []string{"Page", "Network", "Runtime", "Log", "Accessibility"} {
		if err == nil {
			err = b.Call(nil, domain+".enable", nil)
		}
	}
	if err != nil {
		close()
		return nil, nil, err
	}
	return b, close, nil
}

// Call calls a method, and reads its result into result if that is not nil.
func (b *Browser) Call(result any, method string, params map[string]any) error {
	b.id++
	text, err := json.Marshal(map[string]any{"id": b.id, "method": method, "params": params, "sessionId": b.session})
	if b.session == "" {
		text, err = json.Marshal(map[string]any{"id": b.id, "method": method, "params": params})
	}
	if err != nil {
		return err
	}
	if _, err := b.to.Write(append(text, 0)); err != nil {
		return err
	}
	for {
		m, err := b.read()
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", method, err)
		case m.ID != b.id:
			continue
		case m.Error != nil:
			return fmt.Errorf("%s: %s", method, m.Error)
		case result == nil:
			return nil
		}
		return json.Unmarshal(m.Result, result)
	}
}

// read reads a message, and keeps it if it is an event.
func (b *Browser) read() (m message, err error) {
	text, err := b.from.ReadBytes(0)
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(text[:len(text)-1], &m); err != nil {
		return m, err
	}
	if m.ID == 0 {
		b.events = append(b.events, m)
	}
	return m, nil
}

// Open loads a page to its end, and a moment longer.
func (b *Browser) Open(url string) error {
	b.events = nil
	if err := b.Call(nil, "Page.navigate", map[string]any{"url": url}); err != nil {
		return err
	}
	for !slices.ContainsFunc(b.events, func(m message) bool { return m.Method == "Page.loadEventFired" }) {
		if _, err := b.read(); err != nil {
			return err
		}
	}
	return b.Run(nil, "new Promise(done => setTimeout(done, 100))")
}

// Run runs a script in the page, and reads what it returns into result.
func (b *Browser) Run(result any, script string) error {
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	if err := b.Call(&r, "Runtime.evaluate", map[string]any{"expression": script, "awaitPromise": true, "returnByValue": true}); err != nil {
		return err
	}
	if r.ExceptionDetails != nil {
		return fmt.Errorf("script: %s", r.ExceptionDetails)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(r.Result.Value, result)
}

// Heard is what the browser reported since the page was opened: requests for
// anything else, and what is on the console.
func (b *Browser) Heard(url string) (list []string) {
	for _, m := range b.events {
		switch m.Method {
		case "Network.requestWillBeSent":
			var p struct{ Request struct{ URL string } }
			if err := json.Unmarshal(m.Params, &p); err != nil || p.Request.URL != url && !strings.HasPrefix(p.Request.URL, "data:") {
				list = append(list, "a request: "+p.Request.URL)
			}
		case "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded":
			list = append(list, "on the console: "+string(m.Params))
		}
	}
	return list
}

// View sets the width of the screen in pixels, and whether a person wants it light or dark.
func (b *Browser) View(width int, scheme string) error {
	features := []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}
	if err := b.Call(nil, "Emulation.setEmulatedMedia", map[string]any{"features": features}); err != nil {
		return err
	}
	return b.Call(nil, "Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 700, "deviceScaleFactor": 1, "mobile": false})
}

// Roles counts what a screen reader finds in a page, by the role, and lists the tables, regions
// and headings without a name.
func (b *Browser) Roles() (n map[string]int, nameless []string, err error) {
	var tree struct {
		Nodes []struct {
			Role, Name struct{ Value any }
		}
	}
	if err := b.Call(&tree, "Accessibility.getFullAXTree", nil); err != nil {
		return nil, nil, err
	}
	n = map[string]int{}
	for _, node := range tree.Nodes {
		role := fmt.Sprint(node.Role.Value)
		if n[role]++; (role == "table" || role == "region" || role == "heading") && fmt.Sprint(node.Name.Value) == "" {
			nameless = append(nameless, "no name: "+role)
		}
	}
	return n, nameless, nil
}
