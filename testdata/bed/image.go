package bed

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// File is a member of an image layer. Names are slash-separated and relative.
type File struct {
	Name string
	Mode int64 // 0 means 0644
	Data []byte
}

// Image describes a container image: layers of files, and how it is run. The
// same description gives the same image, byte for byte.
type Image struct {
	Ref      string   // reference it gets in an archive, like shop/web:1
	Platform string   // this machine's when empty
	Layers   [][]File // the lowest first
	Command  []string
	Health   *v1.HealthConfig
}

// Build makes the image.
func (i Image) Build() (v1.Image, error) {
	platform, err := v1.ParsePlatform(orThis(i.Platform))
	if err != nil {
		return nil, err
	}
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		OS: platform.OS, Architecture: platform.Architecture, Variant: platform.Variant,
		Created: v1.Time{Time: time.Unix(1.7e9, 0).UTC()},
		RootFS:  v1.RootFS{Type: "layers"},
		Config:  v1.Config{Entrypoint: i.Command, Healthcheck: i.Health, Env: []string{"PATH=/bin"}},
	})
	if err != nil {
		return nil, err
	}
	for n, files := range i.Layers {
		layer, err := tarLayer(files)
		if err != nil {
			return nil, fmt.Errorf("layer %d of %s: %w", n, i.Ref, err)
		}
		img, err = mutate.Append(img, mutate.Addendum{
			Layer:   layer,
			History: v1.History{CreatedBy: fmt.Sprintf("bed layer %d", n)},
		})
		if err != nil {
			return nil, err
		}
	}
	return img, nil
}

// Platform returns this machine's platform, which a Device shares.
func Platform() string { return "linux/" + runtime.GOARCH }

func orThis(platform string) string {
	if platform == "" {
		return Platform()
	}
	return platform
}

// WriteArchive writes images into one docker-archive, as `docker save` does.
func WriteArchive(path string, images ...Image) error {
	tagged := map[name.Tag]v1.Image{}
	for _, i := range images {
		img, err := i.Build()
		if err != nil {
			return err
		}
		tag, err := name.NewTag(i.Ref)
		if err != nil {
			return err
		}
		tagged[tag] = img
	}
	return tarball.MultiWriteToFile(path, tagged)
}

func tarLayer(files []File) (v1.Layer, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	made := map[string]bool{}
	for _, f := range files {
		for at, c := range f.Name { // parents first
			if dir := f.Name[:at]; c == '/' && !made[dir] {
				made[dir] = true
				err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, ModTime: time.Unix(1.7e9, 0)})
				if err != nil {
					return nil, err
				}
			}
		}
		mode := f.Mode
		if mode == 0 {
			mode = 0o644
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.Name, Mode: mode, Size: int64(len(f.Data)), ModTime: time.Unix(1.7e9, 0)}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.Data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(buf.Bytes())), nil
	})
}

// Shop describes one image of the shop application (examples/shop).
type Shop struct {
	Ref      string
	Version  string // what its /version says after the service's name
	Platform string // this machine's when empty
	Mode     string // its health: see examples/shop
	Winter   bool   // built with the winter release's code
	Base     int    // size of the base layer in KiB; the same size is the same layer
	Service  string // the name that /version says; web when empty
	Count    string // file that keeps the number of visits
}

// Image compiles the program and describes the image: a base layer of text
// (what a distribution's files are), the program, and its mode if it has one. An engine
// of Debian 12 takes 0.2 s of processor time for each layer.
func (s Shop) Image() (Image, error) {
	if s.Service == "" {
		s.Service = "web"
	}
	program, err := s.compile()
	if err != nil {
		return Image{}, err
	}
	top := []File{{Name: "bin/shop", Mode: 0o755, Data: program}}
	layers := [][]File{top}
	if s.Mode != "" {
		layers = append(layers, []File{{Name: "etc/shop/mode", Data: []byte(s.Mode + "\n")}})
	}
	if s.Base > 0 {
		layers = append([][]File{baseLayer(s.Base)}, layers...)
	}
	command := []string{"/bin/shop", "-name", s.Service}
	if s.Count != "" {
		command = append(command, "-count", s.Count)
	}
	return Image{
		Ref: s.Ref, Platform: s.Platform, Layers: layers, Command: command,
		// Each check costs the engine some 70 ms of processor time, and several devices
		// run at once.
		Health: &v1.HealthConfig{
			Test:     []string{"CMD", "/bin/shop", "-probe"},
			Interval: 1500 * time.Millisecond, Timeout: 10 * time.Second, Retries: 3,
		},
	}, nil
}

// compile compiles the program, once for what it is made of: tests make the same
// images again and again.
func (s Shop) compile() ([]byte, error) {
	key := Shop{Version: s.Version, Platform: s.Platform, Winter: s.Winter}
	once, _ := compiled.LoadOrStore(key, sync.OnceValues(key.compileAnew))
	program, err := once.(func() ([]byte, error))()
	return slices.Clone(program), err
}

var compiled sync.Map // of func() ([]byte, error), by Shop

func (s Shop) compileAnew() ([]byte, error) {
	dir, err := os.MkdirTemp("", "mender-app-shop-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "shop")
	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X main.version=" + s.Version, "-o", out}
	if s.Winter {
		args = append(args, "-tags", "winter")
	}
	cmd := exec.Command("go", append(args, "./examples/shop")...)
	cmd.Dir = Repository()
	platform := strings.Split(orThis(s.Platform), "/")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+platform[0], "GOARCH="+platform[1])
	if len(platform) == 3 && platform[1] == "arm" {
		cmd.Env = append(cmd.Env, "GOARM="+strings.TrimPrefix(platform[2], "v"))
	}
	r, err := run(cmd)
	if err != nil || r.Code != 0 {
		return nil, fmt.Errorf("compile the shop: %w %s", err, r.Output())
	}
	return os.ReadFile(out)
}

// baseLayer is kib KiB of text files: words drawn from a fixed seed, so that
// it compresses as text does and is the same on every machine.
func baseLayer(kib int) []File {
	rng := rand.New(rand.NewPCG(1, uint64(kib)))
	words := make([]string, 2000)
	for i := range words {
		w := make([]byte, 2+rng.IntN(9))
		for j := range w {
			w[j] = "etaoinshrdlucmfwygpbvk"[min(rng.IntN(22), rng.IntN(22))]
		}
		words[i] = string(w)
	}
	const fileKiB = 64
	var files []File
	for n := 0; n*fileKiB < kib; n++ {
		var text bytes.Buffer
		for text.Len() < min(fileKiB, kib-n*fileKiB)<<10 {
			text.WriteString(words[min(rng.IntN(len(words)), rng.IntN(len(words)))])
			text.WriteByte(" \n"[min(1, rng.IntN(12)/11)])
		}
		files = append(files, File{Name: fmt.Sprintf("usr/share/shop/catalogue-%03d.txt", n), Data: text.Bytes()})
	}
	return files
}
