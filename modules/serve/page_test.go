package serve

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/modules/view"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/testdata/bed/browser"
)

// faultsScript reports what is wrong with a page that is open.
const faultsScript = `(() => {
	const faults = [], d = document, wide = d.documentElement.clientWidth
	const light = color => {
		const [r, g, b] = color.match(/[\d.]+/g).map(Number).map(v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
		return .2126 * r + .7152 * g + .0722 * b
	}
	const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (c !== 'rgba(0, 0, 0, 0)') return light(c) } }
	if (d.querySelector('img')) faults.push('the text of an artifact has become a part of the page')
	if (d.documentElement.scrollWidth > wide) faults.push('scrolls to the side: ' + d.documentElement.scrollWidth)
	for (const e of d.body.querySelectorAll('*')) {
		const name = '<' + e.tagName + '> ' + e.textContent.slice(0, 40)
		if (e.tagName === 'TABLE' && !e.caption) faults.push('no caption: ' + name)
		if (e.tagName === 'TH' && !e.scope) faults.push('no scope: ' + name)
		if (e.tagName === 'SECTION' && !d.getElementById(e.getAttribute('aria-labelledby'))) faults.push('no name: ' + name)
		if (!e.checkVisibility() || ![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) || e.tagName === 'SCRIPT') continue
		if (e.getBoundingClientRect().right > wide + .5) faults.push('beyond the screen: ' + name)
		const front = light(getComputedStyle(e).color), back = behind(e)
		const contrast = (Math.max(front, back) + .05) / (Math.min(front, back) + .05)
		if (contrast < 4.5) faults.push('contrast ' + contrast.toFixed(2) + ': ' + name)
	}
	return faults
})()`

// until waits for a condition in a page.
func until(t *testing.T, b *browser.Browser, what, condition string) {
	t.Helper()
	var found bool
	for end := time.Now().Add(time.Minute); !found; time.Sleep(50 * time.Millisecond) {
		require.NoError(t, b.Run(&found, "Boolean("+condition+")"))
		if !found && time.Now().After(end) {
			var text string
			_ = b.Run(&text, "document.body.innerText")
			t.Fatalf("never: %s\n%s", what, text)
		}
	}
}

// checked is what a checkup found.
func checked(context.Context) view.Checkup {
	return view.Checkup{
		Engines: []submodules.Engine{{Name: "docker", Version: "20.10.24", Compose: "2.26.1"}},
		Findings: []view.Finding{
			{Status: view.FindingOK, Check: "store", Found: "/data/mender-app"}, {Status: view.FindingWarn, Check: "signature keys", Found: "none", Do: "set <b>artifact_verify_key</b>"},
			{Status: view.FindingFail, Check: "engine of k8s", Found: "does not answer", Do: "start it"},
		},
	}
}

// screen is what a page is looked at with.
type screen struct {
	scheme string
	width  int
}

// states are devices as a person may find them.
func states(t *testing.T) map[string]*Server {
	t.Helper()
	hostile := `<img src=x>`
	underWay, m := shop(t)
	m.image = hostile
	require.NoError(t, underWay.Store.AddHistory(store.Record{ID: "5", Application: "shop", ArtifactName: hostile, Status: store.StatusFailed, Started: time.Now(), Ended: time.Now()}))
	underWay.Checkup = checked
	require.NoError(t, underWay.Store.SetHold(store.Hold{Reason: "new kernel", Since: time.Now(), Seconds: 3600, Asked: &store.Asked{How: store.AskedByHand}}))

	failed, _ := shop(t)
	a, err := failed.Store.App("shop")
	require.NoError(t, err)
	a.Deployment = nil
	require.NoError(t, a.Save())
	failed.Checkup = checked

	many, _ := shop(t)
	for i := range 12 {
		o, err := many.Store.Create(fmt.Sprint("app-", i))
		require.NoError(t, err)
		require.NoError(t, o.Save())
	}
	silent, m := shop(t)
	m.err = fmt.Errorf("the engine does not answer")
	silent.Checkup = func(ctx context.Context) view.Checkup { <-ctx.Done(); return view.Checkup{} }
	t.Cleanup(silent.Close)

	empty, _ := shop(t)
	empty.Store = store.At(t.TempDir())
	empty.Viewer.Staging = nil
	return map[string]*Server{"under way": underWay, "failed": failed, "many": many, "silent": silent, "empty": empty}
}

// Every page is readable in dark and light, small and large, by a screen reader and with
// a keyboard, with all of it open; it asks nobody else, and says nothing on the console.
func TestPage(t *testing.T) {
	browser.Require(t)
	axe := browser.Axe(t)
	b, done, err := browser.Start()
	require.NoError(t, err)
	defer done()
	for name, s := range states(t) {
		server := httptest.NewServer(s.Handler(t.Context()))
		paths, screens := []string{"/"}, []screen{{"dark", 400}, {"light", 1280}}
		if name == "under way" { // it has everything
			paths, screens = []string{"/", "/apps/shop/log", "/apps/shop/deployments/3"}, []screen{{"dark", 320}, {"light", 400}, {"light", 1280}}
		}
		for _, path := range paths {
			r, err := http.Get(server.URL + path)
			require.NoError(t, err)
			require.NoError(t, r.Body.Close())
			require.Equal(t, 200, r.StatusCode)
			require.Contains(t, r.Header.Get("Content-Security-Policy"), "default-src 'none'")
			backs := map[string]bool{}
			for _, screen := range screens {
				require.NoError(t, b.View(screen.width, screen.scheme))
				require.NoError(t, b.Open(server.URL+path))
				require.NoError(t, b.Run(nil, "for (const e of document.querySelectorAll('details')) e.open = true"))
				until(t, b, "what links lead to", "![...document.querySelectorAll('details a.more')].length")
				var faults []string
				require.NoError(t, b.Run(&faults, faultsScript))
				violations, err := b.Violations(axe)
				require.NoError(t, err)
				for _, f := range b.Heard(server.URL + path) {
					if !strings.HasPrefix(f, "a request: "+server.URL+"/") {
						faults = append(faults, f)
					}
				}
				require.Empty(t, append(faults, violations...), "%s, %s, %v", name, path, screen)
				var back string
				require.NoError(t, b.Run(&back, "getComputedStyle(document.body).backgroundColor"))
				backs[back] = true
			}
			require.Len(t, backs, 2, "light and dark look the same")
		}
		require.NoError(t, b.Open("about:blank"))
		server.CloseClientConnections()
		server.Close()
	}
}

// The page tells what a person looks for, follows events, and keeps what was opened and the
// keyboard's place.
func TestPageIsLive(t *testing.T) {
	browser.Require(t)
	b, done, err := browser.Start()
	require.NoError(t, err)
	defer done()
	s := states(t)["under way"]
	server := httptest.NewServer(s.Handler(t.Context()))
	require.NoError(t, b.Open(server.URL))
	require.NoError(t, b.Run(nil, "for (const e of document.querySelectorAll('details')) e.open = true"))
	until(t, b, "what was said", "[...document.querySelectorAll('pre')].some(e => e.textContent.includes('downloading | loading'))")
	until(t, b, "the log", "[...document.querySelectorAll('pre')].some(e => e.textContent.includes('shop-web-1 | xxx'))")
	require.NoError(t, b.Run(nil, "document.querySelector('#deployment-shop-3 summary').focus()"))
	a, err := s.Store.App("shop")
	require.NoError(t, err)
	a.Deployment.Phase = "installing"
	a.Deployment.Steps = append(a.Deployment.Steps, store.Step{Phase: "installing", At: time.Now()})
	require.NoError(t, a.Save())
	until(t, b, "the event", "document.body.textContent.includes('Step 3 of 6, installing')")
	var at string
	require.NoError(t, b.Run(&at, "document.activeElement.closest('details').id + ' ' + document.activeElement.closest('details').open"))
	require.Equal(t, "deployment-shop-3 true", at)
	until(t, b, "what was said, again", "[...document.querySelectorAll('pre')].some(e => e.textContent.includes('downloading | loading'))")
	server.CloseClientConnections()
	server.Close()
	until(t, b, "that the device is gone", "document.getElementById('said').textContent.includes('does not answer')")
}

// Without scripts everything is there too.
func TestPageWithoutScripts(t *testing.T) {
	all := states(t)
	_, body := get(t, all["under way"], "/")
	require.Less(t, len(body), 60<<10)
	for _, text := range []string{
		"shop", "waits for its installation", "healthy", "shop-&#34;web&#34;-1", "rolled-back", "Under way: shop-2", "web is unhealthy", "by hand (anna)", "web was down 1.3 s", "&lt;img src=x&gt;",
		"docker 20.10.24, Compose 2.26.1", "engine of k8s", "start it", `<progress max="6" value="2"`, "Updates are held until ", ": new kernel", "took 1 min 30 s",
		"/apps/shop/deployments/3", "/apps/shop/log", "read it again", time.Now().Format("MST (-07:00)"),
	} {
		require.Contains(t, body, text)
	}
	require.NotContains(t, body, "<img")
	require.NotContains(t, body, "<b>")
	_, body = get(t, all["under way"], "/apps/shop/deployments/3")
	require.Contains(t, body, "downloading | loading")
	_, body = get(t, all["under way"], "/apps/shop/log")
	require.Contains(t, body, "shop-web-1 | xxx")
	_, body = get(t, all["failed"], "/")
	require.Contains(t, body, "shop-3 was refused at ")
	require.Contains(t, body, ": web is unhealthy</li>")
	_, body = get(t, all["silent"], "/")
	require.Contains(t, body, "The device is being checked…")
	require.Contains(t, body, "the engine does not answer")
	_, body = get(t, all["empty"], "/")
	require.Contains(t, body, "There is no application yet.")
}

// A browser asks a person for the token, which is the password, and shows nothing before.
func TestPageNeedsTheToken(t *testing.T) {
	s, _ := shop(t)
	s.Token = "0123456789abcdef"
	for _, path := range []string{"/", "/apps/shop/log"} {
		r, body := get(t, s, path)
		require.Equal(t, 401, r.StatusCode)
		require.Contains(t, r.Header.Get("WWW-Authenticate"), "Basic ")
		require.NotContains(t, body, "shop-1")
		for password, want := range map[string]int{"": 401, s.Token: 200, s.Token + "x": 401} {
			req := httptest.NewRequest(http.MethodGet, path, nil)
			req.SetBasicAuth("anybody", password)
			r, _ = get(t, s, path, "Authorization", req.Header.Get("Authorization"))
			require.Equal(t, want, r.StatusCode)
		}
	}
	r, _ := get(t, s, "/v1/apps")
	require.Contains(t, r.Header.Get("WWW-Authenticate"), "Bearer ")
}
