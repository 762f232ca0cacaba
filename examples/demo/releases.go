package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/testdata/bed"
)

// release is a release of the shop, made into an artifact.
type release struct {
	version  string
	artifact string // path of what is sent
	sent     int64  // its bytes
	whole    int64  // bytes of an artifact with full images in gzip
}

// project is the shop as its developers have it: a directory with a Compose file. Its
// images are archives beside it, because the demo has no registry.
type project struct {
	dir      string
	archives string // directory
	programs string
	out      io.Writer
}

// makeReleases makes releases 1 to 6 as a new user would: app-gen init, then app-gen -n
// NAME for each. Images travel as deltas over the previous releases.
func makeReleases(dir, programs string, out io.Writer) ([]release, error) {
	p := project{dir: filepath.Join(dir, "shop"), archives: dir, programs: programs, out: out}
	const base = 6 << 10 // KiB: the layer that a distribution's files would be
	stock := bed.Shop{Ref: "shop/stock:1", Version: "1", Service: "stock", Base: base, Count: "/var/shop/visits"}
	if err := p.archive("stock", stock); err != nil {
		return nil, err
	}
	for _, dir := range []string{p.dir, p.noReleases()} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, err
		}
	}
	compose, err := os.ReadFile(filepath.Join(bed.Repository(), "examples/shop/compose.yaml"))
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(p.dir, "compose.yaml"), compose, 0o644); err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "    $ app-gen init --device-type %s\n", bed.Type)
	if _, err := p.appGen("init", "--device-type", bed.Type); err != nil {
		return nil, err
	}
	var releases []release
	for _, web := range []bed.Shop{
		{Version: "1", Base: base},
		{Version: "2", Base: base, Winter: true},
		{Version: "3", Base: base, Winter: true, Mode: "unhealthy"},
		{Version: "4", Base: base, Winter: true},
		{Version: "5", Base: base, Winter: true},
		{Version: "6", Base: base, Winter: true},
		{Version: "7", Base: base, Winter: true},
	} {
		web.Ref = "shop/web:" + web.Version
		if err := p.archive("web", web); err != nil {
			return nil, err
		}
		r, err := p.release(web.Version)
		if err != nil {
			return nil, err
		}
		releases = append(releases, r)
	}
	return releases, nil
}

// release makes one release with app-gen, and again with full images in gzip for
// comparison.
func (p *project) release(version string) (r release, err error) {
	if err := os.WriteFile(filepath.Join(p.dir, ".env"), []byte("RELEASE="+version+"\n"), 0o644); err != nil {
		return r, err
	}
	if err := p.policy(version); err != nil {
		return r, err
	}
	name := "shop-" + version
	r = release{version: version, artifact: filepath.Join(p.dir, "releases", name+".mender")}
	images := []string{"--image", "docker-archive:" + p.path("web"), "--image", "docker-archive:" + p.path("stock")}
	whole := filepath.Join(p.archives, "whole.mender")
	if _, err := p.appGen(append([]string{"-n", name, "--bases-from", p.noReleases(), "--deep-delta=false", "--output-path", whole}, images...)...); err != nil {
		return r, err
	}
	if r.whole, err = sizeOf(whole); err != nil {
		return r, err
	}
	command := []string{"-n", name}
	switch version { // the device has release 2; the default is 3
	case "6":
		command = append(command, "--last", "4")
	case "7":
		command = append(command, "--last", "5")
	}
	if _, err := p.appGen(append(slices.Clone(command), images...)...); err != nil {
		return r, err
	}
	if r.sent, err = sizeOf(r.artifact); err != nil {
		return r, err
	}
	fmt.Fprintf(p.out, "    $ app-gen %-17s # %s", strings.Join(command, " "), size(r.sent))
	if version != "1" {
		fmt.Fprint(p.out, " as deltas over the releases before")
	}
	fmt.Fprintf(p.out, " (%s whole in gzip)\n", size(r.whole))
	return r, nil
}

// policy writes the policy of a release. Release 5 may only follow release 4, release 6 has
// a hook that refuses, and release 7 a migration of its data.
func (p *project) policy(version string) error {
	policy := fmt.Sprintf("version = %q\n", version+".0.0")
	switch version {
	case "5":
		policy += "\n[upgrades]\nfrom_versions = ['4\\..*']\n"
	case "6":
		policy += "\n[[hooks]]\nname = \"check\"\n"
		if err := p.hook("check", "#!/bin/sh\necho 'the shop is open: update it tonight'\nexit 1\n"); err != nil {
			return err
		}
	case "7":
		policy += "\n[data]\nvolumes = [\"counts\"]\nsnapshot = true\nmigrate = \"hooks/migrate\"\n\n[[hooks]]\nname = \"migrate\"\n"
		if err := p.hook("migrate", "#!/bin/sh\ncd \"$MENDER_APP_DATA/counts\" && echo $(($(cat visits) + 1000)) >visits\n"); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(p.dir, "app.toml"), []byte(policy), 0o644)
}

// hook writes a hook of the next release, which replaces those of the previous release.
func (p *project) hook(name, script string) error {
	dir := filepath.Join(p.dir, "hooks")
	return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755))
}

// appGen runs app-gen in the project's directory and returns what it printed.
func (p *project) appGen(args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(p.programs, "app-gen"), args...)
	cmd.Dir = p.dir
	text, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("app-gen %s: %w\n%s", strings.Join(args, " "), err, text)
	}
	return string(text), nil
}

// noReleases returns an empty directory: an artifact with these bases has full images.
func (p *project) noReleases() string { return filepath.Join(p.archives, "none") }

// path is the archive of a service's image.
func (p *project) path(service string) string { return filepath.Join(p.archives, service+".tar") }

// archive writes the archive of a service's image.
func (p *project) archive(service string, s bed.Shop) error {
	image, err := s.Image()
	if err != nil {
		return err
	}
	return bed.WriteArchive(p.path(service), image)
}

func sizeOf(path string) (int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
