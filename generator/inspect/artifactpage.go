package inspect

import (
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/delta/budget"
	"github.com/mender-app/mender-app/generator/manifests"
)

// ArtifactPage writes what an artifact is, and what travels in it.
func ArtifactPage(w io.Writer, d *Description) error {
	b := newBounds()
	page := document{
		Title: b.word(d.Name), About: about(b, d), Figures: figures(b, d),
		Footer: "Written by app-gen inspect, which verified the checksums of " + b.word(filepath.Base(d.Path)) + ".",
	}
	if d.Path == "-" {
		page.Footer = "Written by app-gen inspect, which verified the checksums of what it read."
	}
	if len(d.Warnings) > 0 {
		page.Sections = append(page.Sections, section{Title: "Warnings", Items: b.words(d.Warnings)})
	}
	// The images come last into the bounds, because they may be the most.
	identity, device, contents, reach := identity(b, d), onDevice(d), payload(b, d), reached(b, d)
	page.Sections = append(page.Sections, travels(d), reach, device, describeImages(b, d), identity, contents)
	return page.write(w)
}

// about says in one line what the artifact is.
func about(b *bounds, d *Description) string {
	m := d.Parsed()
	version := m.ApplicationVersion
	if version != "" {
		version = ", version " + version
	}
	return b.word(fmt.Sprintf("An artifact of the application %s%s, for %s on %s. Signature: %s.",
		m.ApplicationName, version, m.Orchestrator, m.Platform, signatureText(d.Signature)))
}

// figures are what decides whether the artifact may go to a device.
func figures(b *bounds, d *Description) []fact {
	list := []fact{{"Download", []string{Bytes(d.Bytes)}}}
	if whole, known := unpacked(d); known {
		list = append(list, fact{"Unpacked", []string{Bytes(whole)}})
	}
	list = append(list, fact{"Signature", []string{string(d.Signature)}})
	if d.Level != "" {
		list = append(list, fact{"Level", []string{b.word(d.Level)}})
	}
	return list
}

// identity is what the artifact says that it is.
func identity(b *bounds, d *Description) section {
	m := d.Parsed()
	s := section{Title: "What it is"}
	add := func(name string, values ...string) {
		values = slices.DeleteFunc(values, func(v string) bool { return v == "" })
		if len(values) > 0 {
			s.Facts = append(s.Facts, fact{name, b.words(values)})
		}
	}
	add("Application", strings.TrimSpace(m.ApplicationName+" "+m.ApplicationVersion))
	add("Artifact", d.Name)
	add("Platform", m.Platform)
	add("Orchestrator", m.Orchestrator)
	add("Device types", d.DeviceTypes...)
	add("Signature", signatureText(d.Signature))
	if d.Statement == nil {
		add("Statement", "none")
	} else {
		add("Statement", signatureText(d.Statement.Signature))
		if at := d.Statement.Text.Expires; !at.IsZero() {
			add("Expires", at.UTC().Format(time.RFC3339))
		}
	}
	depends := map[string]string{}
	for k, v := range d.Depends {
		depends[k] = strings.Join(v, " or ")
	}
	add("Depends on", pairs(depends)...)
	add("Depends on name", strings.Join(d.DependsNames, " or "))
	add("Depends on group", strings.Join(d.DependsGroups, " or "))
	add("Provides", pairs(d.Provides)...)
	add("Clears", d.ClearsProvides...)
	add("Group", d.Group)
	add("Requires", m.Requires...)
	add("State scripts", d.Scripts...)
	if m.Reboot {
		add("Restart", "asks for a restart of the machine before the commit")
	}
	add("Secrets for", m.Recipients...)
	add("Policy", string(m.Policy))
	add("Environment", pairs(m.Env)...)
	return s
}

// signatureText says what is known of a signature.
func signatureText(s Signature) string {
	switch s {
	case Verified:
		return "signed, and verified with the key that was given"
	case Unverified:
		return "signed; not verified, because no key was given that made it"
	}
	return "none"
}

func pairs(m map[string]string) (list []string) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		list = append(list, k+" = "+m[k])
	}
	return list
}

// onDevice is what the artifact announces that it takes there.
func onDevice(d *Description) section {
	s := section{Title: "On the device"}
	z, atMost := d.Needs()
	if z == nil {
		s.Notes = []string{"The artifact does not say how much space, memory or time it takes."}
		return s
	}
	memory := "none to rebuild images"
	if z.Memory > 0 {
		memory = "at most " + Bytes(z.Memory) + " to rebuild an image"
	}
	temporary := "none"
	if z.Temp > 0 {
		temporary = "at most " + Bytes(z.Temp)
	}
	disk := Bytes(z.Engine) + " more"
	if atMost {
		disk = "at most " + disk
	}
	var decoding time.Duration
	for _, img := range d.Images {
		decoding += img.Decoding
	}
	s.Facts = []fact{
		{"Memory", []string{memory}},
		{"Temporary files", []string{temporary}},
		{"Engine’s disk", []string{disk}},
		{"Manifests", []string{Bytes(z.Manifests)}},
		{"Time", append(decodingTime(decoding), timesText(d.Times)...)},
	}
	if atMost {
		s.Notes = []string{"An image that travels in several ways counts with the largest figures of these. Each way has its own below."}
	}
	return s
}

// decodingTime tells how long decoding took here, unless that is 0, and who knows how long
// it takes on a device: that depends on its processor, its network and its disk.
func decodingTime(here time.Duration) (lines []string) {
	if here > 0 {
		lines = append(lines, fmt.Sprintf("%.1f s on this machine, to decode the images", here.Seconds()))
	}
	return append(lines, "“mender-app check FILE” on a device predicts it, from the updates that the device had")
}

// timesText tells how long a device takes for an artifact; t may be nil.
func timesText(t *budget.Times) []string {
	if t == nil {
		return nil
	}
	lines := []string{fmt.Sprintf("about %.1f s to download at %s", t.Download, t.Link)}
	if t.Class != "" {
		lines = append(lines, fmt.Sprintf("about %.1f s to decode on a device of the class %s", t.Decode, t.Class))
	}
	return lines
}

// payload lists the files of the artifact's payload and of its manifests.
func payload(b *bounds, d *Description) section {
	s := section{Title: "Payload and manifests"}
	files := table{Caption: "Files of the payload", Head: []cell{{Text: "File and SHA-256"}, {"Size", number}}}
	files.More = more(each(b, d.Files, func(f FileDescription) {
		files.Rows = append(files.Rows, row{Name: b.word(f.Name) + " " + b.word(f.SHA256), Cells: []cell{{Bytes(f.Bytes), number}}})
	}))
	s.Tables = append(s.Tables, files)
	if len(d.Manifests) == 0 {
		return s
	}
	shipped := table{Caption: "Files of the manifests", Head: []cell{{Text: "File"}, {"Size", number}}}
	shipped.More = more(each(b, d.Manifests, func(f ManifestFile) {
		r := row{Name: b.word(f.Path), Cells: []cell{{Bytes(f.Size), number}}}
		if f.Link != "" {
			r.Name, r.Cells[0].Text = r.Name+" → "+b.word(f.Link), "link"
		}
		shipped.Rows = append(shipped.Rows, r)
	}))
	s.Tables = append(s.Tables, shipped)
	return s
}

// reached lists what services reach beyond their containers.
func reached(b *bounds, d *Description) section {
	s := section{Title: "What services reach on the device"}
	if d.Level != "" {
		s.Notes = append(s.Notes, strings.TrimSuffix("A device must give the application the level "+d.Level+": "+strings.Join(b.words(d.LevelFor), "; "), ": ")+".")
	}
	if len(d.Reach) == 0 {
		s.Notes = append(s.Notes, "No service is known to reach anything beyond its containers and the files that are shipped.")
		return s
	}
	s.More = more(each(b, d.Reach, func(r manifests.Reach) {
		s.Items = append(s.Items, b.word(r.By)+": "+strings.Join(b.words(r.Words()), "; "))
	}))
	return s
}

// travels compares the artifact with its images.
func travels(d *Description) section {
	s := section{Title: "What travels"}
	whole, known := unpacked(d)
	widest := max(d.Bytes, whole)
	t := table{Caption: "The artifact beside what it brings", Head: []cell{{Text: "What"}, {"Size", number}}}
	t.Rows = append(t.Rows, row{"The artifact, as it is downloaded", newBar("delta", d.Bytes, d.Bytes, widest), []cell{{Bytes(d.Bytes), number}}})
	for _, f := range d.Files {
		if what := payloadNames[f.Name]; what != "" {
			t.Rows = append(t.Rows, row{what, newBar("delta", f.Bytes, f.Bytes, widest), []cell{{Bytes(f.Bytes), number}}})
		}
	}
	switch {
	case len(d.Images) == 0:
		s.Notes = []string{"It has no images."}
	case known:
		t.Rows = append(t.Rows, row{"Its images and files, unpacked", newBar("plain", whole, whole, widest), []cell{{Bytes(whole), number}}})
		if d.Bytes < whole {
			s.Notes = []string{fmt.Sprintf("What is downloaded is %.2g %% of what its images and files are unpacked.", 100*float64(d.Bytes)/float64(whole))}
		}
	default:
		s.Notes = []string{"The artifact does not say how large its images are."}
	}
	if anyWhole(d) {
		s.Notes = append(s.Notes, wholeNote(d))
	}
	s.Tables = []table{t}
	by, shared := byEncoding(d)
	if len(by.Rows) > 0 {
		s.Tables = append(s.Tables, by)
	}
	if shared > 0 {
		s.Notes = append(s.Notes, "A layer of several images is counted once, with the first of them.")
	}
	return s
}

// payloadNames are the files of the payload, as parts of the artifact.
var payloadNames = map[string]string{
	artifact.ImagesPayload: "Of it, the images and files", artifact.ManifestsPayload: "Of it, the manifests",
}

// byEncoding sums up the layers of images that travel in one way. A layer that an earlier
// image has is shared, and counted there.
func byEncoding(d *Description) (_ table, shared int) {
	type sum struct{ layers, size, bytes int64 }
	plus := func(a, b int64) int64 {
		if a < 0 || b < 0 { // one that is not known
			return -1
		}
		return a + b
	}
	sums := map[string]sum{}
	var widest int64
	seen := map[digest.Digest]bool{}
	for _, img := range d.Images {
		for _, l := range img.Layers {
			if seen[l.DiffID] {
				shared++
				continue
			}
			seen[l.DiffID] = true
			s := sums[l.Encoding]
			s = sum{s.layers + 1, plus(s.size, l.Size), plus(s.bytes, l.Bytes)}
			sums[l.Encoding], widest = s, max(widest, s.size)
		}
	}
	t := table{Caption: "Layers of images, by how they travel", Head: slices.Insert(layerHead("How"), 1, cell{"Layers", number})}
	for _, e := range []artifact.Encoding{artifact.EncodingOmitted, artifact.EncodingDelta, artifact.EncodingVerbatim} {
		if s, ok := sums[string(e)]; ok {
			name := encodingText(string(e))
			if e == artifact.EncodingOmitted {
				name += ": the device has them"
			}
			t.Rows = append(t.Rows, row{name, newBar(encodingClass(string(e)), s.bytes, s.size, widest), []cell{{fmt.Sprint(s.layers), number}, {Bytes(s.bytes), number}, {Bytes(s.size), number}}})
		}
	}
	return t, shared
}
