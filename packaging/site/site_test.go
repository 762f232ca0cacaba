// Package site tests the site of the documents in a real browser.
package site

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/testdata/bed"
	"github.com/mender-app/mender-app/testdata/bed/browser"
)

// Every page of the site passes axe-core, and loads nothing from another host. Diagrams are
// drawn.
func TestSite(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the site and opens every page of it; left out of -short")
	}
	browser.Require(t)
	axe := browser.Axe(t)
	if _, err := exec.LookPath("mkdocs"); err != nil && os.Getenv("CI") != "true" {
		t.Skip("needs mkdocs (make setup)")
	}
	site := filepath.Join(bed.Repository(), "build/site")
	require.NoError(t, os.RemoveAll(site)) // pages of an earlier version
	cmd := exec.Command("make", "-s", "docs")
	cmd.Dir = bed.Repository()
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	versions, err := filepath.Glob(filepath.Join(site, "*"))
	require.NoError(t, err)
	require.Len(t, versions, 1)
	server := httptest.NewServer(http.FileServer(http.Dir(versions[0])))
	defer server.Close()
	b, done, err := browser.Start()
	require.NoError(t, err)
	defer done()

	pages := 0
	require.NoError(t, filepath.WalkDir(versions[0], func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.Name() != "index.html" {
			return err
		}
		rel, err := filepath.Rel(versions[0], filepath.Dir(path))
		require.NoError(t, err)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		pages++
		// Small and dark, large and light, in turn: each part of the theme is on many pages.
		width, scheme := 400, "dark"
		if pages%2 == 0 {
			width, scheme = 1280, "light"
		}
		require.NoError(t, b.View(width, scheme))
		require.NoError(t, b.Open(server.URL+"/"+filepath.ToSlash(rel)+"/"))
		if diagrams := strings.Count(string(text), `<pre class="mermaid">`); diagrams > 0 {
			require.NoError(t, b.Run(nil, `new Promise(done => { const look = () => document.querySelector('pre.mermaid') ? setTimeout(look, 50) : done(); look() })`), rel)
		}
		var faults []string
		// The theme's script makes a block of code that scrolls reachable after it has measured it.
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			faults, err = b.Violations(axe)
			require.NoError(t, err)
			if len(faults) == 0 || time.Now().After(end) {
				break
			}
		}
		for _, f := range b.Heard("") {
			if !strings.HasPrefix(f, "a request: "+server.URL+"/") {
				faults = append(faults, f)
			}
		}
		assert.Empty(t, faults, "%s, %s, %d px", rel, scheme, width)
		return nil
	}))
	require.Greater(t, pages, 50)
}
