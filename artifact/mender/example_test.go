package mender_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log"
	"strings"

	"github.com/mender-app/mender-app/artifact/mender"
)

// textFile is a file of the payload whose content is at hand.
func textFile(name, text string) mender.File {
	return mender.File{Name: name, Size: int64(len(text)), Open: func() (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(text)), nil
	}}
}

// The build host writes and signs an artifact; the device verifies and reads it,
// trusting two keys while one follows the other.
func Example() {
	retired, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		log.Fatal(err)
	}
	current, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		log.Fatal(err)
	}

	spec := mender.Spec{
		Name: "shop-2.0", DeviceTypes: []string{"raspberrypi4"}, PayloadType: mender.PayloadTypeApp,
		Provides: map[string]string{"data-partition.shop.version": "2.0"}, ClearsProvides: []string{"data-partition.shop.*"},
		MetaData: []byte(`{"application_name":"shop"}`),
		Files:    []mender.File{textFile("manifests.tar.gz", "what the orchestrator runs")},
	}
	var file bytes.Buffer
	if err := mender.Write(&file, spec, mender.Options{Compression: mender.Gzip, Key: current}); err != nil {
		log.Fatal(err)
	}

	r, err := mender.NewReader(&file, mender.ReadOptions{PublicKeys: []crypto.PublicKey{retired.Public(), current.Public()}})
	if err != nil {
		log.Fatal(err)
	}
	h := r.Header()
	fmt.Println(h.Name, "for", h.DeviceTypes, "provides", h.Provides)
	fmt.Println("signed with the current key:", current.PublicKey.Equal(h.SignedBy))
	for {
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			break // every file was there and had its checksum
		}
		if err != nil {
			log.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %s\n", f.Name, content)
	}
	// Output:
	// shop-2.0 for [raspberrypi4] provides map[data-partition.shop.version:2.0]
	// signed with the current key: true
	// manifests.tar.gz: what the orchestrator runs
}
