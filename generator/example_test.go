package generator_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/generator"
	"github.com/mender-app/mender-app/generator/inspect"
)

// The first release of an application ships its image whole; the second one is a
// delta over the first.
func Example() {
	dir, err := os.MkdirTemp("", "example-*")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	manifests := filepath.Join(dir, "shop")
	if err := os.Mkdir(manifests, 0o755); err != nil {
		log.Fatal(err)
	}
	web := saveImage(dir, "shop/web:1", "greeting", "good morning\n")
	next := saveImage(dir, "shop/web:2", "greeting", "good evening\n")
	release := func(name, use, pair string) *generator.Result {
		compose := fmt.Sprintf("services: {web: {image: %q}}\n", use)
		if err := os.WriteFile(filepath.Join(manifests, "compose.yaml"), []byte(compose), 0o644); err != nil {
			log.Fatal(err)
		}
		ship, err := generator.ParsePair(pair)
		if err != nil {
			log.Fatal(err)
		}
		r, err := generator.Generate(context.Background(), generator.Options{
			Application: generator.Application{
				Name: "shop", Orchestrator: generator.Compose, ManifestsDir: manifests,
				Platform: image.Platform{OS: "linux", Arch: "amd64"},
			},
			Images:   generator.Images{Pairs: []generator.Pair{ship}},
			Artifact: generator.Artifact{Name: name, DeviceTypes: []string{"gateway"}},
			Build:    generator.Build{Output: filepath.Join(dir, name+".mender")},
		}, false)
		if err != nil {
			log.Fatal(err)
		}
		return r
	}
	first := release("shop-1", "shop/web:1", "docker-archive:"+web)
	second := release("shop-2", "shop/web:2", "mender:"+first.Path+",docker-archive:"+next)
	for _, r := range []*generator.Result{first, second} {
		c := r.Plan.Components[0]
		fmt.Println(c.URL, c.Format, c.Base, r.Plan.Depends)
	}

	d, err := inspect.Artifact(context.Background(), second.Path, nil, dir)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(d.Name, d.DeviceTypes, d.Images[0].Layers[0].Encoding)
	// Output:
	// shop/web:1 full  map[]
	// shop/web:2 delta shop/web:1 map[data-partition.shop.version:[shop-1]]
	// shop-2 [gateway] delta
}

// saveImage writes an image of one file as docker save does.
func saveImage(dir, name, file, content string) (path string) {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	if err := w.WriteHeader(&tar.Header{Name: file, Mode: 0o644, Size: int64(len(content))}); err != nil {
		log.Fatal(err)
	}
	if _, err := io.WriteString(w, content); err != nil {
		log.Fatal(err)
	}
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}
	config := fmt.Sprintf(`{"os":"linux","architecture":"amd64","rootfs":{"type":"layers","diff_ids":[%q]}}`, digest.Of(layer.Bytes()))
	img, err := image.New([]byte(config), []image.Layer{{
		Size: int64(layer.Len()),
		Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil },
	}})
	if err != nil {
		log.Fatal(err)
	}
	path = filepath.Join(dir, filepath.Base(name)+".tar")
	f, err := os.Create(path)
	if err != nil {
		log.Fatal(err)
	}
	if err := image.WriteArchive(f, image.ArchiveSpec{Image: img, RepoTags: []string{name}}); err != nil {
		log.Fatal(err)
	}
	if err := f.Close(); err != nil {
		log.Fatal(err)
	}
	return path
}
