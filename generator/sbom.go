package generator

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/generator/sbom"
)

// packages lists what is in each image.
func (r *run) packages(ctx context.Context, images []foundImage) (map[image.Digest][]sbom.Package, error) {
	all := map[image.Digest][]sbom.Package{}
	for _, img := range images {
		if _, done := all[img.digest()]; done {
			continue
		}
		list, warnings, err := sbom.ImagePackages(ctx, img.Image, img.Attestations)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", img.URL, err)
		}
		for _, w := range warnings {
			r.warn("%s: %s", img.URL, w)
		}
		all[img.digest()] = list
	}
	return all, nil
}

// billOf is the bill of materials of the artifact.
func (r *run) billOf(p *plan) *sbom.Bill {
	app := &r.Application
	b := &sbom.Bill{
		Application: app.Name, Version: r.Artifact.Software.Version, Artifact: r.Artifact.Name,
		Orchestrator: app.Orchestrator, Platform: app.Platform.String(), Time: r.Build.ModTime, Tool: toolVersion(),
	}
	for i := range p.images {
		img := &p.images[i]
		of := sbom.Image{
			Name: img.URL, Digest: img.digest(), Platform: img.Image.Platform.String(), Layers: img.Image.DiffIDs, Packages: p.packages[img.digest()],
		}
		if img.Manifest != "" {
			of.URL = sbom.ImageURL(img.Repository, img.Manifest.String())
		}
		b.Images = append(b.Images, of)
	}
	return b
}

// toolVersion is the version of this program, as the go command recorded it.
func toolVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "unknown"
	}
	return info.Main.Version
}
