package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/clip"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/cmd/internal/table"
	"github.com/mender-app/mender-app/delta/budget"
	"github.com/mender-app/mender-app/generator"
	"github.com/mender-app/mender-app/generator/inspect"
	"github.com/mender-app/mender-app/generator/manifests"
	"github.com/mender-app/mender-app/generator/render"
)

// madeDocument is the output of --json for one artifact.
type madeDocument struct {
	Plan planDocument `json:"plan"`
	// Unchanged: the artifact was made from the same before. There is no plan then.
	Unchanged bool                 `json:"unchanged,omitempty"`
	Artifact  *inspect.Description `json:"artifact,omitempty"`
	Warnings  []string             `json:"warnings,omitempty"`
	Notes     []string             `json:"notes,omitempty"`
}

// report describes the new artifacts, as tables or as one JSON document. It prints to
// stderr if the artifact went to stdout. Warnings and notes always go to stderr.
func (f *genFlags) report(c *cobra.Command, targets []*target) error {
	out := c.OutOrStdout()
	if targets[0].stdout && !f.dry {
		out = c.ErrOrStderr()
	}
	var documents []madeDocument
	var said []string
	say := func(kind string, texts []string) {
		for _, text := range texts {
			if line := "app-gen: " + kind + ": " + text; !slices.Contains(said, line) {
				said = append(said, line)
				fmt.Fprintln(c.ErrOrStderr(), line)
			}
		}
	}
	for i, t := range targets {
		say("warning", t.result.Warnings)
		say("note", t.result.Notes)
		switch {
		case f.json:
			documents = append(documents, madeDocument{newPlanDocument(t.result), t.result.Unchanged, t.made, t.result.Warnings, t.result.Notes})
			continue
		case i > 0:
			fmt.Fprintln(out)
		}
		if t.result.Unchanged && t.made == nil {
			printPlan(out, t.result)
		}
		if t.result.Unchanged {
			fmt.Fprintf(out, "%s: unchanged: artifact %s was made from the same before\n", t.path(), t.options.Artifact.Name)
			continue
		}
		if t.made == nil {
			printPlan(out, t.result)
		} else {
			printMade(out, t.result, t.made)
		}
	}
	switch {
	case len(documents) == 1:
		return printJSON(out, documents[0])
	case f.json:
		return printJSON(out, struct {
			Artifacts []madeDocument `json:"artifacts"`
		}{documents})
	}
	return nil
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(clip.JSONWriter(w))
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// planDocument is the plan in --json, with the size of each image in the artifact.
type planDocument struct {
	*generator.Plan
	Components []componentDocument `json:"components"`
	Manifests  []manifests.Shipped `json:"manifests"`
	NotShipped []string            `json:"not_shipped,omitempty"`
	Rendered   *render.Rendered    `json:"rendered,omitempty"`
}

type componentDocument struct {
	generator.PlannedComponent
	Sent     int64             `json:"sent_bytes,omitempty"`
	Shared   int64             `json:"shared_bytes,omitempty"`
	Variants []variantDocument `json:"variants,omitempty"`
}

type variantDocument struct {
	generator.PlannedVariant
	Bytes int64 `json:"bytes,omitempty"`
}

func newPlanDocument(r *generator.Result) planDocument {
	d := planDocument{Plan: r.Plan, Manifests: r.Manifests, NotShipped: r.NotShipped, Rendered: r.Rendered}
	if r.Plan == nil {
		return d
	}
	for i, c := range r.Plan.Components {
		doc := componentDocument{PlannedComponent: c}
		for _, v := range c.Variants {
			doc.Variants = append(doc.Variants, variantDocument{PlannedVariant: v})
		}
		if r.Sent != nil {
			sent := r.Sent[i]
			doc.Sent, doc.Shared = sent.Bytes, sent.Shared
			for n := range doc.Variants {
				doc.Variants[n].Bytes = sent.Variants[n]
			}
		}
		d.Components = append(d.Components, doc)
	}
	return d
}

// printPlan prints the plan of --dry-run.
func printPlan(w io.Writer, r *generator.Result) {
	p := r.Plan
	t := newColumns(w, "IMAGE", "SOURCE", "BASE", "LAYERS", "OMITTED", "UNPACKED")
	for _, c := range p.Components {
		var omitted int
		var size int64
		for _, l := range c.Layers {
			size += l.Size
			if l.Omitted {
				omitted++
			}
		}
		if c.SameAs != "" {
			t.row(c.URL, c.Source, orDash(c.Base), "the image "+c.SameAs)
			continue
		}
		if len(c.Variants) > 0 {
			for i, v := range c.Variants {
				name := c.URL
				if i > 0 {
					name = "  or"
				}
				t.row(name, c.Source, variantBase(v), fmt.Sprint(len(c.Layers)), "", bytesText(size))
			}
			continue
		}
		t.row(c.URL, c.Source, orDash(c.Base), fmt.Sprint(len(c.Layers)), fmt.Sprint(omitted), bytesText(size))
	}
	t.print()
	printComponents(w, p.Files)
	printRendered(w, r.Rendered)
	m := newColumns(w, "SHIPPED WITH IT", "SIZE")
	for _, f := range r.Manifests {
		m.row("manifests/"+f.Path, bytesText(f.Size))
	}
	m.print()
	switch {
	case len(r.NotShipped) > 0 && r.Rendered != nil:
		fmt.Fprintf(w, "not shipped, as the objects are rendered: %s\n", strings.Join(r.NotShipped, ", "))
	case len(r.NotShipped) > 0:
		fmt.Fprintf(w, "not shipped, as no service mounts or includes it: %s\n", strings.Join(r.NotShipped, ", "))
	}
	printMap(w, "depends", alternatives(p.Depends))
}

// printRendered prints the objects that were made of a kustomization.
func printRendered(w io.Writer, r *render.Rendered) {
	if r == nil {
		return
	}
	t := newColumns(w, "RENDERED FROM "+r.From, "NAMESPACE", "FILE")
	for i := range r.Objects {
		o := &r.Objects[i]
		t.row(o.String(), orDash(o.Namespace), orDash(o.Origin))
	}
	t.print()
}

// printComponents prints the components that are files.
func printComponents(w io.Writer, files []generator.PlannedFile) {
	if len(files) == 0 {
		return
	}
	t := newColumns(w, "FILE", "TYPE", "FORMAT", "BASES", "WHOLE", "SENT")
	for _, f := range files {
		sent := ""
		if f.Sent > 0 {
			sent = bytesText(f.Sent)
		}
		t.row(f.URL, f.Type, string(f.Format), orDash(strings.Join(f.Bases, ", ")), bytesText(f.Size), sent)
	}
	t.print()
}

// printMade describes a new artifact.
func printMade(w io.Writer, r *generator.Result, d *inspect.Description) {
	p := r.Plan
	if len(p.Components) > 0 {
		t := newColumns(w, "IMAGE", "BASE", "LAYERS", "UNPACKED", "WHOLE", "SENT", "SAVED")
		var whole, sent int64
		for i, c := range p.Components {
			made := r.Sent[i]
			if c.SameAs != "" {
				t.row(c.URL, orDash(c.Base), "the image "+c.SameAs)
				continue
			}
			var size int64
			for _, l := range c.Layers {
				size += l.Size
			}
			full, saved := "", ""
			if c.Format != artifact.FormatFull {
				full, saved = bytesText(c.Whole), percentSaved(c.Whole, made.Bytes)
				whole += c.Whole
			} else {
				whole += made.Bytes
			}
			sent += made.Bytes
			if len(c.Variants) > 0 {
				t.row(c.URL, fmt.Sprintf("%d ways", len(c.Variants)), fmt.Sprint(len(c.Layers)), bytesText(size), orDash(full), bytesText(made.Bytes), orDash(saved))
				for n, v := range c.Variants {
					t.row("  over", variantBase(v), "", "", "", bytesText(made.Variants[n]), "")
				}
				if made.Shared > 0 {
					t.row("  over any", "shared", "", "", "", bytesText(made.Shared), "")
				}
				continue
			}
			t.row(c.URL, orDash(c.Base), layersText(d, c.Digest), bytesText(size), orDash(full), bytesText(made.Bytes), orDash(saved))
		}
		t.print()
		if whole > sent && sent > 0 {
			fmt.Fprintf(w, "%s of images instead of %s, %s saved\n", bytesText(sent), bytesText(whole), percentSaved(whole, sent))
		}
	}
	printComponents(w, p.Files)
	printRendered(w, r.Rendered)
	fmt.Fprintln(w, manifestsText(manifestsOf(d)))
	fmt.Fprintf(w, "%s: %s, artifact %s for %s\n", d.Path, bytesText(d.Bytes), d.Name, strings.Join(d.DeviceTypes, ", "))
}

// manifestsOf are the manifests of an artifact.
func manifestsOf(d *inspect.Description) (list []manifests.Shipped) {
	for _, f := range d.Manifests {
		list = append(list, manifests.Shipped{Path: f.Path, Size: f.Size})
	}
	return list
}

// manifestsText says in one line how much the manifests are.
func manifestsText(list []manifests.Shipped) string {
	switch len(list) {
	case 0:
		return "manifests: none"
	case 1:
		return "manifests: " + manifests.Largest(list)
	}
	return fmt.Sprintf("manifests: %d files, %s; the largest: %s", len(list), bytesText(manifests.Size(list)), manifests.Largest(list))
}

// variantBase names the base that a variant of an image needs on the device.
func variantBase(v generator.PlannedVariant) string {
	if v.Base == "" {
		return "nothing (whole)"
	}
	return v.From
}

// layersText counts the layers of an image by their encoding.
func layersText(d *inspect.Description, digest image.Digest) string {
	n := map[string]int{}
	for _, img := range d.Images {
		if img.Digest != digest {
			continue
		}
		for _, l := range img.Layers {
			n[l.Encoding]++
		}
	}
	var parts []string
	for _, e := range []artifact.Encoding{artifact.EncodingOmitted, artifact.EncodingDelta, artifact.EncodingVerbatim} {
		if k := n[string(e)]; k > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", k, e))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

func percentSaved(whole, sent int64) string {
	if whole <= 0 || sent >= whole {
		return "0 %"
	}
	p := 100 * (1 - float64(sent)/float64(whole))
	return fmt.Sprintf("%.*f %%", map[bool]int{true: 2, false: 1}[p > 99], p)
}

func bytesText(n int64) string { return inspect.Bytes(n) }

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// signatures says that there are several.
func signatures(n int) string {
	if n < 2 {
		return ""
	}
	return fmt.Sprintf(", %d signatures", n)
}

func counted(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

func printDescription(w io.Writer, d *inspect.Description) {
	printHeader(w, d)
	fmt.Fprintln(w)
	t := newColumns(w, "IMAGE", "", "", "UNPACKED", "IN THE ARTIFACT")
	for _, img := range d.Images {
		imageRows(t, img)
	}
	for _, f := range d.Manifests {
		what := ""
		if f.Link != "" {
			what = "link to " + f.Link
		}
		t.row("manifests/"+f.Path, "", what, bytesText(f.Size), "")
	}
	t.print()
	for _, msg := range d.Warnings {
		fmt.Fprintf(w, "warning: %s\n", msg)
	}
}

// printHeader prints what the header says, and what a device needs.
func printHeader(w io.Writer, d *inspect.Description) {
	m := d.Parsed()
	line := func(k, v string) {
		if v != "" {
			fmt.Fprintf(w, "%-14s %s\n", k+":", v)
		}
	}
	line("artifact", d.Name)
	line("file", fmt.Sprintf("%s, %s, compression %s", d.Path, bytesText(d.Bytes), d.Compression))
	line("device types", strings.Join(d.DeviceTypes, ", "))
	line("group", d.Group)
	line("signature", string(d.Signature))
	if s := d.Statement; s != nil {
		line("statement", string(s.Signature)+signatures(s.Signatures))
		if !s.Text.Expires.IsZero() {
			line("issued", s.Text.Issued.UTC().Format(time.RFC3339))
			line("expires", s.Text.Expires.UTC().Format(time.RFC3339))
		}
	}
	printMap(w, "provides", d.Provides)
	printMap(w, "depends", alternatives(d.Depends))
	line("depends name", strings.Join(d.DependsNames, ", "))
	line("depends group", strings.Join(d.DependsGroups, ", "))
	line("clears", strings.Join(d.ClearsProvides, ", "))
	line("scripts", strings.Join(d.Scripts, ", "))
	line("application", strings.TrimSpace(m.ApplicationName+" "+m.ApplicationVersion))
	if m.Reboot {
		line("reboot", "asks for a restart of the machine before the commit")
	}
	line("orchestrator", m.Orchestrator)
	line("platform", m.Platform)
	line("metadata", m.Version)
	line("requires", strings.Join(m.Requires, ", "))
	if r := d.Revocations; r != nil {
		line("revokes", fmt.Sprintf("list %d: %s, %s%s", r.Text.Version, counted(len(r.Text.Keys), "key"), counted(len(r.Text.Statements), "statement"), signatures(r.Signatures)))
	}
	if made := m.Made; made != nil {
		line("made by", strings.Join(slices.DeleteFunc([]string{made.By, made.Time}, func(s string) bool { return s == "" }), ", "))
		for _, o := range made.Over {
			line("made over", o.Name+" "+o.Digest.String())
		}
	}
	line("secrets for", strings.Join(m.Recipients, ", "))
	line("policy", string(m.Policy))
	printMap(w, "env", m.Env)
	if s, atMost := d.Needs(); s != nil {
		text := fmt.Sprintf("%s more in the engine, %s temporary, %s of manifests", bytesText(s.Engine), bytesText(s.Temp), bytesText(s.Manifests))
		if s.Memory > 0 {
			text += fmt.Sprintf(", %s of memory", bytesText(s.Memory))
		}
		if s.Decode > 0 {
			text += fmt.Sprintf(", %s to decode", budget.Text(s.Decode, m.Platform))
		}
		if atMost {
			text = "at most " + text
		}
		line("on the device", text)
	}
	if t := d.Times; t != nil {
		text := fmt.Sprintf("about %.1fs to download at %s", t.Download, t.Link)
		if t.Class != "" {
			text += fmt.Sprintf(", %.1fs to decode on %s", t.Decode, t.Class)
		}
		line("time", text)
	}
	if d.Level != "" {
		line("level", strings.TrimSuffix(d.Level+": "+strings.Join(d.LevelFor, "; "), ": "))
	}
	for n, r := range d.Reach {
		name := "reach"
		if n > 0 {
			name = ""
		}
		fmt.Fprintf(w, "%-14s %s: %s\n", strings.TrimPrefix(name+":", ":"), r.By, strings.Join(r.Words(), "; "))
	}
}

// imageRows describes an image with its variants, its other names and its layers.
func imageRows(t *columns, img inspect.ImageDescription) {
	what := img.Format
	switch {
	case img.Current != "":
		what += " over " + img.Current
	case img.Format == string(artifact.FormatDelta) && len(img.Bases) == 0:
		what += " over nothing"
	}
	t.row(img.URL, cmp.Or(img.Type, img.Platform), what, "", bytesText(img.Bytes))
	if img.SharedBytes > 0 {
		t.row("  shared", "", "over any of the bases", "", bytesText(img.SharedBytes))
	}
	for _, v := range img.Variants {
		over := "whole"
		if len(v.Bases) > 0 {
			over = "delta over " + v.Bases[0].URL + " " + shortDigest(v.Bases[0].Digest)
		}
		t.row("  or", "", over, fmt.Sprintf("%s temporary", bytesText(v.Temp)), bytesText(v.Bytes))
	}
	for _, url := range img.Also {
		t.row(url, cmp.Or(img.Type, img.Platform), "the image "+img.URL)
	}
	for _, l := range img.Layers {
		t.row("  "+shortDigest(l.DiffID), "", l.Encoding, bytesText(l.Size), bytesText(l.Bytes))
	}
}

// alternatives writes lists of accepted values.
func alternatives(m map[string][]string) map[string]string {
	out := map[string]string{}
	for k, v := range m {
		out[k] = strings.Join(v, " or ")
	}
	return out
}

// shortDigest shortens a digest for a table.
func shortDigest(d digest.Digest) string {
	return d.String()[:min(len(d), 19)]
}

func printMap(w io.Writer, name string, m map[string]string) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(w, "%-14s %s = %s\n", name+":", k, m[k])
		name = ""
	}
}

// columns are rows whose columns are aligned. They have no lines, so that other programs can
// read them. On a terminal, long cells are wrapped within their columns.
type columns struct {
	w    io.Writer
	rows [][]string
}

func newColumns(w io.Writer, head ...string) *columns { return &columns{w, [][]string{head}} }

func (c *columns) row(cells ...string) { c.rows = append(c.rows, cells) }

func (c *columns) print() { fmt.Fprint(c.w, table.LayOut(c.rows, table.Width(c.w))) }
