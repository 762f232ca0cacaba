// Command mkpause packs the program pause as the image every pod starts with,
// in the form of docker save.
// usage: mkpause PROGRAM ARCHIVE
package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"runtime"
)

const tag = "registry.k8s.io/pause:3.10"

type file struct {
	name string
	mode int64
	data []byte
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: mkpause PROGRAM ARCHIVE")
	}
	program, err := os.ReadFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	layer := pack(file{"pause", 0o755, program})
	config := encode(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "created": "1970-01-01T00:00:00Z",
		"config":  map[string]any{"Entrypoint": []string{"/pause"}, "User": "65535:65535"},
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + sum(layer)}},
		"history": []any{map[string]any{"created": "1970-01-01T00:00:00Z"}},
	})
	manifest := encode([]any{map[string]any{
		"Config": sum(config) + ".json", "RepoTags": []string{tag}, "Layers": []string{"layer.tar"},
	}})
	archive := pack(file{sum(config) + ".json", 0o644, config}, file{"layer.tar", 0o644, layer}, file{"manifest.json", 0o644, manifest})
	if err := os.WriteFile(os.Args[2], archive, 0o644); err != nil {
		log.Fatal(err)
	}
}

func pack(files ...file) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data)), Typeflag: tar.TypeReg}); err != nil {
			log.Fatal(err)
		}
		if _, err := w.Write(f.data); err != nil {
			log.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}
	return b.Bytes()
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		log.Fatal(err)
	}
	return b
}

func sum(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) }
