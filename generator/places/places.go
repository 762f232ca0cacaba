// Package places reaches the places where a build host keeps files: a directory, a web
// server, an S3 bucket, or a repository of a registry. A name in a place is written once,
// so that two jobs with the same release cannot replace each other's file.
//
// It knows names and bytes alone, and nothing of what is in a file.
package places

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/input"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/artifact/output"
	"github.com/mender-app/mender-app/artifact/scratch"
	"github.com/mender-app/mender-app/generator/requests"
)

// Forms says how a place is named, for messages and help.
const Forms = "a directory, an https URL, s3://BUCKET/PREFIX or oci:HOST/REPOSITORY"

// Bounds of a place.
const (
	maxFiles = 10_000
	maxTags  = 200_000 // of a registry
	// stalled is how long a server may take for progress bytes, and whole for a file.
	stalled  = time.Minute
	progress = 16 << 10
	whole    = 4 * time.Hour
	attempts = 3
)

// Place is where files are kept. A file's name is one word, without slashes.
type Place interface {
	// String is the text that the place was opened with, without the user, password and token
	// of a URL.
	String() string
	// List names the files, in any order. A place without any file yet has none. In a
	// registry, and on a web server, these are the releases (FILE.mender) alone.
	List(ctx context.Context) ([]string, error)
	// Open reads a file to its end. The error wraps fs.ErrNotExist if there is none of
	// the name. The caller closes it.
	Open(ctx context.Context, name string) (io.ReadCloser, error)
	// put writes a file that is not there: whole, or not at all. It calls moved with the
	// bytes that it read.
	put(ctx context.Context, name string, from io.ReaderAt, size int64, moved func(int64)) error
}

// Error says what is wrong with a place, and what to do about it. Nothing comes of trying
// again.
type Error struct {
	Text, Hint string
	Err        error
}

func (e *Error) Error() string {
	if e.Err != nil {
		return e.Text + ": " + e.Err.Error()
	}
	return e.Text
}

func (e *Error) Unwrap() error { return e.Err }

// Advice is the hint.
func (e *Error) Advice() string { return e.Hint }

// Remote reports whether a text names a place that is not a directory here.
func Remote(text string) bool {
	return strings.Contains(text, "://") || strings.HasPrefix(text, registryPrefix)
}

// Open finds out what a text names ([Forms]). It connects to nothing.
func Open(text string) (Place, error) {
	if repository, ok := strings.CutPrefix(text, registryPrefix); ok {
		return openRegistry(text, repository)
	}
	if !Remote(text) {
		return directory(text), nil
	}
	shown := input.Source(text)
	u, err := url.Parse(text)
	if err != nil {
		return nil, &Error{Text: shown.String() + " is not a URL"}
	}
	switch {
	case u.Scheme == "s3":
		return openBucket(shown, u)
	case u.Scheme == "https", u.Scheme == "http" && requests.Loopback(u.Hostname()):
		return openWeb(shown, u)
	}
	return nil, &Error{Text: shown.String() + " is not a place of releases", Hint: "it is " + Forms + "; http is for this machine alone"}
}

// release is the end of a release's name.
const release = ".mender"

// check refuses a name that is not that of a file in one directory.
func check(name string) error {
	if name == "" || len(name) > 255 || strings.HasPrefix(name, ".") || strings.ContainsAny(name, "/\\\x00\r\n") {
		return &Error{Text: fmt.Sprintf("%q is not the name of a file", name[:min(len(name), 100)])}
	}
	return nil
}

// listing is how long a server may take to name its files.
const listing = 2 * time.Minute

// Releases names the releases in a place, FILE.mender, within two minutes.
func Releases(ctx context.Context, p Place) ([]string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, listing, fmt.Errorf("the server did not name its releases in %s", listing))
	defer cancel()
	names, err := p.List(ctx)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return slices.DeleteFunc(names, func(n string) bool { return !strings.HasSuffix(n, release) }), err
}

// Download writes a file of a place to a path. It tries again when the connection is cut,
// and gives up a server that sends less than 16 KiB in a minute, or takes longer than four
// hours in all. tell gets the bytes so far.
func Download(ctx context.Context, p Place, name, path string, tell func(done int64)) error {
	return tried(ctx, name, func(ctx context.Context, moved func(int64)) error { return download(ctx, p, name, path, moved, tell) })
}

// tried does something with a file, and does it again if that may help. It ends when less
// than 16 KiB moved in a minute, or all tries together take longer than four hours; moved
// gets the bytes that moved.
func tried(ctx context.Context, file string, do func(ctx context.Context, moved func(int64)) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, whole, fmt.Errorf("%s took longer than %s in all", file, whole))
	defer cancel()
	for try := 1; ; try++ {
		err := once(ctx, do)
		if err == nil || ctx.Err() != nil || final(err) || try == attempts {
			return err
		}
	}
}

func once(ctx context.Context, do func(ctx context.Context, moved func(int64)) error) error {
	ctx, moved, stop := watched(ctx)
	defer stop()
	err := do(ctx, moved)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// final reports whether an error would be the same the next time.
func final(err error) bool {
	var place *Error
	var local *fs.PathError
	return errors.As(err, &place) || errors.As(err, &local) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) || errors.Is(err, artifact.ErrOtherContent)
}

func download(ctx context.Context, p Place, name, path string, moved, tell func(int64)) (err error) {
	body, err := p.Open(ctx, name)
	if err != nil {
		return err
	}
	defer body.Close()
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			os.Remove(path)
		}
	}()
	sum := metered.Sum(tell)
	_, err = io.Copy(scratch.Sparing(f), metered.Reader(ctx, body, func(n int64) { moved(n); sum(n) }))
	return err
}

// watched returns a context that ends when less than 16 KiB moved in a minute. moved gets
// the bytes that moved. The caller calls stop.
func watched(ctx context.Context) (_ context.Context, moved func(int64), stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(stalled, func() { cancel(fmt.Errorf("less than %d KiB moved in %s", progress>>10, stalled)) })
	var since atomic.Int64
	moved = func(n int64) {
		if since.Add(n) >= progress {
			since.Store(0)
			timer.Reset(stalled)
		}
	}
	return ctx, moved, func() { timer.Stop(); cancel(nil) }
}

// Put adds the file at path to a place, under a name. there reports that the place has
// the same content already, as after a job that is run again. Other content under the name
// is an error, and stays. tell gets the bytes so far.
func Put(ctx context.Context, p Place, name, path string, tell func(done int64)) (there bool, err error) {
	if err := check(name); err != nil {
		return false, err
	}
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	if !info.Mode().IsRegular() {
		return false, &Error{Text: path + " is not a regular file"}
	}
	err = tried(ctx, name, func(ctx context.Context, moved func(int64)) (err error) {
		there, err = put(ctx, p, name, f, info.Size(), moved, tell)
		return err
	})
	return there, err
}

func put(ctx context.Context, p Place, name string, f io.ReaderAt, size int64, moved, tell func(int64)) (there bool, err error) {
	body, err := p.Open(ctx, name)
	switch {
	case err == nil:
		same, err := equal(metered.Reader(ctx, body, moved), io.NewSectionReader(f, 0, size))
		body.Close()
		if err != nil {
			return false, err
		}
		if !same {
			return false, &Error{Text: fmt.Sprintf("%s has another %s", p, name), Hint: "give the release a new name; devices may have the one that is there"}
		}
		there = true
	case errors.Is(err, fs.ErrNotExist):
		sum := metered.Sum(tell)
		if err := p.put(ctx, name, f, size, func(n int64) { moved(n); sum(n) }); err != nil {
			return false, err
		}
	default:
		return false, err
	}
	if l, ok := p.(interface {
		enlist(ctx context.Context, name string) error
	}); ok && strings.HasSuffix(name, release) {
		return there, l.enlist(ctx, name)
	}
	return there, nil
}

// equal reports whether two readers have the same bytes. The error is that of a.
func equal(a, b io.Reader) (bool, error) {
	x, y := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, err := io.ReadFull(a, x)
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return false, err
		}
		m, _ := io.ReadFull(b, y)
		if !bytes.Equal(x[:n], y[:m]) {
			return false, nil
		}
		if err != nil {
			return true, nil
		}
	}
}

// directory is a place on this machine.
type directory string

func (d directory) String() string { return string(d) }

func (d directory) List(context.Context) (list []string, err error) {
	entries, err := os.ReadDir(string(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if check(e.Name()) == nil {
			list = append(list, e.Name())
		}
	}
	return list, err
}

func (d directory) Open(_ context.Context, name string) (io.ReadCloser, error) {
	if err := check(name); err != nil {
		return nil, err
	}
	return input.Open(filepath.Join(string(d), name))
}

func (d directory) put(ctx context.Context, name string, from io.ReaderAt, size int64, moved func(int64)) error {
	if err := os.MkdirAll(string(d), 0o777); err != nil {
		return err
	}
	return output.Write(ctx, filepath.Join(string(d), name), 0, func(w io.Writer) error {
		_, err := io.Copy(w, metered.Reader(ctx, io.NewSectionReader(from, 0, size), moved))
		return err
	})
}
