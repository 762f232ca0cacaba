package powercut

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/mender-app/mender-app/testdata/bed"
)

// app is the application of these tests. Its service web has a different image in
// each release, and publishes a port. Its service stock never changes and has a volume. The images are
// small but have many files, so that a file that a cut emptied is noticed.
const app = "yard"

// release is one release of the application.
type release struct {
	version string
	file    string // its artifact
	web     string // config digest of its image
	fails   bool   // its web service ends at once

	careless bool // its policy does not name the data of the ledger
}

// tag returns the tag of web's image in the release's manifests.
func (r *release) tag() string { return "yard/web:" + r.version }

const stockTag = "yard/stock:1"

// port is the one that web publishes.
const port = "8080"

// catalogue holds all releases. The keys say how a release is packed: "2" holds
// whole images, "2 delta" is the same release as a deep delta against 1.
type catalogue struct {
	releases map[string]*release
	stock    string // config digest of its image
	ledger   string // that of the service with the database, if there is one

	archives map[string]string // app-gen's names of the images: of web by version, of stock by tag
}

// byWeb returns the release whose web image has this config digest, or nil.
func (c *catalogue) byWeb(digest string) *release {
	for _, r := range c.releases {
		if r.web == digest {
			return r
		}
	}
	return nil
}

// newCatalogue makes the artifacts in dir with app-gen.
func newCatalogue(dir string) (*catalogue, error) {
	program := filepath.Join(dir, "service")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", program, "./testdata/powercut/service")
	build.Dir, build.Env = bed.Repository(), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile the service: %w\n%s", err, out)
	}
	service, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	c := &catalogue{releases: map[string]*release{}, archives: map[string]string{}}
	stockImage := bed.Image{
		Ref: stockTag, Command: []string{"/bin/service"},
		Layers: [][]bed.File{{{Name: "bin/service", Mode: 0o755, Data: service}}, texts("stock", 60, 1, 0)},
	}
	stock, err := archive(dir, stockImage)
	if err != nil {
		return nil, err
	}
	if c.stock, err = configDigest(stockImage); err != nil {
		return nil, err
	}
	c.archives[stockTag] = stock
	images := c.archives
	var more []string // further image options of app-gen
	if work.ledger != "" {
		image, err := c.addLedger(dir)
		if err != nil {
			return nil, err
		}
		more = []string{"--image", image}
	}
	for _, v := range []string{"1", "2", "3", "4"} {
		r := &release{version: v, fails: v == "3", file: filepath.Join(dir, app+"-"+v+".mender")}
		command := []string{"/bin/service", "web " + v}
		if r.fails {
			command = []string{"/bin/service", "fail"}
		}
		edition := uint64(v[0] - '0')
		web := bed.Image{Ref: r.tag(), Command: command, Layers: [][]bed.File{
			texts("base", 250, 10, edition/2), // 2 and 3 have another base than 1, and than 4
			{{Name: "bin/service", Mode: 0o755, Data: service}},
			texts("web", 120, 20, edition),
		}}
		if r.web, err = configDigest(web); err != nil {
			return nil, err
		}
		if images[v], err = archive(dir, web); err != nil {
			return nil, err
		}
		if err := c.generate(dir, r, images[v], stock, append(more, "--deep-delta=false")...); err != nil {
			return nil, err
		}
		c.releases[v] = r
	}
	delta := *c.releases["2"]
	delta.file = filepath.Join(dir, app+"-2-delta.mender")
	c.releases["2 delta"] = &delta
	if len(more) > 0 {
		careless := *c.releases["2"]
		careless.file = filepath.Join(dir, app+"-2-careless.mender")
		careless.careless = true
		c.releases["2 careless"] = &careless
		if err := c.generate(dir, &careless, images["2"], stock, append(more, "--deep-delta=false")...); err != nil {
			return nil, err
		}
		more[1] += "," + more[1]
	}
	return c, c.generate(dir, &delta, images["1"]+","+images["2"], stock+","+stock, append(more, "--deep-delta")...)
}

// generate makes the artifact of a release from image options of app-gen.
func (c *catalogue) generate(dir string, r *release, web, stock string, options ...string) error {
	manifests, err := os.MkdirTemp(dir, "manifests-")
	if err != nil {
		return err
	}
	restart := "unless-stopped"
	if work.engine.Podman {
		restart = "always" // the only one that has it started at boot
	}
	compose := fmt.Sprintf(`services:
  web:
    image: %[1]s
    restart: %[4]s
    ports: ["%[2]s:8080"]
  stock:
    image: %[3]s
    restart: %[4]s
    volumes: ["records:/records"]
%[5]svolumes:
  records:
%[6]s`, r.tag(), port, stockTag, restart, ledgerService(r.version, restart), ledgerVolume())
	if err := os.WriteFile(filepath.Join(manifests, "docker-compose.yml"), []byte(compose), 0o644); err != nil {
		return err
	}
	if err := ledgerPolicy(dir, manifests, r); err != nil {
		return err
	}
	return generate(app, r.version, manifests, r.file, append([]string{"--image", web, "--image", stock}, options...)...)
}

// generate makes an artifact of an application's version with app-gen.
func generate(app, version, manifests, file string, options ...string) error {
	programs, err := bed.Programs()
	if err != nil {
		return err
	}
	args := append([]string{
		"--application-name", app, "--artifact-name", app + "-" + version, "--software-version", version,
		"--device-type", bed.Type, "--platform", bed.Platform(), "--orchestrator", "docker-compose",
		"--manifests-dir", manifests, "--replace", "--output-path", file,
	}, options...)
	if out, err := exec.Command(filepath.Join(programs, "app-gen"), args...).CombinedOutput(); err != nil {
		return fmt.Errorf("app-gen: %w\n%s", err, out)
	}
	return nil
}

// archive writes an image into dir and returns app-gen's name for it.
func archive(dir string, i bed.Image) (string, error) {
	f, err := os.CreateTemp(dir, "image-*.tar")
	if err != nil {
		return "", err
	}
	if err := f.Close(); err != nil {
		return "", err
	}
	return "docker-archive:" + f.Name(), bed.WriteArchive(f.Name(), i)
}

func configDigest(i bed.Image) (string, error) {
	img, err := i.Build()
	if err != nil {
		return "", err
	}
	digest, err := img.ConfigName()
	return digest.String(), err
}

// texts returns a layer of n files of 1 to 11 KiB. Every step-th file differs
// between editions.
func texts(name string, n, step int, edition uint64) []bed.File {
	files := make([]bed.File, n)
	for i := range files {
		of := uint64(0)
		if i%step == 0 {
			of = edition
		}
		rng := rand.New(rand.NewPCG(uint64(i), of))
		text := make([]byte, 1024+rng.IntN(10<<10))
		for j := range text {
			text[j] = "etaoinshrdlucmfw \n"[rng.IntN(18)]
		}
		files[i] = bed.File{Name: fmt.Sprintf("usr/share/%s/%03d", name, i), Data: text}
	}
	return files
}
