package archive_test

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/mender-app/mender-app/delta/vcdiff/archive"
)

// layers gives an old image's layers out of its archive.
type layers map[string]*io.SectionReader

func (l layers) OpenBlob(_ context.Context, sha256 string) (archive.Blob, error) {
	r, ok := l[sha256]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return blob{r}, nil
}

type blob struct{ *io.SectionReader }

func (blob) Close() error { return nil }

// A deep delta is planned, checked against what is there, and rebuilt.
func Example() {
	delta, err := os.Open("testdata/docker-delta.tar")
	if err != nil {
		panic(err)
	}
	defer delta.Close()
	st, err := delta.Stat()
	if err != nil {
		panic(err)
	}
	a, err := archive.Plan(delta, st.Size())
	if err != nil {
		panic(err)
	}
	fmt.Println(a.Format, a.Size(), "bytes")
	for _, m := range a.Members {
		if m.Kind == archive.Delta {
			fmt.Printf("%s %.12s… from %.12s…, %d bytes\n", m.Kind, m.SHA256, m.Source, m.Size)
		}
	}

	old := oldLayers("testdata/docker-old.tar")
	// The engine has the unchanged layers: they are left out.
	ctx := context.Background()
	if err := a.Check(ctx, old, false); err != nil {
		panic(err)
	}
	pr, pw := io.Pipe()
	go func() {
		err := a.WriteTar(ctx, pw, old, func(m archive.Member) bool { return m.Kind != archive.Unchanged })
		pw.CloseWithError(err)
	}()
	n := 0
	for tr := tar.NewReader(pr); ; n++ { // here the engine would load it
		if _, err := tr.Next(); err == io.EOF {
			break
		} else if err != nil {
			panic(err)
		}
	}
	fmt.Println(n, "of", len(a.Members), "files")
	// Output:
	// docker-archive 42602 bytes
	// delta 661bf7ac3a78… from 8162b7df99de…, 10240 bytes
	// delta 5c174e4652ea… from ec64980dcae0…, 20480 bytes
	// delta 44633a2f3c24… from 8162b7df99de…, 10240 bytes
	// 16 of 17 files
}

func oldLayers(name string) layers {
	f, err := os.Open(name)
	if err != nil {
		panic(err)
	}
	l := layers{}
	for tr := tar.NewReader(f); ; {
		h, err := tr.Next()
		if err == io.EOF {
			return l
		}
		if err != nil {
			panic(err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		off, err := f.Seek(0, io.SeekCurrent)
		if err != nil {
			panic(err)
		}
		sum := sha256.New()
		if _, err := io.Copy(sum, tr); err != nil {
			panic(err)
		}
		l[hex.EncodeToString(sum.Sum(nil))] = io.NewSectionReader(f, off, h.Size)
	}
}
