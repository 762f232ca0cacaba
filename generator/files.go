package generator

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/generator/bases"
)

// File is a component that is a file.
type File struct {
	Type  string   // as names.CheckType takes it, and not image
	Path  string   // of the file
	Bases []string // paths of files that devices have: it becomes a delta over each
	URL   string   // what the sub-module knows it by
}

// ParseFile reads TYPE:FILE[,CURRENT…]=URL.
func ParseFile(s string) (File, error) {
	const form = "it is TYPE:FILE[,CURRENT…]=URL, as in binary:build/tool,old/tool=/usr/bin/tool"
	typ, rest, ok := strings.Cut(s, ":")
	at := strings.LastIndexByte(rest, '=')
	if !ok || at < 0 {
		return File{}, &UsageError{Text: "not a component", Hint: form}
	}
	paths := strings.Split(rest[:at], ",")
	f := File{Type: typ, Path: paths[0], Bases: paths[1:], URL: rest[at+1:]}
	if err := names.CheckType(typ); err != nil {
		return File{}, &UsageError{Text: err.Error(), Hint: form}
	}
	if typ == artifact.ComponentImage {
		return File{}, &UsageError{Text: "an image is no file", Hint: "ship images with --image"}
	}
	if slices.Contains(paths, "") {
		return File{}, &UsageError{Text: "a file has no name", Hint: form}
	}
	if err := artifact.CheckURL(f.URL); err != nil {
		return File{}, &UsageError{Text: err.Error(), Hint: form}
	}
	return f, nil
}

// checkFiles refuses a URL that is given twice.
func checkFiles(list []File) error {
	for i, f := range list {
		if slices.ContainsFunc(list[:i], func(other File) bool { return other.URL == f.URL }) {
			return &UsageError{Text: f.URL + " is given twice, as a component", Hint: "one name is one file; a file may have several names"}
		}
	}
	return nil
}

// PlannedFile is one component that is a file.
type PlannedFile struct {
	URL    string          `json:"url"`
	Type   string          `json:"type"`
	Source string          `json:"source"`
	Bases  []string        `json:"bases,omitempty"` // paths on the build host
	Digest digest.Digest   `json:"digest"`
	Size   int64           `json:"size"`
	Format artifact.Format `json:"format"`
	SameAs string          `json:"same_as,omitempty"`    // URL of an earlier file with the same content
	Sent   int64           `json:"sent_bytes,omitempty"` // in the artifact
}

// plannedFile is a PlannedFile with what its execution needs.
type plannedFile struct {
	*PlannedFile
	whole  bool // of FormatVariants: it travels whole too
	bases  []localFile
	sameAs int // index of an earlier file with the same content; -1: none
}

// localFile is a file on the build host.
type localFile struct {
	path   string
	digest digest.Digest
	size   int64
}

func readLocal(path string) (localFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return localFile{}, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return localFile{}, &UsageError{Text: path + " is not a file with something in it"}
	}
	sum, size, err := digest.OfReader(f)
	return localFile{path, sum, size}, err
}

// image is the file as the encoder takes it.
func (l localFile) image() delta.Image {
	return delta.Image{Name: bases.FilePrefix + "component", Objects: []delta.Object{{
		Digest: l.digest, Size: l.size, Kind: delta.Blob, Open: func() (io.ReadCloser, error) { return os.Open(l.path) },
	}}}
}

// planFiles reads the files and adds them to the plan.
func (r *run) planFiles(p *plan) error {
	list := make([]PlannedFile, len(r.Images.Files))
	for i, f := range r.Images.Files {
		for _, c := range p.Components {
			if c.URL == f.URL {
				return &UsageError{Text: f.URL + " is an image and a file", Hint: "one name is one component"}
			}
		}
		this, err := readLocal(f.Path)
		if err != nil {
			return err
		}
		list[i] = PlannedFile{URL: f.URL, Type: f.Type, Source: f.Path, Bases: f.Bases, Digest: this.digest, Size: this.size, Format: artifact.FormatFull}
		planned := plannedFile{PlannedFile: &list[i], sameAs: -1}
		for _, path := range f.Bases {
			base, err := readLocal(path)
			if err != nil {
				return fmt.Errorf("base of %s: %w", f.URL, err)
			}
			if !slices.ContainsFunc(planned.bases, func(b localFile) bool { return b.digest == base.digest }) {
				planned.bases = append(planned.bases, base)
			}
		}
		for n := range i {
			if list[n].Digest == this.digest {
				if list[n].Type != f.Type {
					return &UsageError{Text: fmt.Sprintf("%s and %s are the same file with different types", list[n].URL, f.URL)}
				}
				planned.sameAs, list[i].SameAs = n, list[n].URL
				break
			}
		}
		planned.whole = len(planned.bases) > 0 && r.Images.Fallback
		switch {
		case len(planned.bases) > 1 || planned.whole:
			list[i].Format = artifact.FormatVariants
		case len(planned.bases) == 1:
			list[i].Format = artifact.FormatDelta
		}
		if len(planned.bases) > 0 {
			p.Version = artifact.VersionCurrent
		}
		p.files = append(p.files, planned)
	}
	p.Files = list
	return nil
}

// file makes the deltas of a file, one over each of its bases.
func (m *deltaMaker) file(ctx context.Context, f *plannedFile) (made []*encodedDelta, err error) {
	if f.sameAs >= 0 {
		return nil, nil
	}
	for _, base := range f.bases {
		d, err := m.encode(ctx, f.URL, false, []delta.Image{base.image()}, f.local().image())
		if err != nil {
			for _, d := range made {
				d.remove()
			}
			return nil, fmt.Errorf("over %s: %w", base.path, err)
		}
		made = append(made, d)
	}
	return made, nil
}

// local is the file as it is on the build host.
func (f *plannedFile) local() localFile { return localFile{f.Source, f.Digest, f.Size} }

// travelsWhole reports whether the file itself is in the artifact.
func (f *plannedFile) travelsWhole() bool { return len(f.bases) == 0 || f.whole }

// describe is the component of a file. It adds to sizes what the file takes, unless
// its variants say that.
func (f *plannedFile) describe(made []*encodedDelta, platform image.Platform, sizes *artifact.Sizes) artifact.Component {
	c := artifact.Component{URL: f.URL, Type: f.Type, Digest: f.Digest, Platform: platform.String(), Size: f.Size, Format: f.Format}
	for n, d := range made {
		base := f.bases[n]
		bases := []artifact.Base{{URL: f.URL, Digest: base.digest, Size: base.size}}
		if f.Format == artifact.FormatVariants {
			c.Variants = append(c.Variants, artifact.Variant{
				Format: artifact.FormatDelta, Bases: bases, PayloadBytes: d.size(), Memory: d.report.Header.Memory, Engine: f.Size, Decode: d.decode(),
			})
		} else {
			c.Bases = bases
			sizes.Memory = max(sizes.Memory, d.report.Header.Memory)
			sizes.Decode += d.decode()
		}
		c.PayloadBytes += d.size()
	}
	if f.travelsWhole() {
		c.PayloadBytes += f.Size
	}
	switch {
	case f.whole:
		c.Variants = append(c.Variants, artifact.Variant{Format: artifact.FormatFull, PayloadBytes: f.Size, Engine: f.Size})
	case f.Format != artifact.FormatVariants:
		sizes.Engine += f.Size
	}
	return c
}

// file packs component i, a file: nothing if an earlier one has the same content.
func (pack *imagesPacker) file(ctx context.Context, i int, f *plannedFile, made []*encodedDelta) error {
	if f.sameAs >= 0 {
		return nil
	}
	e := entry{image: i, variant: -1}
	info := artifact.ImageInfo{Digest: f.Digest, URLNew: f.URL, URLCurrent: f.URL, SumNew: f.Digest, SumCurrent: f.Digest}
	for n, d := range made {
		info.Kind = artifact.KindDelta
		if f.Format == artifact.FormatVariants {
			info.Variant = n + 1
		} else {
			info.SumCurrent = f.bases[n].digest
		}
		if err := pack.addDelta(e, info, d); err != nil {
			return err
		}
	}
	if !f.travelsWhole() {
		return nil
	}
	file, err := os.Open(f.Source)
	if err != nil {
		return err
	}
	defer file.Close()
	info.Kind, info.Variant = artifact.KindFull, 0
	if f.whole {
		info.Variant = -1
	}
	return pack.add(e, info, f.Size, metered.Reader(ctx, file, metered.Sum(func(n int64) { pack.tell("encode", f.URL, n, f.Size) })))
}
