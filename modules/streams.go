package modules

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Stream is one file of the payload, read as it arrives. The caller closes it.
type Stream struct {
	Name string // a plain file name
	io.ReadCloser
}

// Streams gives the payload's files in their order, each once.
type Streams interface {
	// Next opens the next file. The previous one must be closed. After the last file
	// every call returns io.EOF.
	Next() (*Stream, error)
}

// Streams returns the payload as the client offers it in Download (sizes
// false) and DownloadWithFileSizes (sizes true).
func (t *Tree) Streams(sizes bool) Streams {
	t.streams = &pipes{tree: t, sizes: sizes}
	return t.streams
}

type pipes struct {
	tree  *Tree
	sizes bool
	end   error
	offer *offer // the next one; nil before the first call
	asked bool   // stream-next was read, but the file it named has not been opened
}

// Next reads stream-next, which names one file each time the client opens it. An
// empty answer is the end.
func (p *pipes) Next() (*Stream, error) {
	if p.end != nil {
		return nil, p.end
	}
	s, err := p.next()
	if err != nil {
		p.end = err
	}
	return s, err
}

func (p *pipes) next() (*Stream, error) {
	if p.offer == nil {
		o, err := awaitOffer(p.tree.dir)
		if err != nil {
			return nil, fmt.Errorf("payload: %w", err)
		}
		p.offer = o
	}
	data, err := p.offer.read()
	if err != nil {
		return nil, fmt.Errorf("payload: %w", err)
	}
	p.asked = true
	line := strings.TrimSuffix(string(data), "\n")
	if line == "" {
		p.close()
		return nil, io.EOF
	}
	name, err := parseNext(line, p.sizes)
	if err != nil {
		return nil, err
	}
	// Before the client can make the offer after this one: see offer.
	following, err := awaitOffer(p.tree.dir)
	if err != nil {
		return nil, fmt.Errorf("payload: %w", err)
	}
	p.offer.close()
	p.offer = following
	r, err := os.Open(filepath.Join(p.tree.dir, "streams", name))
	if err != nil {
		return nil, fmt.Errorf("payload %s: %w", name, err)
	}
	p.asked = false
	return &Stream{Name: name, ReadCloser: r}, nil
}

// close closes the offer.
func (p *pipes) close() {
	if p.offer != nil {
		p.offer.close()
		p.offer = nil
	}
}

// parseNext reads "streams/NAME" or "streams/NAME SIZE".
func parseNext(line string, sizes bool) (name string, err error) {
	name = line
	if sizes {
		i := strings.LastIndexByte(line, ' ')
		if i < 0 {
			return "", fmt.Errorf("payload: no size in %q", line)
		}
		name = line[:i]
		if _, err := strconv.ParseUint(line[i+1:], 10, 63); err != nil {
			return "", fmt.Errorf("payload: bad size in %q", line)
		}
	}
	name, ok := strings.CutPrefix(name, "streams/")
	if !ok || !plainName(name) {
		return "", fmt.Errorf("payload: bad name in %q", line)
	}
	return name, nil
}

func plainName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00")
}

// StoredFiles returns the payload's files where the client has stored them.
func (t *Tree) StoredFiles() (Streams, error) {
	dir, ok := t.Files()
	if !ok {
		return nil, errors.New("the client has stored no payload")
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	s := &stored{dir: dir}
	for _, e := range entries {
		if e.Type().IsRegular() {
			s.names = append(s.names, e.Name())
		}
	}
	return s, nil
}

type stored struct {
	dir   string
	names []string // sorted
}

func (s *stored) Next() (*Stream, error) {
	if len(s.names) == 0 {
		return nil, io.EOF
	}
	name := s.names[0]
	s.names = s.names[1:]
	f, err := os.Open(filepath.Join(s.dir, name))
	if err != nil {
		return nil, err
	}
	return &Stream{Name: name, ReadCloser: f}, nil
}
