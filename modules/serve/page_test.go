package serve

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/store"
)

// around shows the page in a frame as wide as a small telephone, opens all of it, and
// reports what is wrong.
const around = `<!DOCTYPE html><html lang="en"><title>x</title><iframe id="f" src="/" width="320" height="700" style="border:0"></iframe><script>
const wait = ms => new Promise(done => setTimeout(done, ms))
const channels = color => color.match(/[\d.]+/g).map(Number)
const light = color => {
	const [r, g, b] = channels(color).map(v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
	return .2126 * r + .7152 * g + .0722 * b
}
(async () => {
	const faults = [], frame = document.getElementById('f')
	const until = async (what, f) => { for (let i = 0; i < 150; i++) { if (f()) return; await wait(100) } faults.push('never: ' + what) }
	await until('the application', () => frame.contentDocument && frame.contentDocument.querySelector('section'))
	const d = frame.contentDocument, view = frame.contentWindow
	for (const e of d.querySelectorAll('details')) e.open = true
	await until('what was said', () => [...d.querySelectorAll('pre')].some(e => e.textContent.includes('downloading | loading')))
	await until('the log', () => [...d.querySelectorAll('pre')].some(e => e.textContent.includes('shop-web-1 | xxx')))
	for (const text of ['shop', 'waits for its installation', 'healthy', 'shop-"web"-1', 'rolled-back', 'Under way: shop-2', 'web is unhealthy', 'by hand (anna)', 'web was down 1.3 s', '<img src=x>'])
		if (!d.body.textContent.includes(text)) faults.push('missing: ' + text)
	if (d.querySelector('img')) faults.push('the text of an artifact has become a part of the page')
	if (d.documentElement.scrollWidth > 320) faults.push('scrolls to the side: ' + d.documentElement.scrollWidth)
	const back = light(view.getComputedStyle(d.body).backgroundColor)
	for (const e of d.body.querySelectorAll('*')) {
		const name = '<' + e.tagName + '> ' + e.textContent.slice(0, 40)
		if (e.tagName === 'TABLE' && !e.caption) faults.push('no caption: ' + name)
		if (e.tagName === 'TH' && !e.scope) faults.push('no scope: ' + name)
		if (e.tagName === 'INPUT' && !e.labels.length) faults.push('no label: ' + name)
		if (e.tagName === 'SECTION' && !d.getElementById(e.getAttribute('aria-labelledby'))) faults.push('no name: ' + name)
		if (!e.checkVisibility() || ![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) || e.tagName === 'SCRIPT') continue
		if (e.getBoundingClientRect().right > 320.5) faults.push('beyond the screen: ' + name)
		const front = light(view.getComputedStyle(e).color)
		const contrast = (Math.max(front, back) + .05) / (Math.min(front, back) + .05)
		if (contrast < 4.5) faults.push('contrast ' + contrast.toFixed(2) + ': ' + name)
	}
	if (location.search === '?axe') {
		const script = d.createElement('script')
		script.src = '/axe.js'
		d.head.append(script)
		await until('axe', () => view.axe)
		for (const v of (await view.axe.run(d)).violations)
			for (const n of v.nodes) faults.push('axe, ' + v.id + ': ' + v.help + ': ' + n.html.slice(0, 120))
	}
	for (const e of view.performance.getEntriesByType('resource')) if (!e.name.startsWith(location.origin)) faults.push('a request: ' + e.name)
	await fetch('/seen', { method: 'POST', body: (back > .5 ? 'light' : 'dark') })
	await until('the event', () => { return d.body.textContent.includes('installing') })
	fetch('/faults', { method: 'POST', body: faults.join('\n') })
})()
</script></html>`

// The page shows the device in a real browser under its own policy, fits a small screen,
// is readable in dark and light, asks nobody else, and follows events.
func TestPage(t *testing.T) {
	require.Less(t, len(page), 60<<10)
	browse(t, nil)
}

// axe-core finds no fault with the page.
func TestPageIsAccessible(t *testing.T) {
	file := os.Getenv("MENDER_APP_AXE")
	if file == "" {
		t.Skip("needs MENDER_APP_AXE, the file axe.min.js of the npm package axe-core")
	}
	axe, err := os.ReadFile(file)
	require.NoError(t, err)
	browse(t, axe)
}

// browse shows the page in a browser, dark and light, and reports faults.
func browse(t *testing.T, axe []byte) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a browser; left out of -short")
	}
	if _, err := exec.LookPath("chromium"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("missing in CI: chromium")
		}
		t.Skip("needs chromium (make setup)")
	}
	for scheme, number := range map[string]string{"dark": "0", "light": "1"} {
		s, _ := shop(t)
		require.NoError(t, s.Store.AddHistory(store.Record{ID: "5", Application: "shop", ArtifactName: "<img src=x>", Status: store.StatusFailed, Started: time.Now(), Ended: time.Now()}))
		seen, faults := make(chan string, 1), make(chan string, 1)
		handler := s.Handler(t.Context())
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body := make([]byte, 64<<10)
			n, _ := r.Body.Read(body)
			switch r.URL.Path {
			case "/around":
				_, _ = w.Write([]byte(around))
			case "/axe.js":
				w.Header().Set("Content-Type", "text/javascript")
				_, _ = w.Write(axe)
			case "/seen":
				seen <- string(body[:n])
			case "/faults":
				faults <- string(body[:n])
			default:
				handler.ServeHTTP(&framed{ResponseWriter: w}, r)
			}
		}))
		home, err := os.MkdirTemp("", "mender-app-page-")
		require.NoError(t, err)
		around := "/around"
		if axe != nil {
			around += "?axe"
		}
		cmd := exec.Command("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
			"--blink-settings=preferredColorScheme="+number, "--remote-debugging-port=0", "--user-data-dir="+home, server.URL+around)
		cmd.Env = append(os.Environ(), "HOME="+home)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		require.NoError(t, cmd.Start())
		late := time.AfterFunc(time.Minute, func() { seen <- "nothing"; faults <- "the browser does not answer" })
		require.Equal(t, scheme, <-seen)
		a, err := s.Store.App("shop")
		require.NoError(t, err)
		a.Deployment.Phase = "installing"
		a.Deployment.Steps = append(a.Deployment.Steps, store.Step{Phase: "installing", At: time.Now()})
		require.NoError(t, a.Save())
		require.Empty(t, <-faults)
		late.Stop()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		_ = os.RemoveAll(home)
		server.CloseClientConnections()
		server.Close()
	}
}

// framed lets the page be shown in a frame of the test.
type framed struct {
	http.ResponseWriter
	begun bool
}

func (f *framed) WriteHeader(status int) {
	f.begun = true
	h := f.Header()
	if policy := h.Get("Content-Security-Policy"); policy != "" {
		policy = strings.Replace(policy, "frame-ancestors 'none'", "frame-ancestors 'self'", 1)
		h.Set("Content-Security-Policy", strings.Replace(policy, "script-src ", "script-src 'self' ", 1)) // for axe
	}
	f.ResponseWriter.WriteHeader(status)
}

func (f *framed) Write(p []byte) (int, error) {
	if !f.begun {
		f.WriteHeader(http.StatusOK)
	}
	return f.ResponseWriter.Write(p)
}

func (f *framed) Unwrap() http.ResponseWriter { return f.ResponseWriter }
