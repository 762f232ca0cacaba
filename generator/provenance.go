package generator

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/generator/sbom"
	"github.com/mender-app/mender-app/generator/source"
	"github.com/mender-app/mender-app/generator/write"
)

// The types of the statement. The structs below are the few fields of it that
// are used; the module github.com/in-toto/attestation brings protobuf for them.
const (
	statementType  = "https://in-toto.io/Statement/v1"
	provenanceType = "https://slsa.dev/provenance/v1"
	buildType      = "https://github.com/mender-app/mender-app/blob/main/docs/APP-GEN.md#provenance"
	builderID      = "https://github.com/mender-app/mender-app/cmd/app-gen"
)

// inTotoStatement is an in-toto statement (in-toto.io/Statement/v1) with SLSA's
// provenance (slsa.dev/provenance/v1).
type inTotoStatement struct {
	Type          string        `json:"_type"`
	Subject       []resource    `json:"subject"`
	PredicateType string        `json:"predicateType"`
	Predicate     slsaPredicate `json:"predicate"`
}

type slsaPredicate struct {
	BuildDefinition buildDefinition `json:"buildDefinition"`
	RunDetails      runDetails      `json:"runDetails"`
}

type buildDefinition struct {
	BuildType            string         `json:"buildType"`
	ExternalParameters   map[string]any `json:"externalParameters"`
	ResolvedDependencies []resource     `json:"resolvedDependencies"`
}

type runDetails struct {
	Builder builder `json:"builder"`
}

type builder struct {
	ID      string            `json:"id"`
	Version map[string]string `json:"version,omitempty"`
}

// resource is an in-toto ResourceDescriptor.
type resource struct {
	Name        string            `json:"name,omitempty"`
	URI         string            `json:"uri,omitempty"`
	Digest      map[string]string `json:"digest"`
	Annotations map[string]any    `json:"annotations,omitempty"`
}

func sha(d digest.Digest) map[string]string { return map[string]string{"sha256": d.Hex()} }

// writeProvenance writes where the artifact comes from: images, bases and
// manifests with their digests. made is the artifact's own digest.
func (r *run) writeProvenance(w io.Writer, p *plan, out *payload, made digest.Digest) error {
	var deps []resource
	files := map[string]digest.Digest{} // digests of the files that images are in
	add := func(f *source.Found, annotations map[string]any) error {
		d := resource{Name: f.URL, URI: f.From.String(), Digest: sha(f.Image.ConfigDigest), Annotations: annotations}
		annotations["digestOf"] = "image config"
		if f.Manifest != "" {
			d.URI = sbom.ImageURL(f.Repository, f.Manifest.String())
			annotations["manifest"] = f.Manifest.String()
		}
		if path := f.From.Path; path != "" {
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				if files[path] == "" {
					sum, err := digest.OfFile(path)
					if err != nil {
						return err
					}
					files[path] = sum
				}
				annotations["file"] = filepath.Base(path)
				annotations["fileSHA256"] = files[path].Hex()
			}
		}
		deps = append(deps, d)
		return nil
	}
	var images []string
	for i := range p.images {
		img := &p.images[i]
		images = append(images, img.From.String())
		if err := add(img.Found, map[string]any{"role": "image", "platform": img.Image.Platform.String()}); err != nil {
			return err
		}
		for _, b := range img.bases {
			if err := add(b, map[string]any{"role": "base", "of": img.URL}); err != nil {
				return err
			}
		}
	}
	deps = append(deps, resource{Name: artifact.ManifestsPayload, Digest: sha(out.manifestsFile), Annotations: map[string]any{"role": "manifests"}})
	parameters := map[string]any{
		"application": r.Application.Name, "artifact": r.Artifact.Name, "deviceTypes": r.Artifact.DeviceTypes,
		"orchestrator": r.Application.Orchestrator, "platform": r.Application.Platform.String(), "images": images,
	}
	if r.Application.Version != "" {
		parameters["applicationVersion"] = r.Application.Version
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(inTotoStatement{
		Type:          statementType,
		Subject:       []resource{{Name: filepath.Base(r.Build.Output), Digest: sha(made)}},
		PredicateType: provenanceType,
		Predicate: slsaPredicate{
			BuildDefinition: buildDefinition{BuildType: buildType, ExternalParameters: parameters, ResolvedDependencies: deps},
			RunDetails:      runDetails{Builder: builder{ID: builderID, Version: map[string]string{"app-gen": toolVersion()}}},
		},
	})
}

// checkReports refuses reports that would overwrite each other or the artifact.
func (b *Build) checkReports() error {
	seen := []string{filepath.Clean(b.Output)}
	for _, path := range []string{b.SBOM, b.Provenance} {
		if path == "" {
			continue
		}
		if path = filepath.Clean(path); slices.Contains(seen, path) {
			return &UsageError{Text: path + " is named for two outputs", Hint: "give --output-path, --sbom and --provenance a file each"}
		}
		seen = append(seen, path)
		if _, err := write.Check(path); err != nil {
			return err
		}
	}
	return nil
}
