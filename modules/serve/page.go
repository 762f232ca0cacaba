package serve

import (
	"crypto/sha256"
	_ "embed" // for page.css and page.js
	"encoding/base64"
	"os"
	"strings"
	"time"

	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// The pages are whole without scripts. The script shows them anew after each event, and reads
// logs when they are opened.
var (
	//go:embed page.css
	style string
	//go:embed page.js
	script string
)

// pagePolicy is what a browser may do with a page: it runs this script alone and asks this server
// alone.
var pagePolicy = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; connect-src 'self'; img-src data:; style-src '" +
	hashOf(style) + "'; script-src '" + hashOf(script) + "'"

// hashOf returns the hash by which a content security policy names an element's text.
func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// pageOf returns a page of these parts.
func pageOf(q *query, title string, parts ...markup) []byte {
	q.head["Content-Security-Policy"] = pagePolicy
	return []byte("<!DOCTYPE html>\n" + element("html", attr{"lang", "en"},
		element("head", element("meta", attr{"charset", "utf-8"}),
			element("meta", attr{"name", "viewport"}, attr{"content", "width=device-width, initial-scale=1"}),
			element("title", title),
			element("link", attr{"rel", "icon"}, attr{"href", "data:,"}),
			"<style>"+markup(style)+"</style>"),
		element("body", join(parts...), "<script>"+markup(script)+"</script>")))
}

// deviceName is the device's name in its network.
func deviceName() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "this device"
	}
	return name
}

// detailPage is a page about one thing of an application, with a way back.
func detailPage(q *query, title string, parts ...markup) []byte {
	return pageOf(q, title+" – "+deviceName(),
		element("header", element("p", element("a", attr{"href", "/"}, "All applications of "+deviceName())), element("h1", title)),
		element("main", join(parts...)))
}

// logPage shows the newest lines of an application's services.
func logPage(s *Server, q *query) (any, error) {
	lines, err := s.newestLines(q, "", usualTail)
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	for _, l := range lines {
		name := l.Instance
		if name == "" {
			name = l.Service
		}
		text.WriteString(name + " | " + l.Text + "\n")
	}
	title := "Log of " + q.PathValue("app")
	return detailPage(q, title, said(title, text.String())), nil
}

// deploymentPage shows one deployment with its log.
func deploymentPage(s *Server, q *query) (any, error) {
	n, err := q.number()
	if err != nil {
		return nil, err
	}
	app := q.PathValue("app")
	r, err := s.Store.Deployment(app, n)
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	err = s.Store.DeploymentLog(app, n, func(l store.LogEntry) error {
		text.WriteString(l.Step + " | " + l.Text + "\n")
		return nil
	})
	if err != nil {
		text.WriteString(err.Error())
	}
	name := r.ArtifactName
	if name == "" {
		name = app
	}
	return detailPage(q, "Deployment of "+name, element("p", badge(r.Status), " ", when(r.Ended)), account(&r), said("What was said in the deployment", text.String())), nil
}

// said shows lines as they were written.
func said(label, text string) markup {
	if text == "" {
		text = "Nothing."
	}
	return element("pre", attr{"tabindex", "0"}, attr{"role", "group"}, attr{"aria-label", label}, text)
}

// when is a time in the zone of the device.
func when(t time.Time) markup {
	if t.IsZero() {
		return ""
	}
	return element("time", attr{"datetime", t.Format(time.RFC3339)}, t.Local().Format("2006-01-02 15:04:05"))
}

// kinds of words, for their colour. Other words are those of something under way.
var kinds = map[string]string{
	submodules.Healthy: "good", submodules.Finished: "good", submodules.Off: "", "stopped": "",
	store.StatusInstalled: "good", store.StatusRestored: "good", store.StatusReconciled: "", store.StatusPurged: "",
	submodules.Unhealthy: "bad", submodules.Down: "bad", "unknown": "bad", "damaged": "bad", "interrupted": "bad", "not installed": "bad",
	store.StatusFailed: "bad", store.StatusRolledBack: "bad", store.StatusRefused: "bad",
	"ok": "good", "warn": "wait", "fail": "bad",
	store.OutcomeUndone: "bad",
}

// badge is a word with its colour.
func badge(word string) markup {
	kind, known := kinds[word]
	if !known {
		kind = "wait"
	}
	return element(strings.TrimSuffix("span.badge "+kind, " "), word)
}
