package delta

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func fileObject(t testing.TB, name string, kind Kind) Object {
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	st, err := f.Stat()
	require.NoError(t, err)
	sum, err := hashSection(f, 0, st.Size())
	require.NoError(t, err)
	return Object{Digest: digestOf(sum), Size: st.Size(), Kind: kind, Open: func() (io.ReadCloser, error) { return os.Open(name) }}
}

func corpusImage(t testing.TB, dir, v string) Image {
	im := Image{Name: v, Objects: []Object{fileObject(t, filepath.Join(dir, "config-"+v+".json"), Blob)}}
	layers, err := filepath.Glob(filepath.Join(dir, "layers-"+v, "*.tar"))
	require.NoError(t, err)
	for _, l := range layers {
		im.Objects = append(im.Objects, fileObject(t, l, Tar))
	}
	return im
}

func fileStore(t testing.TB, dir, v string) *Store {
	s := NewStore()
	im := corpusImage(t, dir, v)
	for _, o := range im.Objects {
		r, err := o.Open()
		require.NoError(t, err)
		f := r.(*os.File)
		t.Cleanup(func() { f.Close() })
		require.NoError(t, s.Add(o.Digest, o.Kind, f, o.Size))
	}
	return s
}

type nullSink struct{}

func (nullSink) Write(b []byte) (int, error) { return len(b), nil }
func (nullSink) Commit() error               { return nil }
func (nullSink) Abort(error)                 {}

func TestCorpus(t *testing.T) {
	if corpusDir() == "" {
		t.Skip("no DELTA_CORPUS")
	}
	dirs, _ := filepath.Glob(filepath.Join(corpusDir(), "p*"))
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			old, new := corpusImage(t, dir, "v1"), corpusImage(t, dir, "v2")
			var d bytes.Buffer
			t0 := cpu()
			w0 := time.Now()
			rep, err := Encode(context.Background(), &d, []Image{old}, new, Options{})
			require.NoError(t, err)
			fmt.Printf("%s: %d bytes = %.1f KiB; encode %.1f s cpu %.1f s wall\n", filepath.Base(dir), d.Len(), float64(d.Len())/1024, cpu()-t0, time.Since(w0).Seconds())
			sum := map[string]int64{}
			for _, o := range rep.Objects {
				for k, v := range o.Bytes {
					sum[k] += v
				}
				fmt.Println("  ", o.Encoding, o.Total(), o.Files)
			}
			var ks []string
			for k := range sum {
				ks = append(ks, k)
			}
			sort.Strings(ks)
			for _, k := range ks {
				fmt.Printf("   %-10s %d\n", k, sum[k])
			}
			store := fileStore(t, dir, "v1")
			t0 = cpu()
			r, err := NewReader(&d)
			require.NoError(t, err)
			require.NoError(t, r.Apply(context.Background(), store, func(ObjectInfo) (Sink, error) { return nullSink{}, nil }))
			fmt.Printf("   decode %.2f s\n", cpu()-t0)
		})
	}
}
