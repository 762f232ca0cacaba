package inspect

import (
	"fmt"
	"slices"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
)

// layerHead is the head of a table of layers, whose first column has a name.
func layerHead(first string) []cell {
	return []cell{{Text: first}, {"In the artifact", number}, {"Unpacked", number}}
}

// encodingClass is the colour of an encoding.
func encodingClass(encoding string) string {
	if encoding == string(artifact.EncodingVerbatim) {
		return "whole"
	}
	return "delta"
}

// encodingText says how a layer travels.
func encodingText(encoding string) string {
	switch encoding {
	case string(artifact.EncodingVerbatim):
		return "whole"
	case string(artifact.EncodingOmitted):
		return "left out"
	}
	return encoding
}

// layersOf are the layers of an image, as its first way has them.
func layersOf(img *ImageDescription) []LayerDescription {
	if len(img.Variants) > 0 {
		return img.Variants[0].Layers
	}
	return img.Layers
}

// fileSize is the size of a component that is a file.
func fileSize(d *Description, img *ImageDescription) (int64, bool) {
	for _, c := range d.Parsed().Components {
		if c.Digest == img.Digest && c.IsFile() {
			return c.Size, true
		}
	}
	return 0, false
}

// unpacked is the size of all images and files, each layer once. It is not known of
// every artifact of the shell reference.
func unpacked(d *Description) (size int64, known bool) {
	seen := map[digest.Digest]bool{}
	for i := range d.Images {
		img := &d.Images[i]
		if n, file := fileSize(d, img); file {
			size += n
			continue
		}
		layers := layersOf(img)
		if len(layers) == 0 {
			return 0, false
		}
		for _, l := range layers {
			if l.Size < 0 {
				return 0, false
			}
			if !seen[l.DiffID] {
				seen[l.DiffID] = true
				size += l.Size
			}
		}
	}
	return size, true
}

// describeImages has a part for each image and its layers, all bars of which have
// one scale.
func describeImages(b *bounds, d *Description) section {
	s := section{Title: "Images and their layers"}
	var widest int64
	delta, shared := false, false
	first := map[digest.Digest]string{} // of a layer: the image that it is counted with
	for i := range d.Images {
		img := &d.Images[i]
		for _, l := range layersOf(img) {
			widest = max(widest, l.Size)
			if in, ok := first[l.DiffID]; !ok {
				first[l.DiffID] = img.URL
			} else if in != img.URL {
				shared = true
			}
		}
		delta = delta || img.Format != string(artifact.FormatFull) && !overNothing(img) && !unchanged(img.Digest, img.Bases)
	}
	if widest > 0 {
		s.Notes = append(s.Notes, "The outline of a bar is a layer, and the filled part is what travels of it. The lowest layer comes first.")
	}
	if shared {
		s.Notes = append(s.Notes, "A layer of several images is counted with the first of them. The others name that image.")
	}
	if delta {
		s.Notes = append(s.Notes, "Which files a delta changes is not known without what it builds on: app-gen diff names them.")
	}
	s.More = more(each(b, d.Images, func(img ImageDescription) {
		s.Parts = append(s.Parts, describeImage(b, d, &img, layerScale{widest, first}))
	}))
	return s
}

// layerScale is what the tables of all layers have in common.
type layerScale struct {
	widest int64
	first  map[digest.Digest]string // the image that a layer is counted with
}

func describeImage(b *bounds, d *Description, img *ImageDescription, scale layerScale) section {
	s := section{Title: b.word(img.URL)}
	add := func(name, value string) {
		if value != "" {
			s.Facts = append(s.Facts, fact{name, []string{b.word(value)}})
		}
	}
	add("Travels", formatText(img))
	s.addBases(b, img.Bases)
	add("In the artifact", Bytes(img.Bytes))
	if size, file := fileSize(d, img); file {
		add("Type", img.Type)
		add("Whole", Bytes(size))
	}
	add("Platform", img.Platform)
	add("Digest", img.Digest.String())
	if len(img.Also) > 0 {
		s.Facts = append(s.Facts, fact{"Also called", b.words(img.Also)})
	}
	if img.SharedBytes > 0 {
		add("Shared by its ways", Bytes(img.SharedBytes))
	}
	if len(img.Layers) > 0 {
		s.Tables = append(s.Tables, layersTable(b, "Layers", img.URL, img.Layers, scale))
	}
	s.More = more(each(b, img.Variants, func(v VariantDescription) {
		s.Tables = append(s.Tables, variantTable(b, len(s.Tables)+1, img, v, scale))
	}))
	if len(img.Largest) > 0 {
		s.Tables = append(s.Tables, largestTable(b, img.Largest))
	}
	return s
}

// addBases names what a delta builds on.
func (s *section) addBases(b *bounds, bases []artifact.Base) {
	var names []string
	for _, base := range bases {
		names = append(names, base.URL+" "+base.Digest.String())
	}
	if len(names) > 0 {
		s.Facts = append(s.Facts, fact{"Builds on", b.words(names)})
	}
}

func formatText(img *ImageDescription) string {
	switch img.Format {
	case string(artifact.FormatFull):
		return "whole"
	case string(artifact.FormatVariants):
		return fmt.Sprintf("in %d ways, of which a device takes the first that fits", len(img.Variants))
	}
	switch {
	case unchanged(img.Digest, img.Bases):
		return "unchanged: the device has it"
	case img.Current != "":
		return img.Format + " over " + img.Current
	case overNothing(img):
		return "whole, as a delta over nothing"
	}
	return img.Format
}

// unchanged reports whether an image is one that the devices have.
func unchanged(img digest.Digest, bases []artifact.Base) bool {
	return slices.ContainsFunc(bases, func(b artifact.Base) bool { return b.Digest == img })
}

// overNothing reports whether an image is a delta that needs nothing of the device.
func overNothing(img *ImageDescription) bool {
	return img.Format == string(artifact.FormatDelta) && len(img.Bases) == 0
}

// anyWhole reports whether an image or a file travels whole.
func anyWhole(d *Description) bool {
	full := string(artifact.FormatFull)
	return slices.ContainsFunc(d.Images, func(img ImageDescription) bool {
		return img.Format == full || slices.ContainsFunc(img.Variants, func(v VariantDescription) bool { return v.Format == full })
	})
}

// wholeNote says what the bytes of whole images are, and what they become.
func wholeNote(d *Description) string {
	note := "The bytes of a whole image are those before " + artifact.ImagesPayload + " is compressed"
	for _, f := range d.Files {
		if f.Name == artifact.ImagesPayload {
			return note + ", which has " + Bytes(f.Bytes) + " in all."
		}
	}
	return note + "."
}

func layersTable(b *bounds, caption, image string, layers []LayerDescription, scale layerScale) table {
	t := table{Caption: caption, Head: layerHead("Layer")}
	t.More = more(each(b, layers, func(l LayerDescription) {
		if in := scale.first[l.DiffID]; in != image {
			t.Rows = append(t.Rows, row{Name: b.word(shortDigest(l.DiffID) + " as in " + in), Cells: []cell{{"counted there", number}, {Bytes(l.Size), number}}})
			return
		}
		t.Rows = append(t.Rows, row{
			Name:  b.word(shortDigest(l.DiffID) + " " + encodingText(l.Encoding)),
			Bar:   newBar(encodingClass(l.Encoding), l.Bytes, l.Size, scale.widest),
			Cells: []cell{{Bytes(l.Bytes), number}, {Bytes(l.Size), number}},
		})
	}))
	return t
}

// variantTable is one way of several in which an image travels.
func variantTable(b *bounds, n int, img *ImageDescription, v VariantDescription, scale layerScale) table {
	caption := fmt.Sprintf("Way %d, whole", n)
	if unchanged(img.Digest, v.Bases) {
		caption = fmt.Sprintf("Way %d, unchanged", n)
	} else if len(v.Bases) > 0 {
		caption = fmt.Sprintf("Way %d, over %s", n, b.word(v.Bases[0].URL))
	}
	caption += fmt.Sprintf(": %s in the artifact, %s of temporary files, %s of memory, %s more in the engine",
		Bytes(v.Bytes), Bytes(v.Temp), Bytes(v.Memory), Bytes(v.Engine))
	return layersTable(b, caption, img.URL, v.Layers, scale)
}

func largestTable(b *bounds, files []LargeFile) table {
	t := table{Caption: fmt.Sprintf("The largest files (%d at most)", MaxLargest), Head: []cell{{Text: "File"}, {Text: "Layer"}, {"Size", number}}}
	t.More = more(each(b, files, func(f LargeFile) {
		t.Rows = append(t.Rows, row{
			Name: b.word(f.Path), Bar: newBar("whole", f.Bytes, f.Bytes, files[0].Bytes),
			Cells: []cell{{shortDigest(f.Layer), short}, {Bytes(f.Bytes), number}},
		})
	}))
	return t
}

// shortDigest is enough of a digest to find it again on the page.
func shortDigest(d digest.Digest) string {
	hex := d.Hex()
	return hex[:min(len(hex), 12)]
}
