// Command compressed counts how much of images is compressed with xz, zstd, bzip2 and
// lz4, and with gzip to compare:
//
//	go run ./testdata/corpus/compressed IMAGE…
//
// An image is a tar, such as a docker-archive or a layer, or a directory of them. Tars
// within tars are followed. It prints a Markdown table: bytes of files, and of streams
// by format. A stream counts wherever in a file it begins, if it can be followed to its
// end. Then it lists the files in which most of them are.
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
	fmt.Print("| image | files, KiB |")
	for _, f := range formats {
		fmt.Printf(" %s |", f.name)
	}
	fmt.Print("\n|---|---|---|---|---|---|---|\n")
	in := map[string]int64{}
	for _, name := range images {
		a := account{bytes: map[string]int64{}, in: in}
		if err := a.addImage(name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fmt.Printf("| %s | %d |", name, a.files>>10)
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
	files int64
	bytes map[string]int64 // by format
	in    map[string]int64 // by format and path, all images; not those of gzip
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
			if f.name != "gzip" {
				a.in[f.name+" | "+path] += int64(n)
			}
			at += n
		}
	}
}
