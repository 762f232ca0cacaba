package source

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// DefaultCacheLimit is the default limit of a cache in bytes.
const DefaultCacheLimit = 4 << 30

// leaveFree is how many bytes of the file system a copy into the cache leaves free.
const leaveFree = 1 << 30

// Cache keeps files between runs of app-gen that are slow to fetch or to make, in a
// directory that several processes may use. A nil Cache has no entries and keeps none.
// An entry's key says what it was made of, so an entry never becomes stale.
//
// Whoever takes content from an entry verifies it by its digest. Who can write to the
// directory can make app-gen write an artifact that devices refuse before they stop anything,
// but none that puts other content on a device: what a device builds is compared with the
// digests of the images. Losing the cache costs time and nothing else.
type Cache struct {
	dir   string
	limit int64

	mu sync.Mutex // one Keep at a time, so that the limit holds
}

// CacheDir is the user's directory for the cache: app-gen in XDG_CACHE_HOME, or in
// .cache in the home directory.
func CacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "app-gen"), err
}

// cacheTag marks the directory for programs that make backups (bford.info/cachedir).
const cacheTag = "CACHEDIR.TAG"

const cacheTagText = "Signature: 8a477f597d28d172789f06886806bc55\n# What app-gen fetched and made. It may be deleted.\n"

// OpenCache makes the directory if it is not there. It never has more than limit bytes of
// entries.
func OpenCache(dir string, limit int64) (*Cache, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	info, err := os.Stat(filepath.Join(dir, cacheTag))
	if errors.Is(err, fs.ErrNotExist) {
		err = os.WriteFile(filepath.Join(dir, cacheTag), []byte(cacheTagText), 0o600)
	} else if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a directory of app-gen's", dir)
	}
	if err != nil {
		return nil, err
	}
	return &Cache{dir: dir, limit: limit}, nil
}

// CacheKey names an entry: what kind of content it has, and the digest, in hexadecimal
// digits, of what it was made of.
type CacheKey struct{ Kind, Hex string }

func (c *Cache) path(k CacheKey) string { return filepath.Join(c.dir, k.Kind+"-"+k.Hex) }

// Take makes the file to, which must not exist, of an entry. The error is
// fs.ErrNotExist if there is none.
func (c *Cache) Take(k CacheKey, to string) error {
	if c == nil {
		return fs.ErrNotExist
	}
	path := c.path(k)
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
		return fs.ErrNotExist
	}
	now := time.Now()
	_ = os.Chtimes(path, now, now) // Keep removes what was used last
	return linkOrCopy(path, to)
}

// Read is Take for small entries.
func (c *Cache) Read(k CacheKey, most int64) ([]byte, error) {
	if c == nil {
		return nil, fs.ErrNotExist
	}
	f, err := os.OpenFile(c.path(k), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fs.ErrNotExist
	}
	defer f.Close()
	now := time.Now()
	_ = os.Chtimes(f.Name(), now, now)
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil || int64(len(b)) > most {
		return nil, fs.ErrNotExist
	}
	return b, nil
}

// Keep makes an entry of the file from, which nobody may change afterwards. Entries
// that were not used for longest make room for it. What does not fit is not kept.
func (c *Cache) Keep(k CacheKey, from string) error {
	if c == nil {
		return nil
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if info.Size() > c.limit {
		return nil
	}
	if err := c.trim(info.Size()); err != nil {
		return err
	}
	temp := filepath.Join(c.dir, "."+rand.Text())
	defer os.Remove(temp)
	if os.Link(from, temp) != nil {
		if free, err := freeSpace(c.dir); err != nil || free-info.Size() < leaveFree {
			return err
		}
		if err := copyFile(from, temp); err != nil {
			return err
		}
	}
	now := time.Now()
	_ = os.Chtimes(temp, now, now)
	return os.Rename(temp, c.path(k))
}

// Write is Keep for small entries.
func (c *Cache) Write(k CacheKey, b []byte) error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if int64(len(b)) > c.limit {
		return nil
	}
	if err := c.trim(int64(len(b))); err != nil {
		return err
	}
	temp := filepath.Join(c.dir, "."+rand.Text())
	defer os.Remove(temp)
	if err := os.WriteFile(temp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(temp, c.path(k))
}

// Remove removes an entry, as one that turned out to be damaged.
func (c *Cache) Remove(k CacheKey) {
	if c != nil {
		os.Remove(c.path(k))
	}
}

// abandoned is the age at which a temporary file is no longer another process's.
const abandoned = 24 * time.Hour

// trim makes room for more bytes.
func (c *Cache) trim(more int64) error {
	list, err := os.ReadDir(c.dir)
	if err != nil {
		return err
	}
	var entries []fs.FileInfo
	total := more
	for _, e := range list {
		info, err := e.Info()
		switch {
		case err != nil || e.Name() == cacheTag || !info.Mode().IsRegular():
			continue
		case strings.HasPrefix(e.Name(), "."):
			if time.Since(info.ModTime()) > abandoned {
				os.Remove(filepath.Join(c.dir, e.Name()))
			}
			continue
		}
		entries = append(entries, info)
		total += info.Size()
	}
	slices.SortFunc(entries, func(a, b fs.FileInfo) int {
		return cmp.Or(a.ModTime().Compare(b.ModTime()), cmp.Compare(a.Name(), b.Name()))
	})
	for _, e := range entries {
		if total <= c.limit {
			return nil
		}
		if err := os.Remove(filepath.Join(c.dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		total -= e.Size()
	}
	return nil
}

// linkOrCopy makes a hard link, or a copy where that cannot be.
func linkOrCopy(from, to string) error {
	if err := os.Link(from, to); err == nil || errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return copyFile(from, to)
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := out.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			os.Remove(to)
		}
	}()
	_, err = io.Copy(out, in)
	return err
}
