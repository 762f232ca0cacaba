package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/mender-app/mender-app/testdata/bed"
)

// release is a release of the shop, made into an artifact.
type release struct {
	version  string
	artifact string // path of what is sent
	sent     int64  // its bytes
	whole    string // path of the artifact with whole images
	full     int64  // its bytes
}

// makeReleases makes releases 1 to 4 with app-gen: the first whole, the others
// as deep deltas against the one that runs when they come.
func makeReleases(dir, programs string, out io.Writer) ([]release, error) {
	const base = 6 << 10 // KiB: the layer that a distribution's files would be
	stock := bed.Shop{Ref: "shop/stock:1", Version: "1", Service: "stock", Base: base, Count: "/var/shop/visits"}
	webs := []bed.Shop{
		{Version: "1", Base: base},
		{Version: "2", Base: base, Winter: true},
		{Version: "3", Base: base, Winter: true, Mode: "unhealthy"},
		{Version: "4", Base: base, Winter: true},
	}
	stockArchive := filepath.Join(dir, "stock-1.tar")
	if err := archive(stock, stockArchive); err != nil {
		return nil, err
	}
	var releases []release
	for i, web := range webs {
		web.Ref = "shop/web:" + web.Version
		if err := archive(web, webArchive(dir, web.Version)); err != nil {
			return nil, err
		}
		manifests := filepath.Join(dir, "manifests-"+web.Version)
		if err := writeManifests(manifests, web.Version); err != nil {
			return nil, err
		}
		r := release{version: web.Version}
		full := []string{"--image", webArchive(dir, web.Version), "--image", stockArchive}
		var err error
		r.whole = filepath.Join(dir, "shop-"+r.version+"-whole.mender")
		if r.full, err = r.generate(programs, r.whole, manifests, full); err != nil {
			return nil, err
		}
		r.artifact, r.sent = r.whole, r.full
		if i > 0 {
			// Release 2 comes over 1; 3 and 4 come over 2. What is current is
			// taken from the older artifact, as on a build host that keeps them.
			old := releases[min(i-1, 1)]
			r.artifact = filepath.Join(dir, "shop-"+r.version+".mender")
			r.sent, err = r.generate(programs, r.artifact, manifests, []string{
				"--image", old.current("shop/web:"+old.version) + "," + webArchive(dir, web.Version),
				"--image", old.current("shop/stock:1") + "," + stockArchive,
			})
			if err != nil {
				return nil, err
			}
		}
		fmt.Fprintf(out, "    release %s  %s", r.version, size(r.sent))
		if r.sent != r.full {
			fmt.Fprintf(out, " as a deep delta (%s whole)", size(r.full))
		}
		fmt.Fprintln(out)
		releases = append(releases, r)
	}
	return releases, nil
}

func webArchive(dir, version string) string {
	return filepath.Join(dir, "web-"+version+".tar")
}

func archive(s bed.Shop, path string) error {
	image, err := s.Image()
	if err != nil {
		return err
	}
	return bed.WriteArchive(path, image)
}

// writeManifests copies the example's compose file and says which release it is.
func writeManifests(dir, version string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	compose, err := os.ReadFile(filepath.Join(bed.Repository(), "examples/shop/compose.yaml"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "compose.yaml"), compose, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, ".env"), []byte("RELEASE="+version+"\n"), 0o644)
}

// generate runs app-gen as a release engineer would and returns the
// artifact's size.
func (r *release) generate(programs, artifact, manifests string, images []string) (int64, error) {
	args := append([]string{
		"--application-name", "shop", "--artifact-name", "shop-" + r.version,
		"--software-version", r.version,
		"--device-type", bed.Type, "--platform", bed.Platform(),
		"--orchestrator", "docker-compose", "--manifests-dir", manifests,
		"--output-path", artifact,
	}, withScheme(images)...)
	cmd := exec.Command(filepath.Join(programs, "app-gen"), args...)
	text, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("app-gen %s: %w\n%s", strings.Join(args, " "), err, text)
	}
	info, err := os.Stat(artifact)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// current names an image of this release, for a delta against it. A delta
// does not hold whole images, so the artifact with the whole ones is meant.
func (r *release) current(ref string) string {
	return "mender:" + r.whole + "#" + ref
}

// withScheme says of each archive among app-gen's arguments what it is.
func withScheme(args []string) []string {
	var out []string
	for _, a := range args {
		current, image, both := strings.Cut(a, ",")
		switch {
		case both:
			a = current + ",docker-archive:" + image
		case strings.HasSuffix(a, ".tar"):
			a = "docker-archive:" + a
		}
		out = append(out, a)
	}
	return out
}
