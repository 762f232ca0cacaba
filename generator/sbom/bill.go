package sbom

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/mender-app/mender-app/artifact/image"
)

// Bill is the bill of materials of an artifact: the application, its images, and the
// packages in each of them.
type Bill struct {
	Application  string
	Version      string // of the application
	Artifact     string // the name of the artifact
	Orchestrator string
	Platform     string
	Time         time.Time
	Tool         string // version of app-gen
	Images       []Image
}

// Image is an image of a bill.
type Image struct {
	Name     string
	Digest   image.Digest
	URL      string // package URL; "" for an image that is in no registry
	Platform string
	Layers   []image.Digest
	Packages []Package
}

// ImagePackages lists the packages of an image whose layers are uncompressed files. A
// bill of materials that came with the image goes before the package databases in its
// layers. warnings tell of what could not be read.
func ImagePackages(ctx context.Context, img *image.Image, attestations [][]byte) (list []Package, warnings []string, err error) {
	for _, b := range attestations {
		found, err := ParseAttestation(b)
		if err != nil {
			warnings = append(warnings, err.Error())
		}
		list = append(list, found...)
	}
	if list != nil {
		return list, warnings, nil
	}
	tree, err := ReadTree(ctx, img)
	if err != nil {
		return nil, nil, err
	}
	list, more, err := tree.Packages(ctx)
	return list, append(warnings, more...), err
}

// Write writes the bill as CycloneDX 1.6 in JSON. The same bill gives the same bytes.
func (b *Bill) Write(w io.Writer) error {
	root := cdx.Component{BOMRef: "application", Type: cdx.ComponentTypeApplication, Name: b.Application, Version: b.Version}
	var images []cdx.Component
	dependsOn := []string{}
	dependencies := []cdx.Dependency{}
	for _, img := range b.Images {
		c := img.component()
		refs := []string{}
		var parts []cdx.Component
		for _, pkg := range img.Packages {
			part := pkg.component(c.BOMRef)
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
		Timestamp: b.Time.UTC().Format("2006-01-02T15:04:05Z"),
		Component: &root,
		Tools:     &cdx.ToolsChoice{Components: &[]cdx.Component{{Type: cdx.ComponentTypeApplication, Name: "app-gen", Version: b.Tool}}},
		Properties: &[]cdx.Property{
			{Name: "mender-app:artifact-name", Value: b.Artifact},
			{Name: "mender-app:orchestrator", Value: b.Orchestrator},
			{Name: "mender-app:platform", Value: b.Platform},
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

func (img *Image) component() cdx.Component {
	c := cdx.Component{
		BOMRef: img.Name + "@" + img.Digest.String(), Type: cdx.ComponentTypeContainer, Name: img.Name, Version: img.Digest.String(),
		Hashes:     &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: img.Digest.Hex()}},
		PackageURL: img.URL,
	}
	properties := []cdx.Property{{Name: "mender-app:platform", Value: img.Platform}}
	for _, d := range img.Layers {
		properties = append(properties, cdx.Property{Name: "mender-app:diff-id", Value: d.String()})
	}
	c.Properties = &properties
	return c
}

// component describes a package of the component of.
func (pkg *Package) component(of string) cdx.Component {
	c := cdx.Component{
		BOMRef: of + "#" + pkg.URL, Type: cdx.ComponentTypeLibrary, Name: pkg.Name, Version: pkg.Version, PackageURL: pkg.URL,
		Properties: &[]cdx.Property{{Name: "mender-app:found", Value: pkg.Found}},
	}
	if pkg.License != "" {
		c.Licenses = &cdx.Licenses{{License: &cdx.License{Name: pkg.License}}}
	}
	return c
}
