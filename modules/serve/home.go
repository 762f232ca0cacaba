package serve

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/modules/diskspace"
	"github.com/mender-app/mender-app/modules/journal"
	"github.com/mender-app/mender-app/modules/view"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// Bounds of the first page.
const (
	shownDeployments = 200 // in all
	mostDeployments  = 20  // of one application
	leastDeployments = 2
)

// device is what the first page shows.
type device struct {
	now     time.Time
	apps    []*view.Overview
	history map[string][]store.Record // the newest first
	queue   *Queue
	checkup *checkup
}

// homePage shows the whole device.
func homePage(s *Server, q *query) (any, error) {
	d := &device{now: time.Now(), history: map[string][]store.Record{}}
	var err error
	s.checkups.begin(s)
	if d.apps, err = s.overviews(q.Context()); err != nil {
		return nil, err
	}
	if d.queue, err = s.readQueue(); err != nil {
		return nil, err
	}
	limit := min(mostDeployments, max(leastDeployments, shownDeployments/max(1, len(d.apps))))
	for _, o := range d.apps {
		d.history[o.Name], _, err = s.Store.Deployments(o.Name, store.Query{Limit: limit})
		if err != nil {
			d.history[o.Name] = nil // a damaged history is rebuilt by the next deployment
		}
	}
	d.checkup = s.checkups.wait(q.Context())
	problems := d.problems()
	parts := []markup{d.attention(problems)}
	if len(d.apps) > 2 {
		parts = append(parts, d.contents())
	}
	for _, o := range d.apps {
		parts = append(parts, d.application(o))
	}
	if len(d.apps) == 0 {
		parts = append(parts, element("p", part("none"), "There is no application yet."))
	}
	parts = append(parts, d.findings())
	name := deviceName()
	return pageOf(q, name+": "+d.summary(),
		element("header", element("h1", name),
			element("p.soft", attr{"id", "said"}, attr{"role", "status"}, d.summary()),
			"<noscript>"+element("p.soft", "Without scripts, the page does not follow what happens: ", element("a", attr{"href", "/"}, "read it again"), ".")+"</noscript>",
			d.facts(s)),
		element("main", attr{"id", "parts"}, join(parts...)),
		element("footer.soft", "The same as data: ", element("a", attr{"href", "/v1/apps"}, "applications"), ", ",
			element("a", attr{"href", "/v1/queue"}, "queue"), ", ", element("a", attr{"href", "/metrics"}, "metrics"), ", ",
			element("a", attr{"href", "/openapi.json"}, "description"))), nil
}

// part names a part of the page, which the script replaces when it changes.
func part(name string) attr { return attr{"id", "part-" + name} }

// summary is the page in one line.
func (d *device) summary() string {
	sick := 0
	for _, o := range d.apps {
		if o.Health != "" && o.Health != submodules.Healthy {
			sick++
		}
	}
	text := metered.Count(len(d.apps), "application")
	if sick > 0 {
		text += fmt.Sprintf(", %d not healthy", sick)
	}
	if n := len(d.queue.Deployments); n > 0 {
		text += ", " + metered.Count(n, "update") + " under way"
	}
	return text
}

// facts are those of the device.
func (d *device) facts(s *Server) markup {
	list := []markup{}
	add := func(name string, values ...any) {
		list = append(list, element("div", element("dt", name), element("dd", values...)))
	}
	add("Time", when(d.now), d.now.Local().Format(" MST (-07:00)"))
	free := map[uint64][]string{}
	room := map[uint64]int64{}
	var order []uint64
	for _, name := range slices.Sorted(maps.Keys(s.Disks)) {
		n, dev, err := diskspace.Free(diskspace.Existing(s.Disks[name]))
		if err != nil {
			continue
		}
		if free[dev] == nil {
			order = append(order, dev)
		}
		free[dev], room[dev] = append(free[dev], name), n
	}
	var texts []string
	for _, dev := range order {
		text := metered.Human(room[dev])
		if len(order) > 1 {
			text += " (" + strings.Join(free[dev], ", ") + ")"
		}
		texts = append(texts, text)
	}
	add("Free disk", strings.Join(texts, ", "))
	engine := "being asked…"
	if d.checkup != nil {
		engine = "none answers"
		var names []string
		for _, e := range d.checkup.Engines {
			text := e.Name + " " + e.Version
			if e.Compose != "" {
				text += ", Compose " + e.Compose
			}
			names = append(names, text)
		}
		if len(names) > 0 {
			engine = strings.Join(names, "; ")
		}
	}
	add("Engine", engine)
	add("mender-app", s.Version)
	return element("dl.facts", part("facts"), join(list...))
}

// problem is one thing that a person should know first.
type problem struct {
	kind  string // bad or wait
	parts []any
}

// isFailure reports whether a deployment ended as nobody wanted it to. A rollback without an
// error is one that somebody asked for.
func isFailure(r *store.Record) bool {
	return r.Status == store.StatusFailed || r.Error != "" && (r.Status == store.StatusRolledBack || r.Status == store.StatusRefused)
}

// failure says what failed, when, and why.
func failure(r *store.Record) []any {
	words := map[string]string{store.StatusRolledBack: "was rolled back", store.StatusRefused: "was refused", store.StatusFailed: "failed"}
	return []any{cmp.Or(r.ArtifactName, r.To, "an update") + " " + words[r.Status] + " at ", when(r.Ended), orNothing(": ", strings.TrimPrefix(r.Error, "refused: "))}
}

// problems are what needs attention, the worst first.
func (d *device) problems() (list []problem) {
	add := func(kind string, parts ...any) { list = append(list, problem{kind, parts}) }
	for _, o := range d.apps {
		name := element("a", attr{"href", "#part-app-" + o.Name}, o.Name)
		if o.Health != "" && o.Health != submodules.Healthy {
			text := " is " + o.Health
			for _, v := range o.Services {
				if v.Failure != "" && !well(v.Health) {
					text += "; " + cmp.Or(v.Instance, v.Name) + " " + v.Failure
				}
			}
			add("bad", name, text)
		}
		if o.Problem != "" {
			add("bad", name, ": "+o.Problem)
		}
		if o.Last != nil && isFailure(o.Last) && o.Deployment == nil {
			add("bad", append([]any{name, ": "}, failure(o.Last)...)...)
		}
		if o.UpdatesWait != "" && !d.queue.Hold.Held {
			add("wait", name, ": updates wait: "+o.UpdatesWait)
		}
	}
	if d.checkup != nil {
		for _, f := range d.checkup.Findings {
			if f.Status == view.FindingFail {
				add("bad", "doctor, ", f.Check, ": ", f.Found, orNothing("; ", f.Do))
			}
		}
	}
	if h := d.queue.Hold; h.Held {
		parts := []any{"Updates are held"}
		if !h.Until.IsZero() {
			parts = append(parts, " until ", when(h.Until))
		}
		add("wait", append(parts, orNothing(": ", h.Reason))...)
	}
	return list
}

// orNothing is a text after its separator, or nothing without a text.
func orNothing(before, text string) string {
	if text == "" {
		return ""
	}
	return before + text
}

// well reports whether a service is as it should be.
func well(health string) bool {
	return health == submodules.Healthy || health == submodules.Finished || health == submodules.Off
}

// attention shows the problems.
func (d *device) attention(list []problem) markup {
	heading := element("h2", attr{"id", "attention"}, "Needs attention")
	if len(list) == 0 {
		return element("section.calm", part("attention"), attr{"aria-labelledby", "attention"}, heading, element("p", "Nothing."))
	}
	var items []markup
	for _, p := range list {
		items = append(items, element("li."+p.kind, p.parts...))
	}
	return element("section", part("attention"), attr{"aria-labelledby", "attention"}, heading, element("ul", join(items...)))
}

// contents leads to the applications.
func (d *device) contents() markup {
	var items []markup
	for _, o := range d.apps {
		items = append(items, element("li", element("a", attr{"href", "#part-app-" + o.Name}, o.Name), " ", badge(cmp.Or(o.Health, o.State))))
	}
	return element("nav", part("contents"), attr{"aria-label", "Applications"}, element("ul", join(items...)))
}

// application shows an application.
func (d *device) application(o *view.Overview) markup {
	id := "app-" + o.Name
	state := []any{badge(o.State)}
	if o.Health != "" {
		state = append(state, " ", badge(o.Health))
	}
	if o.ArtifactName != "" {
		state = append(state, " ", element("strong", o.ArtifactName), orNothing(", version ", o.Version))
	}
	parts := []any{part(id), attr{"aria-labelledby", id}, element("h2", attr{"id", id}, o.Name), element("p", state...)}
	if o.Deployment != nil {
		parts = append(parts, d.underWay(o.Deployment))
	}
	records := d.history[o.Name]
	if i := slices.IndexFunc(records, func(r store.Record) bool { return isFailure(&r) }); i > 0 || i == 0 && o.Deployment != nil {
		parts = append(parts, element("p", append([]any{element("strong", "Last failure: ")}, failure(&records[i])...)...))
	}
	for _, staged := range o.Staged {
		parts = append(parts, element("p", "Staged: "+staged.ArtifactName))
	}
	if len(o.Services) > 0 {
		parts = append(parts, d.services(o))
	}
	if len(o.Disabled) > 0 {
		parts = append(parts, element("p.soft", "Switched off: "+strings.Join(o.Disabled, ", ")))
	}
	parts = append(parts, d.past(o))
	if o.Services != nil {
		log := "/apps/" + o.Name + "/log"
		parts = append(parts, element("details", attr{"id", id + "-log"}, element("summary", "Log of the services"), more(log, "the newest lines")))
	}
	return element("section.app", parts...)
}

// more leads to what the script shows in place.
func more(path, text string) markup {
	return element("p", element("a.more", attr{"href", path}, text))
}

// way are the steps of an update that succeeds, in order, and what each means.
var way = []journal.Phase{journal.Downloading, journal.Loaded, journal.Installing, journal.Installed, journal.Committed, journal.Cleaning}

var meaning = map[journal.Phase]string{
	journal.Downloading: "the new release is loaded beside the running one",
	journal.Loaded:      "everything is on the device and verified",
	journal.Installing:  "the new release is started",
	journal.Installed:   "the new release runs and is healthy",
	journal.Committed:   "the new release is kept",
	journal.Cleaning:    "what only the previous release needed is removed",
	journal.RollingBack: "the previous release is started again",
	journal.RolledBack:  "the previous release runs",
	journal.Failed:      "the new release did not start",
}

// underWay shows an open deployment.
func (d *device) underWay(dep *store.Deployment) markup {
	name := cmp.Or(dep.ArtifactName, dep.To)
	text := string(dep.Phase) + orNothing(": ", meaning[dep.Phase])
	bar := element("progress", attr{"max", fmt.Sprint(len(way))}, attr{"aria-label", "Progress of " + name})
	if i := slices.Index(way, dep.Phase); i >= 0 {
		bar = element("progress", attr{"max", fmt.Sprint(len(way))}, attr{"value", fmt.Sprint(i + 1)}, attr{"aria-label", "Progress of " + name})
		text = fmt.Sprintf("Step %d of %d, ", i+1, len(way)) + text
	}
	var steps []markup
	for i, s := range dep.Steps {
		end := d.now
		if i+1 < len(dep.Steps) {
			end = dep.Steps[i+1].At
		}
		steps = append(steps, element("li", stepName(s)+" ", element("span.soft", when(s.At), ", "+span(end.Sub(s.At))), orNothing(": ", s.Error)))
	}
	parts := []any{element("h3", "Under way: "+name), bar, element("p", text+orNothing(", asked ", askedBy(dep.Asked, dep.Driver)))}
	if dep.Error != "" {
		parts = append(parts, element("p.bad", dep.Error))
	}
	return element("div.way", append(parts, element("ol", join(steps...)))...)
}

// stepName is the name of a step.
func stepName(s store.Step) string { return string(s.Phase) + orNothing(", data: ", s.Data) }

// askedBy says who asked for a deployment.
func askedBy(a *store.Asked, driver string) string {
	if a == nil {
		return orNothing("through ", driver)
	}
	if a.User != "" {
		return a.How + " (" + a.User + ")"
	}
	return a.How
}

// services shows the services of an application, each on a line of its own on a telephone.
func (d *device) services(o *view.Overview) markup {
	var items []markup
	for _, v := range o.Services {
		parts := []any{element("span.name", cmp.Or(v.Instance, v.Name)), " ", badge(v.Health), " "}
		parts = append(parts, element("span.image", v.Image), " ")
		since := ""
		if !v.Since.IsZero() {
			since = "up for " + span(d.now.Sub(v.Since))
			if v.Health == submodules.Down || v.Health == submodules.Finished {
				since = "ended " + span(d.now.Sub(v.Since)) + " ago"
			}
		}
		if v.Restarts > 0 {
			since += " (" + metered.Count(v.Restarts, "restart") + ")"
		}
		parts = append(parts, element("span.soft", attr{"title", timeText(v.Since)}, since))
		if v.Failure != "" {
			kind := "bad"
			if well(v.Health) {
				kind = "soft"
			}
			why := []any{v.Failure}
			if !v.Failed.IsZero() && well(v.Health) {
				why = []any{"Before, at ", when(v.Failed), ": " + v.Failure}
			}
			parts = append(parts, element("p."+kind, append(why, orNothing("; it last said: ", v.Said))...))
		}
		items = append(items, element("li", parts...))
	}
	return join(element("h3", attr{"id", "services-" + o.Name}, "Services"), element("ul.services", attr{"aria-labelledby", "services-" + o.Name}, join(items...)))
}

func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return "since " + t.Local().Format("2006-01-02 15:04:05")
}

// past shows the newest deployments of an application.
func (d *device) past(o *view.Overview) markup {
	records := d.history[o.Name]
	if len(records) == 0 {
		return ""
	}
	var items []markup
	for i := range records {
		r := &records[i]
		id := fmt.Sprintf("deployment-%s-%d", o.Name, r.Number)
		title := []any{badge(r.Status), " ", element("strong", cmp.Or(r.ArtifactName, r.To)), " ", element("span.soft", when(r.Ended)),
			element("span.took", "took "+span(r.Ended.Sub(r.Started)), orNothing(", ", downtimes(r))), timeline(r)}
		items = append(items, element("li", element("details", attr{"id", id}, element("summary", title...), account(r),
			more(fmt.Sprintf("/apps/%s/deployments/%d", o.Name, r.Number), "What was said"))))
	}
	return join(element("h3", "History"), legend(), element("ol.history", join(items...)))
}

// downtimes says how long each service was down.
func downtimes(r *store.Record) string {
	if r.Measured == nil {
		return ""
	}
	var list []string
	for _, t := range r.Measured.Downtimes {
		text := fmt.Sprintf("%s was down %s", t.Service, span(time.Duration(t.Seconds*float64(time.Second))))
		if !t.Since.IsZero() {
			text += " and not ready again"
		}
		list = append(list, text)
	}
	return strings.Join(list, ", ")
}

// account is what a deployment took, step by step.
func account(r *store.Record) markup {
	var list []string
	for _, text := range []string{orNothing("Asked ", askedBy(r.Asked, r.Driver)), "took " + span(r.Ended.Sub(r.Started)), received(r.Measured), downtimes(r)} {
		if text != "" {
			list = append(list, text)
		}
	}
	parts := []markup{element("p", strings.Join(list, ", "))}
	if r.Error != "" {
		parts = append(parts, element("p.bad", r.Error))
	}
	if len(r.Steps) == 0 {
		return join(parts...)
	}
	var rows []markup
	for _, s := range r.Steps {
		outcome := []any{badge(s.Outcome)}
		if s.Error != "" && s.Error != r.Error {
			outcome = append(outcome, " "+s.Error)
		}
		rows = append(rows, element("tr", element("th", attr{"scope", "row"}, stepName(s)), element("td", span(s.End.Sub(s.At))), element("td", outcome...)))
	}
	var heads []markup
	for _, h := range []string{"Step", "Took", "Outcome"} {
		heads = append(heads, element("th", attr{"scope", "col"}, h))
	}
	return join(append(parts, element("table", element("caption", "Its steps"), element("thead", element("tr", join(heads...))), element("tbody", join(rows...))))...)
}

// received says what a deployment received and wrote.
func received(m *store.Measured) string {
	if m == nil || m.Received == 0 {
		return ""
	}
	text := metered.Human(m.Received) + " received"
	if m.Written > 0 {
		text += ", " + metered.Human(m.Written) + " written by all programs"
	}
	return text
}

// colours are the classes of the steps in a timeline.
var colours = map[journal.Phase]string{
	journal.Downloading: "load", journal.Installing: "start", journal.RollingBack: "back", journal.Failed: "back",
}

// timeline draws the steps of a deployment. Its table has the numbers.
func timeline(r *store.Record) markup {
	all := r.Ended.Sub(r.Started).Seconds()
	if all <= 0 || len(r.Steps) == 0 {
		return ""
	}
	const wide = 1000
	var rects []markup
	for _, s := range r.Steps {
		from := max(0, min(1, s.At.Sub(r.Started).Seconds()/all)) * wide
		width := max(4, min(1, s.End.Sub(s.At).Seconds()/all)*wide)
		rects = append(rects, element("rect."+cmp.Or(colours[s.Phase], "rest"), attr{"x", fmt.Sprint(math.Round(from))}, attr{"width", fmt.Sprint(math.Round(min(width, wide-from)))}, attr{"height", "10"}))
	}
	return element("svg", attr{"viewBox", "0 0 1000 10"}, attr{"preserveAspectRatio", "none"}, attr{"aria-hidden", "true"}, join(rects...))
}

// legend says what the colours of timelines mean.
func legend() markup {
	var parts []any
	for _, c := range [][2]string{{"load", "downloading"}, {"start", "installing"}, {"back", "rolling back"}, {"rest", "waiting, committing, cleaning"}} {
		swatch := element("svg", attr{"viewBox", "0 0 10 10"}, attr{"aria-hidden", "true"}, element("rect."+c[0], attr{"width", "10"}, attr{"height", "10"}))
		parts = append(parts, element("span", swatch, " "+c[1]), " ")
	}
	return element("p.legend", parts...)
}

// findings shows what doctor found. What is well is there for those who look.
func (d *device) findings() markup {
	heading := element("h2", attr{"id", "doctor"}, "Doctor")
	if d.checkup == nil {
		return element("section", part("doctor"), attr{"aria-labelledby", "doctor"}, heading, element("p", "The device is being checked…"))
	}
	item := func(f view.Finding) markup {
		return element("li", badge(f.Status), " ", element("strong", f.Check), ": ", f.Found, orNothing("; to do: ", f.Do))
	}
	var wrong, right []markup
	for _, f := range d.checkup.Findings {
		if f.Status == view.FindingOK {
			right = append(right, item(f))
		} else {
			wrong = append(wrong, item(f))
		}
	}
	parts := []any{part("doctor"), attr{"aria-labelledby", "doctor"}, heading}
	if len(wrong) > 0 {
		parts = append(parts, element("ul.plain", join(wrong...)))
	}
	parts = append(parts, element("details", attr{"id", "doctor-ok"}, element("summary", metered.Count(len(right), "check")+" ok"), element("ul.plain", join(right...))),
		element("p.soft", "Checked at ", when(d.checkup.at), ". mender-app doctor on the device also tries free space, durable writes and the sandbox."))
	return element("section", parts...)
}

// span is a duration for a person.
func span(d time.Duration) string {
	s := d.Seconds()
	switch {
	case s < 0:
		return "an unknown time" // the clock was set
	case s < 60:
		return fmt.Sprintf("%.1f s", math.Round(s*10)/10)
	case s < 3600:
		return fmt.Sprintf("%d min %d s", int(s)/60, int(s)%60)
	case s < 48*3600:
		return fmt.Sprintf("%d h %d min", int(s)/3600, int(s)/60%60)
	}
	return metered.Count(int(s)/86400, "day")
}
