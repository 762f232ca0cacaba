package generator

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/generator/gentest"
	"github.com/mender-app/mender-app/generator/inspect"
	"github.com/mender-app/mender-app/generator/source"
)

const dpkgEntry = "Package: %s\nStatus: install ok installed\nArchitecture: amd64\nVersion: %s\n\n"

func debian(packages ...string) gentest.Files {
	status := ""
	for i := 0; i < len(packages); i += 2 {
		status += fmt.Sprintf(dpkgEntry, packages[i], packages[i+1])
	}
	return gentest.Files{"etc/os-release": "ID=debian\nVERSION_ID=12\n", "var/lib/dpkg/status": status}
}

func readSBOM(t testing.TB, path string) *cdx.BOM {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	bom := new(cdx.BOM)
	require.NoError(t, cdx.NewBOMDecoder(f, cdx.BOMFileFormatJSON).Decode(bom))
	return bom
}

// The bill of materials names each package of each image, and every reference in
// it leads somewhere.
func TestSBOM(t *testing.T) {
	s := newShop(t)
	s.web2 = gentest.Image(t, "linux/amd64", debian("libc6", "2.36-9", "zlib1g", "1:1.2.13"), debian("libc6", "2.36-10", "zlib1g", "1:1.2.13"))
	s.side = gentest.Image(t, "linux/amd64", gentest.Files{"lib/apk/db/installed": "P:musl\nV:1.2.5-r8\nA:x86_64\nL:MIT\n\n"})
	gentest.DockerArchive(t, s.archive("web:2"), map[string]v1.Image{"shop/web:2": s.web2})
	gentest.DockerArchive(t, s.archive("side:1"), map[string]v1.Image{"shop/side:1": s.side})
	for _, pairs := range [][]string{{"web:2", "side:1"}, {"web:1,web:2", "side:1,side:1"}} {
		o := s.options(t, pairs...)
		o.Build.SBOM = filepath.Join(t.TempDir(), "sbom.json")
		_, err := Generate(t.Context(), o, false)
		require.NoError(t, err)
		without := s.options(t, pairs...)
		without.Application.ManifestsDir = o.Application.ManifestsDir
		_, err = Generate(t.Context(), without, false)
		require.NoError(t, err)
		require.Equal(t, sumOf(t, without.Build.Output), sumOf(t, o.Build.Output), "the artifact is the same")

		bom := readSBOM(t, o.Build.SBOM)
		require.Equal(t, cdx.SpecVersion1_6, bom.SpecVersion)
		require.Regexp(t, `^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, bom.SerialNumber)
		require.Equal(t, "shop", bom.Metadata.Component.Name)
		require.Equal(t, "shop-2", bom.Metadata.Component.Version)
		refs := map[string]bool{bom.Metadata.Component.BOMRef: true}
		var urls []string
		for _, img := range *bom.Components {
			require.Equal(t, cdx.ComponentTypeContainer, img.Type)
			require.False(t, refs[img.BOMRef])
			refs[img.BOMRef] = true
			for _, p := range *img.Components {
				require.False(t, refs[p.BOMRef])
				refs[p.BOMRef] = true
				urls = append(urls, img.Name+" "+p.PackageURL)
			}
		}
		require.Equal(t, []string{
			"shop/web:2 pkg:deb/debian/libc6@2.36-10?arch=amd64&distro=debian-12",
			"shop/web:2 pkg:deb/debian/zlib1g@1:1.2.13?arch=amd64&distro=debian-12",
			"shop/side:1 pkg:apk/alpine/musl@1.2.5-r8?arch=x86_64",
		}, urls)
		require.Equal(t, gentest.Digest(t, s.web2), (*bom.Components)[0].Version)
		named := 0
		for _, d := range *bom.Dependencies {
			require.True(t, refs[d.Ref], d.Ref)
			for _, ref := range *d.Dependencies {
				require.True(t, refs[ref], ref)
				named++
			}
		}
		require.Equal(t, len(refs)-1, named)

		first, err := os.ReadFile(o.Build.SBOM)
		require.NoError(t, err)
		_, err = Generate(t.Context(), o, false)
		require.NoError(t, err)
		again, err := os.ReadFile(o.Build.SBOM)
		require.NoError(t, err)
		require.Equal(t, string(first), string(again), "the same bytes")
	}
}

// A bill of materials that lies beside an image in its registry or layout is used.
func TestSBOMFromAttestation(t *testing.T) {
	img := gentest.Image(t, "linux/amd64", debian("wrong", "0"))
	digest, err := img.Digest()
	require.NoError(t, err)
	statement := `{"predicateType": "https://spdx.dev/Document", "predicate": {"packages": [
		{"name": "right", "versionInfo": "1", "externalRefs": [{"referenceType": "purl", "referenceLocator": "pkg:generic/right@1"}]}]}}`
	layer := static.NewLayer([]byte(statement), types.MediaType("application/vnd.in-toto+json"))
	attestation, err := mutate.Append(mutate.MediaType(empty.Image, types.OCIManifestSchema1), mutate.Addendum{
		Layer: layer, MediaType: "application/vnd.in-toto+json", Annotations: map[string]string{"in-toto.io/predicate-type": "https://spdx.dev/Document"},
	})
	require.NoError(t, err)
	index := mutate.AppendManifests(gentest.Index(t, img), mutate.IndexAddendum{Add: attestation, Descriptor: v1.Descriptor{
		Platform:    &v1.Platform{OS: "unknown", Architecture: "unknown"},
		Annotations: map[string]string{"vnd.docker.reference.type": "attestation-manifest", "vnd.docker.reference.digest": digest.String()},
	}})
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	host := gentest.Registry(t, "", "")
	gentest.Push(t, host+"/shop/web:2", index, "", "")
	s := newShop(t)
	dir := gentest.Layout(t, filepath.Join(t.TempDir(), "layout"), "latest", index)
	fromLayout := s.options(t)
	fromLayout.Application.ManifestsDir = s.manifests(t, "web:2")
	inLayout, err := source.Parse("oci:" + dir + "=shop/web:2")
	require.NoError(t, err)
	fromLayout.Images.Pairs = []Pair{{New: inLayout}}
	fromLayout.Build.SBOM = filepath.Join(t.TempDir(), "sbom.json")
	made, err := Generate(t.Context(), fromLayout, false)
	require.NoError(t, err)
	require.Empty(t, made.Warnings)
	require.Equal(t, "pkg:generic/right@1", (*(*readSBOM(t, fromLayout.Build.SBOM).Components)[0].Components)[0].PackageURL)

	// a damaged one is not used: what the layers say goes into the document
	sum, err := layer.Digest()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "blobs/sha256", sum.Hex), []byte(strings.Replace(statement, "right", "wrong", 1)), 0o600))
	made, err = Generate(t.Context(), fromLayout, false)
	require.NoError(t, err)
	require.Len(t, made.Warnings, 1)
	require.Contains(t, made.Warnings[0], "cannot read its bill of materials")
	require.Contains(t, (*(*readSBOM(t, fromLayout.Build.SBOM).Components)[0].Components)[0].PackageURL, "pkg:deb/debian/wrong@0")

	o := s.options(t)
	o.Application.ManifestsDir = s.manifests(t, "web:2")
	spec, err := source.Parse(host + "/shop/web:2=shop/web:2")
	require.NoError(t, err)
	o.Images.Pairs = []Pair{{New: spec}}
	o.Build.SBOM, o.Build.Provenance = filepath.Join(t.TempDir(), "sbom.json"), filepath.Join(t.TempDir(), "provenance.json")
	r, err := Generate(t.Context(), o, false)
	require.NoError(t, err)
	require.Empty(t, r.Warnings)
	c := (*readSBOM(t, o.Build.SBOM).Components)[0]
	require.Len(t, *c.Components, 1)
	require.Equal(t, "pkg:generic/right@1", (*c.Components)[0].PackageURL)
	image := "pkg:oci/web@" + digest.String() + "?repository_url=" + host + "%2Fshop%2Fweb"
	require.Equal(t, image, c.PackageURL)
	require.Equal(t, image, readStatement(t, o.Build.Provenance).Predicate.BuildDefinition.ResolvedDependencies[0].URI)
}

func readStatement(t testing.TB, path string) *inTotoStatement {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	s := new(inTotoStatement)
	require.NoError(t, json.Unmarshal(b, s))
	return s
}

func sumOf(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return fmt.Sprintf("%x", sha256.Sum256(b))
}

// The provenance names what went in, by digests, and what came out.
func TestProvenance(t *testing.T) {
	s := newShop(t)
	o := s.options(t, "web:1,web:2", "side:1")
	o.Build.Provenance = filepath.Join(t.TempDir(), "provenance.json")
	_, err := Generate(t.Context(), o, false)
	require.NoError(t, err)
	p := readStatement(t, o.Build.Provenance)
	require.Equal(t, "https://in-toto.io/Statement/v1", p.Type)
	require.Equal(t, "https://slsa.dev/provenance/v1", p.PredicateType)
	require.Equal(t, []resource{{Name: "a.mender", Digest: map[string]string{"sha256": sumOf(t, o.Build.Output)}}}, p.Subject)
	d, err := inspect.Artifact(t.Context(), o.Build.Output, nil, t.TempDir())
	require.NoError(t, err)
	type dependency struct{ role, name, digest, file string }
	var have []dependency
	for _, r := range p.Predicate.BuildDefinition.ResolvedDependencies {
		file, _ := r.Annotations["fileSHA256"].(string)
		have = append(have, dependency{r.Annotations["role"].(string), r.Name, r.Digest["sha256"], file})
	}
	hex := func(img v1.Image) string { return gentest.Digest(t, img)[len("sha256:"):] }
	require.Equal(t, []dependency{
		{"image", "shop/web:2", hex(s.web2), sumOf(t, s.archive("web:2"))},
		{"base", "shop/web:1", hex(s.web1), sumOf(t, s.archive("web:1"))},
		{"image", "shop/side:1", hex(s.side), sumOf(t, s.archive("side:1"))},
		{"manifests", "manifests.tar.gz", d.Files[1].SHA256, ""},
	}, have)
	require.Equal(t, "shop", p.Predicate.BuildDefinition.ExternalParameters["application"])
}

// Reports cannot overwrite each other or the artifact, and come with it or not
// at all.
func TestReportsGoWithTheArtifact(t *testing.T) {
	s := newShop(t)
	for name, c := range map[string]struct {
		set  func(*Build)
		want string
	}{
		"the artifact":   {func(b *Build) { b.SBOM = b.Output }, "is named for two outputs"},
		"each other":     {func(b *Build) { b.SBOM, b.Provenance = b.Output+".json", b.Output+".json" }, "is named for two outputs"},
		"no directory":   {func(b *Build) { b.SBOM = filepath.Join(b.Output, "none/x.json") }, "no such file or directory"},
		"a directory":    {func(b *Build) { b.Provenance = filepath.Dir(b.Output) }, "is not a file"},
		"a failing sign": {func(b *Build) { b.SBOM = b.Output + ".json" }, "sign: permission denied"},
	} {
		t.Run(name, func(t *testing.T) {
			o := s.options(t, "web:2")
			if name == "a failing sign" {
				o.Artifact.Signing.Sign = func([]byte) ([]byte, error) { return nil, os.ErrPermission }
			}
			c.set(&o.Build)
			_, err := Generate(t.Context(), o, false)
			require.ErrorContains(t, err, c.want)
			left, err := os.ReadDir(filepath.Dir(o.Build.Output))
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}
