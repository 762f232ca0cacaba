package generator

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/artifact/statement"
	"github.com/mender-app/mender-app/generator/write"
)

// write writes the artifact and its reports beside their paths.
func (r *run) write(ctx context.Context, p *plan, out *payload) error {
	a := &r.Artifact
	spec := mender.Spec{
		Name:          a.Name,
		Group:         a.Group,
		DeviceTypes:   a.DeviceTypes,
		DependsNames:  a.DependsNames,
		DependsGroups: a.DependsGroups,
		Scripts:       a.Scripts,
		PayloadType:   mender.PayloadTypeApp,
		Provides:      map[string]string{},
		Depends:       map[string][]string{},
	}
	if !a.Software.NoVersion {
		spec.Provides[a.Software.VersionKey()] = a.Software.Version
	}
	if r.policy != nil && r.Application.Version != "" && !a.Software.NoVersion {
		spec.Provides[a.Software.ApplicationVersionKey()] = r.Application.Version
	}
	if !a.Software.NoClears {
		spec.ClearsProvides = a.Software.Clears()
	}
	for _, c := range a.Clears {
		if !slices.Contains(spec.ClearsProvides, c) {
			spec.ClearsProvides = append(spec.ClearsProvides, c)
		}
	}
	maps.Copy(spec.Provides, a.Provides)
	maps.Copy(spec.Depends, a.Depends)
	// What a delta depends on because of its bases is how the release travels, so the
	// statement does not say it: the device checks the bases.
	var err error
	if spec.MetaData, err = r.metadata(p, out, statement.ReachToWrite(&spec)); err != nil {
		return err
	}
	for key, values := range p.Depends {
		if _, given := spec.Depends[key]; !given {
			spec.Depends[key] = values
		}
	}
	for _, f := range []struct{ name, path string }{{artifact.ImagesPayload, out.images}, {artifact.ManifestsPayload, out.manifests}} {
		if f.path == "" {
			continue
		}
		file, err := fileOf(f.name, f.path)
		if err != nil {
			return &write.Error{Err: err}
		}
		spec.Files = append(spec.Files, file)
	}
	// The artifact comes last in r.written: where it is, its reports are too.
	return r.writeOutput(ctx, r.Build.Output, func(w io.Writer) error {
		tell := metered.Sum(func(n int64) { r.tell("write", r.Build.Output, n, -1) })
		sum := sha256.New()
		o := a.Signing.options()
		o.Compression, o.ModTime, o.TempDir = a.Compression, r.Build.ModTime, r.temp
		err := mender.Write(metered.Writer(ctx, io.MultiWriter(w, sum), tell), spec, o)
		if err != nil {
			return err
		}
		return r.writeReports(ctx, p, out, digest.OfHash(sum))
	})
}

// writeOutput writes a file of the result.
func (r *run) writeOutput(ctx context.Context, path string, fill func(io.Writer) error) error {
	f, err := write.Create(ctx, path, r.Build.TempDir)
	if err != nil {
		return err
	}
	err = fill(f)
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		f.Abort()
		return err
	}
	r.written = append(r.written, f)
	return nil
}

// writeReports writes the bill of materials and the provenance, if they are
// asked for.
func (r *run) writeReports(ctx context.Context, p *plan, out *payload, artifact digest.Digest) error {
	if path := r.Build.SBOM; path != "" {
		err := r.writeOutput(ctx, path, func(w io.Writer) error { return r.billOf(p).Write(w) })
		if err != nil {
			return err
		}
	}
	if path := r.Build.Provenance; path != "" {
		return r.writeOutput(ctx, path, func(w io.Writer) error { return r.writeProvenance(w, p, out, artifact) })
	}
	return nil
}

func fileOf(name, path string) (mender.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return mender.File{}, err
	}
	return mender.File{Name: name, Size: info.Size(), Open: func() (io.ReadCloser, error) { return os.Open(path) }}, nil
}

func (r *run) metadata(p *plan, out *payload, reach *statement.Reach) ([]byte, error) {
	app := &r.Application
	m := &artifact.Metadata{
		Version:            p.Version,
		ApplicationName:    app.Name,
		Orchestrator:       app.Orchestrator,
		Platform:           app.Platform.String(),
		ApplicationVersion: app.Version,
		Reboot:             app.Reboot,
		Components:         out.components,
		Sizes:              &out.sizes,
		Made:               r.made,
	}
	for k, v := range app.Env {
		if v == "" {
			continue
		}
		if m.Env == nil {
			m.Env = map[string]string{}
		}
		m.Env[k] = v
	}
	for i := range p.images {
		m.Images = append(m.Images, p.images[i].digest().Hex())
		for _, b := range p.images[i].bases {
			m.Images = append(m.Images, b.Image.ConfigDigest.Hex())
		}
	}
	for i := range p.files {
		m.Images = append(m.Images, p.files[i].Digest.Hex())
		for _, b := range p.files[i].bases {
			m.Images = append(m.Images, b.digest.Hex())
		}
	}
	slices.Sort(m.Images)
	m.Images = slices.Compact(m.Images)
	if p.Version == artifact.VersionCurrent {
		m.Requires = []string{artifact.FeatureDelta}
	}
	if slices.ContainsFunc(out.components, func(c artifact.Component) bool { return c.Format == artifact.FormatVariants }) {
		m.Requires = append(m.Requires, artifact.FeatureVariants)
	}
	if r.policy != nil {
		m.Version, m.Policy = artifact.VersionCurrent, r.policy
		m.Requires = append(m.Requires, artifact.FeaturePolicy)
	}
	if out.sealed {
		m.Version, m.Recipients = artifact.VersionCurrent, out.recipients
		m.Requires = append(m.Requires, artifact.FeatureSecrets)
	}
	if len(p.files) > 0 && m.Version == artifact.VersionCurrent {
		m.Requires = append(m.Requires, artifact.FeatureFiles)
	}
	about := statement.Of(m, out.digest)
	if r.Artifact.Signing.signs() && !r.lacks(artifact.FeatureReach) {
		about.Reach = reach
		m.Requires = append(m.Requires, artifact.FeatureReach)
	}
	if e := r.Artifact.Expiry; !e.Expires.IsZero() {
		about.Issued, about.Expires = e.Issued, e.Expires
		m.Requires = append(m.Requires, artifact.FeatureExpiry)
	}
	m.Revocations = r.Artifact.Revocations
	if err := r.checkRequired(m.Requires); err != nil {
		return nil, err
	}
	var err error
	if m.Statement, err = statement.Sign(about, r.Artifact.Signing.options()); err != nil {
		return nil, err
	}
	b, err := m.Encode()
	if err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	return b, nil
}
