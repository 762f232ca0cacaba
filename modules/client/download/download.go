// Package download reads an artifact over HTTP and keeps what has arrived in a file,
// so that a cut connection or a restart of the machine costs only what is missing.
//
// The file lies in a private directory, beside a record of what it is: a hash of the
// URL, the version that the server sent (its ETag or Last-Modified), the size, and how
// many bytes are durable. The rest is asked for with a range request that holds for
// that version only (RFC 9110, sections 13.1.5 and 14.2). Without a version the
// download starts anew.
//
// The bytes are not trusted: whoever reads the artifact checks its checksums and its
// signature. Memory is bounded, and so are the attempts, the wait for each, and the
// bytes on the disk.
//
// It is written by hand because a download that survives a power cut needs that record
// of durable bytes, which general download libraries do not keep.
package download

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact/input"
	"github.com/mender-app/mender-app/store/durable"
)

// Errors a caller may branch on.
var (
	// ErrURL: the URL is not one to download from.
	ErrURL = errors.New("not a URL to install from")
	// ErrFailed: the server cannot be reached, or does not send the file.
	ErrFailed = errors.New("the download failed")
	// ErrBusy: another process downloads.
	ErrBusy = errors.New("another download is running")
	// ErrOtherSize: the server has a file of another size than Options.Want. It is an ErrFailed.
	ErrOtherSize = errors.New("the file has another size")
)

// Options say where a download is kept and how long it is tried.
type Options struct {
	// Dir is a private directory for one download. It must outlive a restart.
	Dir string
	// PlainHTTP also accepts http:// URLs.
	PlainHTTP bool
	// Attempts is how many connections in a row may bring less than Progress
	// bytes each. Wait is the time before the second one; it doubles with each,
	// up to a minute.
	Attempts int
	Wait     time.Duration
	// A connection that brings less than Progress bytes in Patience is dropped.
	Progress int64
	Patience time.Duration
	// Whole is how long a download may take in all, from Open to its last byte; 0 is for
	// ever.
	Whole time.Duration
	// MaxRate is how many bytes a second may arrive, so that others have the rest of the
	// link; 0 means no bound.
	MaxRate int64
	// Want is how many bytes the file must have. A server that announces another size is
	// refused before anything is reserved for it. 0: the server says how many.
	Want int64
	// Sync is the number of bytes after which the file is made durable.
	Sync int64
	// Room returns an error if the file system of Dir lacks space for more bytes.
	Room func(bytes int64) error
	// Transport makes the requests; nil is the default transport with the environment's
	// proxies.
	Transport http.RoundTripper
	// Log gets a line for each attempt that failed.
	Log func(line string)
}

// Defaults are the options for a device on a poor link, without Dir, Room and Log.
func Defaults() Options {
	return Options{Attempts: 10, Wait: time.Second, Progress: 16 << 10, Patience: time.Minute, Whole: 4 * time.Hour, Sync: 8 << 20}
}

// A Download reads the file at a URL. It is not safe for concurrent use.
type Download struct {
	ctx     context.Context
	options Options
	url     *url.URL
	client  *http.Client
	unlock  func()

	file    *os.File
	record  record
	arrived int64 // in the file; more than record.Durable are not durable yet
	read    int64 // by the caller
	resumed int64

	connection *connection // nil: none is open
	whole      bool        // all has arrived
	pace       pace
	failures   int  // attempts in a row without progress
	noRanges   bool // the server answers them wrongly
	joined     bool
	buffer     []byte
}

// record is download.json in the directory: what the file beside it holds.
type record struct {
	URL     string `json:"url_sha256"` // hashed: a URL may have a password or a token
	Version string `json:"version,omitempty"`
	Size    int64  `json:"size"` // -1: the server did not say
	Durable int64  `json:"durable"`
}

const (
	recordFile = "download.json"
	dataFile   = "artifact"
	maxRecord  = 4 << 10
)

// Open begins or resumes the download of a URL. It connects to the server, so that a
// wrong URL and a full disk are errors before anything is read. A download of another
// URL in the directory is removed. Close or Discard ends it, and the end of the context
// stops it.
func Open(ctx context.Context, rawURL string, o Options) (*Download, error) {
	u, err := parse(rawURL, o.PlainHTTP)
	if err != nil {
		return nil, err
	}
	if err := durable.PrivateDir(o.Dir); err != nil {
		return nil, err
	}
	unlock, err := durable.Lock(filepath.Join(o.Dir, "lock"), "mender-app install")
	var held *durable.HeldError
	if errors.As(err, &held) {
		return nil, ErrBusy
	}
	if err != nil {
		return nil, err
	}
	if o.Whole > 0 {
		late := fmt.Errorf("%w: %s: it took longer than %v in all. What has arrived is kept: run the same command again to continue", ErrFailed, shown(u), o.Whole)
		within, cancel := context.WithTimeoutCause(ctx, o.Whole, late)
		free := unlock
		ctx, unlock = within, func() { cancel(); free() }
	}
	d := &Download{ctx: ctx, options: o, url: u, client: newClient(o), unlock: unlock, buffer: make([]byte, 64<<10), pace: pace{rate: o.MaxRate}}
	if o.MaxRate > 0 { // many small pieces, instead of one every few seconds
		d.buffer = d.buffer[:min(int64(len(d.buffer)), max(512, o.MaxRate/8))]
	}
	if err := d.open(); err != nil {
		unlock()
		return nil, err
	}
	if err := d.connect(); err != nil && err != io.EOF {
		return nil, errors.Join(err, d.Close())
	}
	d.resumed = d.arrived
	return d, nil
}

// IsURL reports whether an argument is a URL and not the name of a file.
func IsURL(s string) bool { return input.Source(s).IsURL() }

func parse(s string, plain bool) (*url.URL, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "":
		return nil, ErrURL // the error would quote a password
	case u.Scheme == "http" && !plain:
		return nil, fmt.Errorf("%w: %s is not https, so anyone on the network path could replace the artifact: its signature is not checked", ErrURL, shown(u))
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("%w: the scheme %q is not https", ErrURL, u.Scheme)
	}
	u.Fragment = ""
	return u, nil
}

// shown returns a URL without its possible secrets: user, password and query.
func shown(u *url.URL) string { return input.Source(u.String()).String() }

// open opens the file, with the part that an earlier download of the same URL left.
func (d *Download) open() error {
	if err := durable.Sweep(d.options.Dir); err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(d.url.String()))
	same := d.earlier()
	if d.record.URL != hex.EncodeToString(sum[:]) || !same {
		d.record = record{URL: hex.EncodeToString(sum[:]), Size: -1}
		if err := d.remove(); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(d.path(dataFile), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	if st, err := f.Stat(); err != nil || st.Size() < d.record.Durable {
		d.record = record{URL: d.record.URL, Size: -1} // the file is not what was recorded
	}
	// A power cut may have lost bytes that are not durable.
	if err := f.Truncate(d.record.Durable); err != nil {
		return errors.Join(err, f.Close())
	}
	d.file, d.arrived = f, d.record.Durable
	return nil
}

// begin empties the file for a version of the given size, -1 if unknown, and reserves
// disk space for it.
func (d *Download) begin(version string, size int64) error {
	d.record.Version, d.record.Size, d.record.Durable, d.arrived = version, size, 0, 0
	if err := d.file.Close(); err != nil {
		return err
	}
	f, err := os.OpenFile(d.path(dataFile), os.O_RDWR|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	d.file = f
	if size < 0 {
		size = d.options.Want
	}
	return d.room(size)
}

// room checks that the rest fits on the disk, and reserves space for it if the file
// system can. Space reserved earlier counts as the file's.
func (d *Download) room(rest int64) error {
	if rest <= 0 {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(d.file.Fd()), &st); err != nil {
		return final("%s: %w", d.file.Name(), err)
	}
	if missing := rest - max(0, st.Blocks*512-d.arrived); d.options.Room != nil && missing > 0 {
		if err := d.options.Room(missing); err != nil {
			return &finalError{err}
		}
	}
	switch err := unix.Fallocate(int(d.file.Fd()), unix.FALLOC_FL_KEEP_SIZE, d.arrived, rest); err {
	case nil, unix.EOPNOTSUPP, unix.ENOSYS:
		return nil
	default:
		return final("reserve %d bytes: %w", rest, err)
	}
}

// earlier reads the record of an earlier download.
func (d *Download) earlier() bool {
	f, err := os.Open(d.path(recordFile))
	if err != nil {
		return false
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxRecord))
	if err != nil || json.Unmarshal(data, &d.record) != nil {
		return false
	}
	return d.record.Version != "" && d.record.Durable >= 0 && (d.record.Size < 0 || d.record.Durable <= d.record.Size)
}

func (d *Download) path(name string) string { return filepath.Join(d.options.Dir, name) }

// Size is the size of the whole file in bytes; -1 if the server does not say it.
func (d *Download) Size() int64 { return d.record.Size }

// Joined reports whether the file was put together from several answers. If it is wrong,
// the place may still have the right one.
func (d *Download) Joined() bool { return d.joined }

// Resumed returns how many bytes were in the file before Open.
func (d *Download) Resumed() int64 { return d.resumed }

// Read reads the received part, then the rest as it arrives.
func (d *Download) Read(p []byte) (int, error) {
	for d.read == d.arrived {
		if err := d.fetch(); err != nil {
			return 0, err
		}
	}
	p = p[:min(int64(len(p)), d.arrived-d.read)]
	n, err := d.file.ReadAt(p, d.read)
	d.read += int64(n)
	if err == io.EOF { // another process has shortened the file
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// save makes the received part durable, and then records it.
func (d *Download) save() error {
	if err := d.file.Sync(); err != nil {
		return err
	}
	d.record.Durable = d.arrived
	data, err := json.Marshal(d.record)
	if err != nil {
		return err
	}
	return durable.WriteFile(d.path(recordFile), append(data, '\n'), 0o600)
}

// Close ends the download and keeps the received part for the next Open, if that can
// use it.
func (d *Download) Close() error {
	if d.arrived == 0 || d.record.Version == "" {
		return d.Discard()
	}
	d.disconnect()
	defer d.unlock()
	err := d.file.Truncate(d.arrived) // gives back what is reserved
	if err == nil && d.arrived != d.record.Durable {
		err = d.save()
	}
	return errors.Join(err, d.file.Close())
}

// Move ends the download and gives the file another name on the same file system,
// durably. The whole file must have been read. Discard must follow.
func (d *Download) Move(path string) error {
	if !d.whole || d.read != d.arrived {
		return fmt.Errorf("move %s: it was not read to its end", d.file.Name())
	}
	if err := d.file.Truncate(d.arrived); err != nil { // gives back what is reserved
		return err
	}
	if err := d.file.Sync(); err != nil {
		return err
	}
	return durable.Rename(d.file.Name(), path)
}

// Discard ends the download and removes the received part.
func (d *Download) Discard() error {
	d.disconnect()
	defer d.unlock()
	return errors.Join(d.file.Close(), d.remove())
}

func (d *Download) remove() error {
	var all error
	for _, name := range []string{recordFile, dataFile} { // the record first
		if err := durable.Remove(d.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			all = errors.Join(all, err)
		}
	}
	return all
}
