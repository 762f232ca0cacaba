package inspect

import (
	"cmp"
	"fmt"
	"io"
	"slices"
)

// DifferencePage writes what changed between two releases.
func DifferencePage(w io.Writer, d *Difference) error {
	b := newBounds()
	page := document{
		Title:  b.word(d.Old) + " → " + b.word(d.New),
		About:  "What changed from one release of an application to the next.",
		Footer: "Written by app-gen diff. The times of files do not count as changes.",
	}
	if len(d.Warnings) > 0 {
		page.Sections = append(page.Sections, section{Title: "Warnings", Items: b.words(d.Warnings)})
	}
	changed := 0
	for _, img := range d.Images {
		if img.Change != Same {
			changed++
		}
	}
	page.Figures = []fact{{"Images that differ", []string{fmt.Sprintf("%d of %d", changed, len(d.Images))}}, {"Files of manifests that differ", []string{fmt.Sprint(len(d.Manifests))}}}
	device := section{Title: "On the device", Facts: []fact{{"Time", decodingTime(d.Decoding)}}}
	manifests := section{Title: "Manifests", Tables: filesTable(b, "What the orchestrator reads", d.Manifests)}
	if len(d.Manifests) == 0 {
		manifests.Notes = []string{"No file of the manifests changed."}
	}
	page.Sections = append(page.Sections, changedImages(b, d.Images), manifests, device)
	return page.write(w)
}

func changedImages(b *bounds, list []ImageDifference) section {
	s := section{Title: "Images"}
	overview := table{Caption: "All images of both releases", Head: []cell{{Text: "Image"}, {"Change", short}}}
	left := each(b, list, func(img ImageDifference) {
		name := b.word(cmp.Or(img.New, img.Old))
		if img.Change == Changed && img.Old != img.New {
			name = b.word(img.Old) + " → " + name
		}
		overview.Rows = append(overview.Rows, row{Name: name, Cells: []cell{changeCell(img.Change)}})
		if img.Change == Changed {
			s.Parts = append(s.Parts, changedImage(b, name, img))
		}
	})
	overview.More = more(left)
	s.Tables = append(s.Tables, overview)
	return s
}

func changedImage(b *bounds, name string, img ImageDifference) section {
	s := section{Title: name, Facts: []fact{
		{"Old digest", []string{img.OldDigest.String()}}, {"New digest", []string{img.NewDigest.String()}},
	}}
	if len(img.Packages) > 0 {
		t := table{Caption: "Packages: " + counts(img.Packages, func(p PackageChange) Change { return p.Change }),
			Head: []cell{{Text: "Package"}, {"Type", short}, {"Change", short}, {Text: "Version"}}}
		t.More = more(each(b, img.Packages, func(p PackageChange) {
			version := b.word(p.Old + p.New)
			if p.Change == Changed {
				version = b.word(p.Old) + " → " + b.word(p.New)
			}
			t.Rows = append(t.Rows, row{Name: b.word(p.Name), Cells: []cell{{b.word(p.Type), short}, changeCell(p.Change), {Text: version}}})
		}))
		s.Tables = append(s.Tables, t)
	}
	s.Tables = append(s.Tables, filesTable(b, "Files", img.Files)...)
	if len(s.Tables) == 0 {
		s.Notes = []string{"No package and no file differs: the change is in the configuration of the image, or in how its layers are made."}
	}
	return s
}

// filesTable is a table of the files, the bar of each as long as the larger of its
// two sizes; none without files.
func filesTable(b *bounds, caption string, files []FileChange) []table {
	if len(files) == 0 {
		return nil
	}
	// The bounds may leave some out: not the largest.
	files = slices.Clone(files)
	size := func(f FileChange) int64 { return max(f.Old, f.New) }
	slices.SortStableFunc(files, func(a, b FileChange) int { return cmp.Compare(size(b), size(a)) })
	t := table{Caption: caption + ", the largest first: " + counts(files, func(f FileChange) Change { return f.Change }),
		Head: []cell{{Text: "File"}, {"Change", short}, {"Old size", number}, {"New size", number}}}
	t.More = more(each(b, files, func(f FileChange) {
		old, next := Bytes(f.Old), Bytes(f.New)
		switch f.Change {
		case Added:
			old = "–"
		case Removed:
			next = "–"
		}
		t.Rows = append(t.Rows, row{
			Name: b.word(f.Path), Bar: newBar(string(f.Change), size(f), size(f), size(files[0])),
			Cells: []cell{changeCell(f.Change), {old, number}, {next, number}},
		})
	}))
	return []table{t}
}

// changeCell says what happened in words, and in a colour of the same class.
func changeCell(c Change) cell { return cell{string(c), short + " " + string(c)} }

// counts says how many of a list came, went and changed.
func counts[T any](list []T, change func(T) Change) string {
	n := map[Change]int{}
	for _, v := range list {
		n[change(v)]++
	}
	return fmt.Sprintf("%d added, %d removed, %d changed", n[Added], n[Removed], n[Changed])
}
