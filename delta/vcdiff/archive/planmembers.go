package archive

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/delta/vcdiff"
)

// Bounds of what a delta may hold. An image has at most 127 layers in Docker,
// each with three files or so.
const (
	maxMembers = 4096
	maxName    = 255
	maxNote    = 4 << 10
)

// The names that the generator adds.
const (
	deltaSuffix   = ".vcdiff"
	currentSuffix = ".current.sha256sum"
	newSuffix     = ".new.sha256sum"
	sameSuffix    = ".sha256sum"
	sourceSuffix  = ".source"
	layerName     = "layer.tar"
	blobDir       = "blobs/sha256/"
)

// An Archive is a deep delta, and the plan of what it gives. It is not safe
// for concurrent use.
type Archive struct {
	Format Format
	// Members is in the order of the delta, which is none in particular.
	Members []Member
	// Options are what deltas are decoded with; set them before Open.
	Options vcdiff.Options

	delta io.ReaderAt
	dec   *vcdiff.Reader // kept for the next member
	busy  bool
}

// entry is a file of the delta's tar.
type entry struct {
	name, link string
	off, size  int64
}

// Plan reads the delta archive of size bytes and tells what it gives. It
// reads headers and notes only, and of each layer's delta the headers; its
// memory does not depend on the archive's size. Names that leave the archive,
// special files, files that come twice, and layers whose notes are missing or
// contradict each other are refused with ErrInvalid.
func Plan(delta io.ReaderAt, size int64) (*Archive, error) {
	a := &Archive{delta: delta, Format: DockerArchive}
	entries, order, err := index(delta, size)
	if err != nil {
		return nil, err
	}
	if _, ok := entries["oci-layout"]; ok {
		a.Format = OCILayout
	}
	p := &planner{a: a, entries: entries}
	for _, name := range order {
		if err := p.add(name); err != nil {
			return nil, err
		}
	}
	seen := map[string]bool{}
	for _, m := range a.Members {
		if seen[m.Name] {
			return nil, fmt.Errorf("%w: %s comes twice", ErrInvalid, m.Name)
		}
		seen[m.Name] = true
	}
	return a, nil
}

// index reads the tar's headers.
func index(delta io.ReaderAt, size int64) (map[string]entry, []string, error) {
	sec := io.NewSectionReader(delta, 0, size)
	tr := tar.NewReader(sec)
	entries := map[string]entry{}
	var order []string
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return entries, order, nil
		}
		if err != nil {
			if errors.Is(err, tar.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = fmt.Errorf("%w: %w", ErrInvalid, err)
			}
			return nil, nil, fmt.Errorf("read deep delta: %w", err)
		}
		if h.Typeflag == tar.TypeDir || h.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		name, err := local(h.Name)
		if err != nil {
			return nil, nil, err
		}
		e := entry{name: name, size: h.Size}
		switch h.Typeflag {
		case tar.TypeReg:
			for key := range h.PAXRecords {
				if strings.HasPrefix(key, "GNU.sparse") {
					return nil, nil, fmt.Errorf("%w: %s is sparse", ErrInvalid, name)
				}
			}
		case tar.TypeSymlink:
			e.link, e.size = h.Linkname, 0
			if e.link == "" {
				return nil, nil, fmt.Errorf("%w: %s leads nowhere", ErrInvalid, name)
			}
		default:
			return nil, nil, fmt.Errorf("%w: %s is neither a file nor a link (type %q)", ErrInvalid, name, h.Typeflag)
		}
		// The tar reader does not read ahead: its input stands at the content.
		if e.off, err = sec.Seek(0, io.SeekCurrent); err != nil {
			return nil, nil, err
		}
		if e.size > size-e.off {
			return nil, nil, fmt.Errorf("%w: %s is cut off", ErrInvalid, name)
		}
		if _, ok := entries[name]; ok {
			return nil, nil, fmt.Errorf("%w: %s comes twice", ErrInvalid, name)
		}
		if len(order) == maxMembers {
			return nil, nil, fmt.Errorf("%w: more than %d files", ErrInvalid, maxMembers)
		}
		entries[name] = e
		order = append(order, name)
	}
}

// local makes a member's name clean; it must stay inside the archive.
func local(name string) (string, error) {
	clean := path.Clean(name)
	if name == "" || len(name) > maxName || path.IsAbs(clean) || clean == "." || clean == ".." ||
		strings.HasPrefix(clean, "../") || strings.ContainsAny(name, "\x00\\") ||
		slices.Contains(strings.Split(name, "/"), "..") {
		return "", fmt.Errorf("%w: name %.300q", ErrInvalid, name)
	}
	return clean, nil
}

// follow gives where a symlink leads, seen from the archive's root.
func follow(e entry) (string, error) {
	to := path.Join(path.Dir(e.name), e.link)
	if path.IsAbs(e.link) || len(e.link) > maxName || to == ".." || strings.HasPrefix(to, "../") {
		return "", fmt.Errorf("%w: %s leads to %.300q", ErrInvalid, e.name, e.link)
	}
	return to, nil
}

type planner struct {
	a       *Archive
	entries map[string]entry
}

// add makes of a file of the delta a member of the image, if it is one.
func (p *planner) add(name string) error {
	e := p.entries[name]
	if e.link != "" {
		to, err := follow(e)
		if err != nil {
			return err
		}
		p.a.Members = append(p.a.Members, Member{Name: name, Kind: Symlink, Link: to, target: e.link})
		return nil
	}
	var m Member
	var err error
	base, isDelta := strings.CutSuffix(name, deltaSuffix)
	switch {
	case p.a.Format == DockerArchive && isDelta && path.Base(base) == layerName:
		m, err = p.layer(base, e)
	case p.a.Format == OCILayout && isDelta && blobName(base) != "":
		m, err = p.blob(base, e)
	case p.isNote(name):
		return nil
	case p.a.Format == DockerArchive && path.Base(name) == layerName+sameSuffix:
		m = Member{Name: strings.TrimSuffix(name, sameSuffix), Kind: Unchanged, Size: -1}
		m.SHA256, err = p.digest(name)
		m.Source = m.SHA256
	case isDelta:
		return fmt.Errorf("%w: %s is a delta of something else than a layer", ErrInvalid, name)
	default:
		m = Member{Name: name, Kind: Verbatim, Size: e.size, off: e.off, size: e.size, SHA256: blobName(name)}
	}
	if err != nil {
		return err
	}
	p.a.Members = append(p.a.Members, m)
	return nil
}

// isNote reports whether name is a note about a layer or blob that is there. A
// note about nothing counts as a file of the image: it does no harm there.
func (p *planner) isNote(name string) bool {
	if p.a.Format == OCILayout {
		base, ok := strings.CutSuffix(name, sourceSuffix)
		// Where xdelta3 failed the generator left the blob and noted a source.
		return ok && blobName(base) != "" && (p.has(base) || p.has(base+deltaSuffix))
	}
	for _, suffix := range []string{currentSuffix, newSuffix} {
		if base, ok := strings.CutSuffix(name, suffix); ok && p.has(base+deltaSuffix) {
			return path.Base(base) == layerName
		}
	}
	return false
}

func (p *planner) has(name string) bool {
	_, ok := p.entries[name]
	return ok
}

// layer plans a layer of a docker-archive.
func (p *planner) layer(name string, e entry) (m Member, err error) {
	m = Member{Name: name, Kind: Delta, off: e.off, size: e.size}
	if m.SHA256, err = p.digest(name + newSuffix); err != nil {
		return m, err
	}
	if m.Source, err = p.digest(name + currentSuffix); err != nil {
		return m, err
	}
	names, err := p.scan(&m)
	if err != nil {
		return m, err
	}
	return m, recompressed(m, names)
}

// blob plans a blob of an OCI layout.
func (p *planner) blob(name string, e entry) (m Member, err error) {
	m = Member{Name: name, Kind: Delta, off: e.off, size: e.size, SHA256: blobName(name)}
	note, err := p.note(name + sourceSuffix)
	if err != nil {
		return m, err
	}
	clean, err := local(note)
	if err != nil {
		return m, fmt.Errorf("%s%s: %w", name, sourceSuffix, err)
	}
	if m.Source = blobName(clean); m.Source == "" {
		return m, fmt.Errorf("%w: %s%s names %q", ErrInvalid, name, sourceSuffix, note)
	}
	names, err := p.scan(&m)
	if err != nil {
		return m, err
	}
	// When a blob occurs twice in the new image, the generator makes its
	// delta once and then overwrites the note with another blob's name. The
	// delta itself says what it was made against.
	if isDigest(names.Source) {
		m.Source = names.Source
	}
	if m.Source == m.SHA256 {
		m.Kind, m.Size, m.sourceEnd = Unchanged, -1, 0
		return m, nil
	}
	return m, recompressed(m, names)
}

// scan reads the headers of a member's delta.
func (p *planner) scan(m *Member) (vcdiff.Names, error) {
	info, err := vcdiff.Scan(io.NewSectionReader(p.a.delta, m.off, m.size))
	if err != nil {
		return vcdiff.Names{}, fmt.Errorf("%s%s: %w", m.Name, deltaSuffix, err)
	}
	m.Size, m.sourceEnd = info.Target, info.SourceEnd
	names, _ := info.Names()
	return names, nil
}

// recompressed refuses a delta between compressed layers.
func recompressed(m Member, n vcdiff.Names) error {
	if n.TargetCompressed == "" && n.SourceCompressed == "" {
		return nil
	}
	return fmt.Errorf("%s: %w: make the artifact anew with this project's app-gen", m.Name, ErrRecompressed)
}

// note reads a small file of the delta, without the line's end.
func (p *planner) note(name string) (string, error) {
	e, ok := p.entries[name]
	if !ok || e.link != "" {
		return "", fmt.Errorf("%w: no %s", ErrInvalid, name)
	}
	if e.size > maxNote {
		return "", fmt.Errorf("%w: %s has %d bytes", ErrInvalid, name, e.size)
	}
	b := make([]byte, e.size)
	if _, err := io.ReadFull(io.NewSectionReader(p.a.delta, e.off, e.size), b); err != nil {
		return "", fmt.Errorf("read %s: %w", name, err)
	}
	return strings.TrimRight(string(b), "\r\n"), nil
}

// digest reads a note that holds a SHA-256.
func (p *planner) digest(name string) (string, error) {
	s, err := p.note(name)
	if err == nil && !isDigest(s) {
		err = fmt.Errorf("%w: %s holds %.100q", ErrInvalid, name, s)
	}
	return s, err
}

// blobName gives the digest in an OCI blob's path, "" if it is not one.
func blobName(name string) string {
	s, ok := strings.CutPrefix(name, blobDir)
	if !ok || !isDigest(s) {
		return ""
	}
	return s
}

func isDigest(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == ""
}
