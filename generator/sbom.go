package generator

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"runtime/debug"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/generator/sbom"
)

// packages lists what is in each image. A bill of materials that came with the
// image goes before the package databases in its layers.
func (r *run) packages(ctx context.Context, images []foundImage) (map[image.Digest][]sbom.Package, error) {
	all := map[image.Digest][]sbom.Package{}
	for _, img := range images {
		if _, done := all[img.digest()]; done {
			continue
		}
		var list []sbom.Package
		for _, b := range img.Attestations {
			found, err := sbom.ParseAttestation(b)
			if err != nil {
				r.warn("%s: %v", img.URL, err)
			}
			list = append(list, found...)
		}
		if list == nil {
			tree, err := sbom.ReadTree(ctx, img.Image)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", img.URL, err)
			}
			var warnings []string
			if list, warnings, err = tree.Packages(ctx); err != nil {
				return nil, fmt.Errorf("%s: %w", img.URL, err)
			}
			for _, w := range warnings {
				r.warn("%s: %s", img.URL, w)
			}
		}
		all[img.digest()] = list
	}
	return all, nil
}

// writeSBOM writes the bill of materials of the artifact as CycloneDX 1.6 in
// JSON: the application, its images, and the packages in each of them. The same
// images give the same bytes.
func (r *run) writeSBOM(w io.Writer, p *plan, packages map[image.Digest][]sbom.Package) error {
	app := &r.Application
	root := cdx.Component{BOMRef: "application", Type: cdx.ComponentTypeApplication, Name: app.Name, Version: r.Artifact.Software.Version}
	var images []cdx.Component
	dependsOn := []string{}
	dependencies := []cdx.Dependency{}
	for i := range p.images {
		img := &p.images[i]
		c := imageComponent(img)
		refs := []string{}
		var parts []cdx.Component
		for _, pkg := range packages[img.digest()] {
			part := packageComponent(c.BOMRef, pkg)
			parts = append(parts, part)
			refs = append(refs, part.BOMRef)
		}
		if parts != nil {
			c.Components = &parts
		}
		images = append(images, c)
		dependsOn = append(dependsOn, c.BOMRef)
		dependencies = append(dependencies, cdx.Dependency{Ref: c.BOMRef, Dependencies: &refs})
	}
	dependencies = append([]cdx.Dependency{{Ref: root.BOMRef, Dependencies: &dependsOn}}, dependencies...)
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{
		Timestamp: r.Build.ModTime.UTC().Format("2006-01-02T15:04:05Z"),
		Component: &root,
		Tools:     &cdx.ToolsChoice{Components: &[]cdx.Component{{Type: cdx.ComponentTypeApplication, Name: "app-gen", Version: toolVersion()}}},
		Properties: &[]cdx.Property{
			{Name: "mender-app:artifact-name", Value: r.Artifact.Name},
			{Name: "mender-app:orchestrator", Value: app.Orchestrator},
			{Name: "mender-app:platform", Value: app.Platform.String()},
		},
	}
	bom.Components, bom.Dependencies = &images, &dependencies
	content, err := json.Marshal(bom)
	if err != nil {
		return err
	}
	// a UUID as RFC 9562 makes it from other data (version 8)
	id := sha256.Sum256(content)
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80
	bom.SerialNumber = fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", id[0:4], id[4:6], id[6:8], id[8:10], id[10:16])
	return cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6)
}

func imageComponent(img *plannedImage) cdx.Component {
	c := cdx.Component{
		BOMRef: img.URL + "@" + img.digest().String(), Type: cdx.ComponentTypeContainer, Name: img.URL, Version: img.digest().String(),
		Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: img.digest().Hex()}},
	}
	properties := []cdx.Property{{Name: "mender-app:platform", Value: img.Image.Platform.String()}}
	for _, d := range img.Image.DiffIDs {
		properties = append(properties, cdx.Property{Name: "mender-app:diff-id", Value: d.String()})
	}
	c.Properties = &properties
	if img.Manifest != "" {
		c.PackageURL = sbom.ImageURL(img.Repository, img.Manifest.String())
	}
	return c
}

func packageComponent(of string, pkg sbom.Package) cdx.Component {
	c := cdx.Component{
		BOMRef: of + "#" + pkg.URL, Type: cdx.ComponentTypeLibrary, Name: pkg.Name, Version: pkg.Version, PackageURL: pkg.URL,
		Properties: &[]cdx.Property{{Name: "mender-app:found", Value: pkg.Found}},
	}
	if pkg.License != "" {
		c.Licenses = &cdx.Licenses{{License: &cdx.License{Name: pkg.License}}}
	}
	return c
}

// toolVersion is the version of this program, as the go command recorded it.
func toolVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "unknown"
	}
	return info.Main.Version
}
