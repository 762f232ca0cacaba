// Command compressed counts how much of images is compressed: with xz, zstd, bzip2 and
// lz4, which the encoder of deltas takes as they are, and with deflate (gzip, zip, zlib),
// and of that how much the encoder can make again:
//
//	go run ./testdata/corpus/compressed IMAGE…
//
// An image is a tar, such as a docker-archive or a layer, or a directory of them. Tars
// within tars are followed. It prints a Markdown table: bytes of files, and of streams
// by format. A stream counts wherever in a file it begins, if it can be followed to its
// end; of zlib's only those that a file begins with. Then it lists the files in which most
// of those bytes are that are not made again.
package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/mender-app/mender-app/delta/encoder"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "compressed:", err)
		os.Exit(1)
	}
}

func run(images []string) error {
	if len(images) == 0 {
		return errors.New("no image is named")
	}
	fmt.Print("| image | files, KiB | deflate | made again |")
	for _, f := range formats {
		fmt.Printf(" %s |", f.name)
	}
	fmt.Print("\n|---|---|---|---|---|---|---|---|\n")
	in := map[string]int64{}
	for _, name := range images {
		a := account{bytes: map[string]int64{}, in: in}
		if err := a.addImage(name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fmt.Printf("| %s | %d | %.1f | %.1f |", name, a.files>>10, float64(a.deflate)/1024, float64(a.again)/1024)
		for _, f := range formats {
			fmt.Printf(" %.1f |", float64(a.bytes[f.name])/1024)
		}
		fmt.Println()
	}
	fmt.Print("\n| KiB | format | file |\n|---|---|---|\n")
	most := slices.SortedFunc(maps.Keys(in), func(a, b string) int { return cmp.Or(cmp.Compare(in[b], in[a]), cmp.Compare(a, b)) })
	for _, k := range most[:min(len(most), 20)] {
		fmt.Printf("| %.1f | %s |\n", float64(in[k])/1024, k)
	}
	return nil
}

// account is what one image has.
type account struct {
	files          int64
	deflate, again int64            // bytes in streams of deflate, and in those that can be made again
	bytes          map[string]int64 // by other format
	in             map[string]int64 // by format and path, all images: what is not made again
}

func (a *account) addImage(name string) error {
	root, err := filepath.EvalSymlinks(name)
	if err != nil {
		return err
	}
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		if ok, err := isTar(f); !ok || err != nil {
			return err
		}
		return a.addTar(f)
	})
}

// isTar reports whether a file is a tar, and goes back to its beginning.
func isTar(f io.ReadSeeker) (bool, error) {
	var head [512]byte
	_, err := io.ReadFull(f, head[:])
	if _, serr := f.Seek(0, io.SeekStart); serr != nil {
		return false, serr
	}
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false, err
	}
	return string(head[257:262]) == "ustar", nil
}

func (a *account) addTar(r io.Reader) error {
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		b, err := io.ReadAll(t)
		if err != nil {
			return err
		}
		if ok, err := isTar(bytes.NewReader(b)); err != nil {
			return err
		} else if ok {
			if err := a.addTar(bytes.NewReader(b)); err != nil {
				return err
			}
			continue
		}
		a.addFile(h.Name, b)
	}
}

func (a *account) addFile(path string, b []byte) {
	a.files += int64(len(b))
	if !bytes.HasPrefix(b, []byte("\x7fELF")) { // as the encoder
		found, again := encoder.Deflated(b)
		a.deflate += found
		a.again += again
		if found > again {
			a.in["deflate | "+path] += found - again
		}
	}
	for _, f := range formats {
		for at := 0; ; {
			i := bytes.Index(b[at:], f.magic)
			if i < 0 {
				break
			}
			at += i
			n := f.length(b[at:])
			if n == 0 {
				at++
				continue
			}
			a.bytes[f.name] += int64(n)
			a.in[f.name+" | "+path] += int64(n)
			at += n
		}
	}
}
