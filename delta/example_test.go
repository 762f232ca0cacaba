package delta_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"strings"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/decoder"
	"github.com/mender-app/mender-app/delta/encoder"
	"github.com/mender-app/mender-app/delta/tarstore"
)

// exampleLayer is a layer of one file.
func exampleLayer(text string) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "etc/motd", Size: int64(len(text)), Mode: 0o644}); err != nil {
		log.Fatal(err)
	}
	if _, err := io.WriteString(w, text); err != nil {
		log.Fatal(err)
	}
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}
	return b.Bytes()
}

// exampleImage is an image of one layer.
func exampleImage(name string, layer []byte) delta.Image {
	return delta.Image{Name: name, Objects: []delta.Object{{
		Digest: digest.Of(layer), Size: int64(len(layer)), Kind: delta.Tar,
		Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer)), nil },
	}}}
}

// layerSink keeps a rebuilt layer in memory.
type layerSink struct{ bytes.Buffer }

func (s *layerSink) Commit() error {
	fmt.Println("rebuilt", s.Len(), "bytes")
	return nil
}

func (s *layerSink) Abort(cause error) { fmt.Println("failed:", cause) }

// The build host makes a delta between two layers; the device applies it to the
// old one.
func Example() {
	ctx := context.Background()
	old := exampleLayer(strings.Repeat("Welcome to version 1.\n", 200))
	new := exampleLayer(strings.Repeat("Welcome to version 1.\n", 200) + "Version 2 is here.\n")

	var file bytes.Buffer
	report, err := encoder.Encode(ctx, &file, []delta.Image{exampleImage("shop:1", old)}, exampleImage("shop:2", new), encoder.Options{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("smaller than a tenth:", report.Size < int64(len(new))/10)

	store := tarstore.New()
	if err := store.Add(digest.Of(old), delta.Tar, bytes.NewReader(old), int64(len(old))); err != nil {
		log.Fatal(err)
	}
	d, err := decoder.New(&file)
	if err != nil {
		log.Fatal(err)
	}
	sink := &layerSink{}
	if err := d.Apply(ctx, store, "", func(delta.ObjectInfo) (delta.Sink, error) { return sink, nil }); err != nil {
		log.Fatal(err)
	}
	fmt.Println("equal:", bytes.Equal(sink.Bytes(), new))
	// Output:
	// smaller than a tenth: true
	// rebuilt 6144 bytes
	// equal: true
}
