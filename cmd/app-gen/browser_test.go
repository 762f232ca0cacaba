package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
)

// browser is a real Chromium without a window, spoken to in its DevTools protocol
// over a pair of pipes.
type browser struct {
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

// openBrowser starts a browser with one tab. close ends it.
func openBrowser() (b *browser, close func(), err error) {
	home, err := os.MkdirTemp("", "app-gen-browser-")
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
	late := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() }) // its pipe ends then
	close = func() {
		late.Stop()
		_ = to.Close() // it ends without its pipe
		done := time.AfterFunc(5*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		done.Stop()
		_ = from.Close()
		_ = os.RemoveAll(home)
	}
	b = &browser{to: to, from: bufio.NewReader(from)}
	var tab struct{ TargetID, SessionID string }
	if err = b.call(&tab, "Target.createTarget", map[string]any{"url": "about:blank"}); err == nil {
		err = b.call(&tab, "Target.attachToTarget", map[string]any{"targetId": tab.TargetID, "flatten": true})
	}
	b.session = tab.SessionID
	for _, domain := range []string{"Page", "Network", "Runtime", "Log", "Accessibility"} {
		if err == nil {
			err = b.call(nil, domain+".enable", nil)
		}
	}
	if err != nil {
		close()
		return nil, nil, err
	}
	return b, close, nil
}

// call calls a method, and reads its result into result if that is not nil.
func (b *browser) call(result any, method string, params map[string]any) error {
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
func (b *browser) read() (m message, err error) {
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

// open loads a page to its end, and a moment longer.
func (b *browser) open(url string) error {
	b.events = nil
	if err := b.call(nil, "Page.navigate", map[string]any{"url": url}); err != nil {
		return err
	}
	for !slices.ContainsFunc(b.events, func(m message) bool { return m.Method == "Page.loadEventFired" }) {
		if _, err := b.read(); err != nil {
			return err
		}
	}
	return b.run(nil, "new Promise(done => setTimeout(done, 100))")
}

// run runs a script in the page, and reads what it returns into result.
func (b *browser) run(result any, script string) error {
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	if err := b.call(&r, "Runtime.evaluate", map[string]any{"expression": script, "awaitPromise": true, "returnByValue": true}); err != nil {
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

// faultsScript finds in a page: elements that are wider than the screen, text of
// little contrast with the page, elements that a page should not have, and tables
// without a caption.
const faultsScript = `(() => {
	const faults = [], wide = document.documentElement.clientWidth
	if (document.documentElement.scrollWidth > wide) faults.push('scrolls to the side: ' + document.documentElement.scrollWidth)
	const channels = color => color.match(/[\d.]+/g).map(Number)
	const light = color => {
		const [r, g, b] = channels(color).map(v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
		return .2126 * r + .7152 * g + .0722 * b
	}
	const back = light(getComputedStyle(document.body).backgroundColor)
	const known = 'HTML HEAD META TITLE LINK STYLE BODY HEADER MAIN FOOTER SECTION H1 H2 H3 P DL DT DD UL LI TABLE CAPTION THEAD TBODY TR TH TD SVG RECT'.split(' ')
	for (const e of document.querySelectorAll('*')) {
		const name = '<' + e.tagName + '> ' + e.textContent.slice(0, 40)
		if (!known.includes(e.tagName.toUpperCase())) faults.push('an element of another kind: ' + name)
		if ([...e.attributes].some(a => a.name.startsWith('on'))) faults.push('a handler: ' + name)
		if (e.tagName == 'TABLE' && !e.caption) faults.push('no caption: ' + name)
		if (!document.body.contains(e)) continue
		if (e.getBoundingClientRect().right > wide + .5) faults.push('beyond the screen: ' + name)
		if (![...e.childNodes].some(n => n.nodeType == 3 && n.data.trim())) continue
		const front = light(getComputedStyle(e).color)
		const contrast = (Math.max(front, back) + .05) / (Math.min(front, back) + .05)
		if (contrast < 4.5) faults.push('contrast ' + contrast.toFixed(2) + ': ' + name)
	}
	return faults
})()`

// faults says what is wrong with a page, light and dark, on a small and a large
// screen.
func (b *browser) faults(url string) (list []string, err error) {
	backs := map[string]string{}
	for _, scheme := range []string{"light", "dark"} {
		features := []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}
		if err := b.call(nil, "Emulation.setEmulatedMedia", map[string]any{"features": features}); err != nil {
			return nil, err
		}
		for _, width := range []int{320, 1280} {
			if err := b.call(nil, "Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 700, "deviceScaleFactor": 1, "mobile": false}); err != nil {
				return nil, err
			}
			if err := b.open(url); err != nil {
				return nil, err
			}
			var found []string
			if err := b.run(&found, faultsScript); err != nil {
				return nil, err
			}
			for _, f := range append(found, b.heard(url)...) {
				list = append(list, fmt.Sprintf("%s, %d px: %s", scheme, width, f))
			}
		}
		var back string
		if err := b.run(&back, "getComputedStyle(document.body).backgroundColor"); err != nil {
			return nil, err
		}
		backs[back] = scheme
	}
	if len(backs) != 2 {
		list = append(list, "light and dark look the same")
	}
	missing, err := b.missingRoles()
	return append(list, missing...), err
}

// heard is what the browser reported since the page was opened: requests for
// anything else, and what is on the console.
func (b *browser) heard(url string) (list []string) {
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

// missingRoles says which parts of a page a screen reader does not find.
func (b *browser) missingRoles() (list []string, err error) {
	var tree struct {
		Nodes []struct {
			Role, Name struct{ Value any }
		}
	}
	if err := b.call(&tree, "Accessibility.getFullAXTree", nil); err != nil {
		return nil, err
	}
	n := map[string]int{}
	for _, node := range tree.Nodes {
		role := fmt.Sprint(node.Role.Value)
		if n[role]++; (role == "table" || role == "region" || role == "heading") && fmt.Sprint(node.Name.Value) == "" {
			list = append(list, "no name: "+role)
		}
	}
	for _, role := range []string{"banner", "main", "contentinfo", "region", "heading", "table", "columnheader", "rowheader"} {
		if n[role] == 0 {
			list = append(list, "no "+role)
		}
	}
	if n["image"]+n["graphics-document"] > 0 {
		list = append(list, "an image that is not hidden: the tables have its numbers")
	}
	return list, nil
}

// pages FILE…: a real browser finds no fault with these.
func cmdPages(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("pages cannot be expected to have faults")
	}
	b, done, err := openBrowser()
	ts.Check(err)
	defer done()
	for _, file := range args {
		faults, err := b.faults("file://" + ts.MkAbs(file))
		ts.Check(err)
		if len(faults) > 0 {
			ts.Fatalf("%s:\n%s", file, strings.Join(faults, "\n"))
		}
	}
}

// A browser that finds no fault with anything would not hold the pages to anything.
func TestBrowserFindsFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser; left out of -short")
	}
	if _, err := exec.LookPath("chromium"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("missing in CI: chromium")
		}
		t.Skip("needs chromium (make setup)")
	}
	b, done, err := openBrowser()
	require.NoError(t, err)
	defer done()
	const bad = `<!DOCTYPE html><html lang="en"><title>x</title><body style="background: #fff">
		<p style="color: #999">pale</p><div onclick="f()">x</div><img src="other.png" alt="a picture">
		<table><tr><td style="min-width: 500px">wide</td></tr></table><script>throw new Error('mine')</script>`
	path := filepath.Join(t.TempDir(), "bad.html")
	require.NoError(t, os.WriteFile(path, []byte(bad), 0o644))
	faults, err := b.faults("file://" + path)
	require.NoError(t, err)
	all := strings.Join(faults, "\n")
	for _, want := range []string{
		"light, 320 px: scrolls to the side", "320 px: beyond the screen: <TABLE>", "contrast 2.85: <P> pale", "an element of another kind: <SCRIPT>",
		"a handler: <DIV>", "no caption: <TABLE>", "a request: file://", "on the console: ", "mine", "light and dark look the same", "no main", "an image that is not hidden",
	} {
		require.Contains(t, all, want)
	}
}
