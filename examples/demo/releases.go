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
	full     int64  // bytes of the artifact with whole images
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
		if r.full, err = r.generate(programs, dir, manifests, full); err != nil {
			return nil, err
		}
		r.sent = r.full
		if i > 0 {
			// Release 2 comes over 1; 3 and 4 come over 2.
			old := webArchive(dir, webs[min(i-1, 1)].Version)
			r.sent, err = r.generate(programs, dir, manifests, []string{
				"--deep-delta", "--image", old + "," + webArchive(dir, web.Version), "--image", stockArchive + "," + stockArchive,
			})
			if err != nil {
				return nil, err
			}
		}
		fmt.Fprintf(out, "    shop-%s.mender  %s", r.version, size(r.sent))
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
func (r *release) generate(programs, dir, manifests string, images []string) (int64, error) {
	r.artifact = filepath.Join(dir, "shop-"+r.version+".mender")
	args := append([]string{
		"--application-name", "shop", "--artifact-name", "shop-" + r.version,
		"--software-version", r.version,
		"--device-type", bed.Type, "--platform", bed.Platform(),
		"--orchestrator", "docker-compose", "--manifests-dir", manifests,
		"--output-path", r.artifact,
	}, withScheme(images)...)
	cmd := exec.Command(filepath.Join(programs, "app-gen"), args...)
	text, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("app-gen %s: %w\n%s", strings.Join(args, " "), err, text)
	}
	info, err := os.Stat(r.artifact)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// withScheme says of each archive among app-gen's arguments what it is.
func withScheme(args []string) []string {
	var out []string
	for _, a := range args {
		if strings.HasSuffix(a, ".tar") {
			parts := strings.Split(a, ",")
			for i := range parts {
				parts[i] = "docker-archive:" + parts[i]
			}
			a = strings.Join(parts, ",")
		}
		out = append(out, a)
	}
	return out
}
