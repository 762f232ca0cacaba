package places

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"

	"github.com/minio/minio-go/v7"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/metered"
)

// notes is where a place that has directories keeps its notes, NAME.json.
const notes = "made"

// maxNote bounds a note, in bytes.
const maxNote = 1 << 20

// Contents is a place with the content of artifacts: files that are named by the 64 hex
// digits of their SHA-256. It also keeps notes, small texts about some of the files. Several
// processes may use it at once.
type Contents struct {
	Place
	kind contents
}

// contents is how a kind of place keeps content. A file or a note that is not there is an
// fs.ErrNotExist.
type contents interface {
	// size is that of content in bytes; -1 if the place does not say it.
	size(ctx context.Context, c artifact.Content) (int64, error)
	open(ctx context.Context, c artifact.Content) (io.ReadCloser, error)
	// write writes content: whole, or not at all.
	write(ctx context.Context, c artifact.Content, from io.ReaderAt, moved func(int64)) error
	note(ctx context.Context, name string) ([]byte, error)
	// setNote writes a note. In a registry it keeps the content that it is about.
	setNote(ctx context.Context, name string, text []byte, about []artifact.Content) error
}

// OpenContents finds out what a text names ([Forms]). It connects to nothing.
func OpenContents(text string) (*Contents, error) {
	p, err := Open(text)
	if err != nil {
		return nil, err
	}
	switch p := p.(type) {
	case directory:
		return &Contents{p, named{p, p.sizeOf, directory(filepath.Join(string(p), notes))}}, nil
	case *bucket:
		below := *p
		below.prefix = path.Join(p.prefix, notes)
		return &Contents{p, named{p, p.sizeOf, &below}}, nil
	case *web:
		below := *p
		below.url = p.url.JoinPath(notes)
		return &Contents{p, named{p, p.sizeOf, &below}}, nil
	}
	return &Contents{p, blobs{p.(registry)}}, nil
}

// Source is the URL below which devices find the content of a registry; "" for other kinds
// of places, whose URL only their owner knows.
func (c *Contents) Source() string {
	if r, ok := c.Place.(registry); ok {
		scheme := "https"
		if r.repo.Insecure {
			scheme = "http"
		}
		return fmt.Sprintf("%s://%s/v2/%s/blobs", scheme, r.repo.RegistryStr(), r.repo.RepositoryStr())
	}
	return ""
}

// Directory is the path of a place that is a directory; "" for others.
func (c *Contents) Directory() string {
	d, _ := c.Place.(directory)
	return string(d)
}

// Has returns an error unless the place has content of the size: an fs.ErrNotExist, or an
// artifact.ErrOtherContent. It does not read it, unless a server does not say the size.
func (c *Contents) Has(ctx context.Context, content artifact.Content) error {
	known := true
	err := tried(ctx, content.Digest.Hex(), func(ctx context.Context, _ func(int64)) error {
		n, err := c.kind.size(ctx, content)
		if known = n >= 0; err == nil && known && n != content.Size {
			err = artifact.ErrOtherContent
		}
		return err
	})
	if err == nil && !known {
		return c.Compare(ctx, content)
	}
	return err
}

// Compare reads content to its end, and returns an error unless it is what its name says:
// an fs.ErrNotExist, or an artifact.ErrOtherContent.
func (c *Contents) Compare(ctx context.Context, content artifact.Content) error {
	return tried(ctx, content.Digest.Hex(), func(ctx context.Context, moved func(int64)) error {
		r, err := c.kind.open(ctx, content)
		if err != nil {
			return err
		}
		defer r.Close()
		return content.Compare(ctx, metered.Reader(ctx, r, moved))
	})
}

// Download writes content to a file, and compares it.
func (c *Contents) Download(ctx context.Context, content artifact.Content, to *os.File) error {
	return tried(ctx, content.Digest.Hex(), func(ctx context.Context, moved func(int64)) error {
		r, err := c.kind.open(ctx, content)
		if err != nil {
			return err
		}
		defer r.Close()
		if _, err := to.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if err := to.Truncate(0); err != nil {
			return err
		}
		return content.Compare(ctx, io.TeeReader(metered.Reader(ctx, r, moved), to))
	})
}

// Add writes the file at path to the place, unless it is there. A directory is read to find
// out; elsewhere the size tells.
func (c *Contents) Add(ctx context.Context, content artifact.Content, path string) (there bool, err error) {
	look := c.Has
	if c.Directory() != "" {
		look = c.Compare
	}
	if err := look(ctx, content); err == nil {
		return true, nil
	} else if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, artifact.ErrOtherContent) {
		return false, err
	}
	return false, c.Write(ctx, content, path)
}

// Write writes the file at path to the place, over what is there.
func (c *Contents) Write(ctx context.Context, content artifact.Content, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return tried(ctx, content.Digest.Hex(), func(ctx context.Context, moved func(int64)) error { return c.kind.write(ctx, content, f, moved) })
}

// Note reads a note. The error wraps fs.ErrNotExist if there is none of the name.
func (c *Contents) Note(ctx context.Context, name string) (text []byte, err error) {
	err = tried(ctx, name, func(ctx context.Context, _ func(int64)) error {
		text, err = c.kind.note(ctx, name)
		return err
	})
	return text, err
}

// SetNote writes a note. The content that it is about is there.
func (c *Contents) SetNote(ctx context.Context, name string, text []byte, about []artifact.Content) error {
	if len(text) > maxNote {
		return fmt.Errorf("a note of %d bytes", len(text))
	}
	return tried(ctx, name, func(ctx context.Context, _ func(int64)) error { return c.kind.setNote(ctx, name, text, about) })
}

// ImageName is an image: its name in a registry, and the digest of its config.
type ImageName struct {
	URL      string
	Config   digest.Digest
	Platform string
}

// Keep prevents a registry from collecting content as garbage, until somebody deletes the
// tag NAME.content. The content refers to the first of the images that is in the same
// repository: a registry that knows referrers copies and deletes it with that image. Other
// places keep what they have.
func (c *Contents) Keep(ctx context.Context, name string, all []artifact.Content, images []ImageName) error {
	r, ok := c.kind.(blobs)
	if !ok {
		return nil
	}
	return tried(ctx, name, func(ctx context.Context, _ func(int64)) error {
		subject, err := r.find(ctx, images)
		if err != nil {
			return err
		}
		return r.tagged(ctx, name+keeps, contentType, []byte("{}"), all, subject)
	})
}

// named is a place whose files have any name.
type named struct {
	place  Place
	sizeOf func(ctx context.Context, name string) (int64, error)
	notes  Place
}

func (n named) size(ctx context.Context, c artifact.Content) (int64, error) {
	return n.sizeOf(ctx, c.Digest.Hex())
}

func (n named) open(ctx context.Context, c artifact.Content) (io.ReadCloser, error) {
	return n.place.Open(ctx, c.Digest.Hex())
}

func (n named) write(ctx context.Context, c artifact.Content, from io.ReaderAt, moved func(int64)) error {
	return n.place.put(ctx, c.Digest.Hex(), from, c.Size, moved)
}

func (n named) note(ctx context.Context, name string) ([]byte, error) {
	r, err := n.notes.Open(ctx, name+".json")
	if err != nil {
		return nil, err
	}
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, maxNote+1))
	if err == nil && len(text) > maxNote {
		err = &Error{Text: fmt.Sprintf("%s: the note %s has more than %d bytes", n.place, name, maxNote)}
	}
	return text, err
}

func (n named) setNote(ctx context.Context, name string, text []byte, _ []artifact.Content) error {
	return n.notes.put(ctx, name+".json", bytes.NewReader(text), int64(len(text)), func(int64) {})
}

func (d directory) sizeOf(_ context.Context, name string) (int64, error) {
	st, err := os.Stat(filepath.Join(string(d), name))
	if err != nil {
		return 0, err
	}
	if !st.Mode().IsRegular() {
		return 0, artifact.ErrOtherContent
	}
	return st.Size(), nil
}

func (b *bucket) sizeOf(ctx context.Context, name string) (int64, error) {
	o, err := b.client.StatObject(ctx, b.name, b.key(name), minio.StatObjectOptions{})
	return o.Size, b.explain(err)
}

func (w *web) sizeOf(ctx context.Context, name string) (int64, error) {
	answer, err := w.ask(ctx, http.MethodHead, name, nil, 0)
	if err != nil {
		return 0, err
	}
	return answer.ContentLength, answer.Body.Close()
}
