package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed/browser"
)

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
func faults(b *browser.Browser, axe, url string) (list []string, err error) {
	backs := map[string]string{}
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int{320, 400, 1280} {
			if err := b.View(width, scheme); err != nil {
				return nil, err
			}
			if err := b.Open(url); err != nil {
				return nil, err
			}
			var found []string
			if err := b.Run(&found, faultsScript); err != nil {
				return nil, err
			}
			found = append(found, b.Heard(url)...)
			if axe != "" {
				violations, err := b.Violations(axe)
				if err != nil {
					return nil, err
				}
				found = append(found, violations...)
			}
			for _, f := range found {
				list = append(list, fmt.Sprintf("%s, %d px: %s", scheme, width, f))
			}
		}
		var back string
		if err := b.Run(&back, "getComputedStyle(document.body).backgroundColor"); err != nil {
			return nil, err
		}
		backs[back] = scheme
	}
	if len(backs) != 2 {
		list = append(list, "light and dark look the same")
	}
	missing, err := missingRoles(b)
	return append(list, missing...), err
}

// missingRoles says which parts of a page a screen reader does not find.
func missingRoles(b *browser.Browser) (list []string, err error) {
	n, list, err := b.Roles()
	if err != nil {
		return nil, err
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
	b, done, err := browser.Start()
	ts.Check(err)
	defer done()
	axe, err := browser.ReadAxe()
	if errors.Is(err, exec.ErrNotFound) && os.Getenv("CI") != "true" {
		ts.Logf("without axe: needs npm (make setup)")
	} else {
		ts.Check(err)
	}
	for _, file := range args {
		faults, err := faults(b, axe, "file://"+ts.MkAbs(file))
		ts.Check(err)
		if len(faults) > 0 {
			ts.Fatalf("%s:\n%s", file, strings.Join(faults, "\n"))
		}
	}
}

// A browser that finds no fault with anything would not hold the pages to anything.
func TestBrowserFindsFaults(t *testing.T) {
	browser.Require(t)
	axe := browser.Axe(t)
	b, done, err := browser.Start()
	require.NoError(t, err)
	defer done()
	const bad = `<!DOCTYPE html><html lang="en"><title>x</title><body style="background: #fff">
		<p style="color: #999">pale</p><div onclick="f()">x</div><img src="other.png" alt="a picture">
		<table><tr><td style="min-width: 500px">wide</td></tr></table><script>throw new Error('mine')</script>`
	path := filepath.Join(t.TempDir(), "bad.html")
	require.NoError(t, os.WriteFile(path, []byte(bad), 0o644))
	faults, err := faults(b, axe, "file://"+path)
	require.NoError(t, err)
	all := strings.Join(faults, "\n")
	for _, want := range []string{
		"light, 320 px: scrolls to the side", "320 px: beyond the screen: <TABLE>", "contrast 2.85: <P> pale", "an element of another kind: <SCRIPT>",
		"a handler: <DIV>", "no caption: <TABLE>", "a request: file://", "on the console: ", "mine", "light and dark look the same", "no main", "axe, landmark-one-main", "axe, color-contrast", "an image that is not hidden",
	} {
		require.Contains(t, all, want)
	}
}
