package generator

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/mender"
)

// write makes the artifact beside the output path and moves it there when it
// is complete and on disk.
func (g *generation) write(ctx context.Context, p *payload) error {
	meta, err := g.metadata(p)
	if err != nil {
		return err
	}
	spec := mender.Spec{
		Name:          g.ArtifactName,
		Group:         g.Group,
		DeviceTypes:   g.DeviceTypes,
		DependsNames:  g.DependsNames,
		DependsGroups: g.DependsGroups,
		PayloadType:   mender.PayloadTypeApp,
		Provides:      map[string]string{},
		Depends:       map[string][]string{},
		MetaData:      meta,
	}
	provides, clears := mender.SoftwareProvides(g.Software.Filesystem, g.Software.Name, g.Software.Version)
	if !g.Software.NoVersion {
		maps.Copy(spec.Provides, provides)
	}
	if !g.Software.NoClears {
		spec.ClearsProvides = clears
	}
	for _, c := range g.Clears {
		if !slices.Contains(spec.ClearsProvides, c) {
			spec.ClearsProvides = append(spec.ClearsProvides, c)
		}
	}
	maps.Copy(spec.Provides, g.Provides)
	maps.Copy(spec.Depends, g.result.Depends)
	maps.Copy(spec.Depends, g.Depends)
	for _, f := range []struct{ name, path string }{{imagesFile, p.images}, {manifestsFile, p.manifests}} {
		if f.path == "" {
			continue
		}
		file, err := fileOf(f.name, f.path)
		if err != nil {
			return &WriteError{err}
		}
		spec.Files = append(spec.Files, file)
	}
	return replaceFile(g.Output, func(w io.Writer) error {
		var done int64
		return mender.Write(&told{ctx: ctx, w: w, tell: func(n int64) {
			done += n
			g.tell("write", g.Output, done, -1)
		}}, spec, mender.Options{Compression: g.Compression, Key: g.Key, ModTime: g.ModTime, TempDir: g.temp})
	})
}

func fileOf(name, path string) (mender.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return mender.File{}, err
	}
	return mender.File{Name: name, Size: info.Size(), Open: func() (io.ReadCloser, error) { return os.Open(path) }}, nil
}

func (g *generation) metadata(p *payload) ([]byte, error) {
	m := &artifact.Metadata{
		Version:            g.result.Version,
		ApplicationName:    g.ApplicationName,
		Orchestrator:       g.Orchestrator,
		Platform:           g.Platform.String(),
		ApplicationVersion: g.ApplicationVersion,
		Reboot:             g.Reboot,
		Components:         p.components,
		Sizes:              &p.sizes,
	}
	for k, v := range g.Env {
		if v == "" {
			continue
		}
		if m.Env == nil {
			m.Env = map[string]string{}
		}
		m.Env[k] = v
	}
	for _, img := range g.images {
		m.Images = append(m.Images, img.digest().Hex())
		for _, b := range img.bases {
			m.Images = append(m.Images, b.Image.ConfigDigest.Hex())
		}
	}
	slices.Sort(m.Images)
	m.Images = slices.Compact(m.Images)
	if g.result.Version == artifact.VersionCurrent {
		m.Requires = []string{artifact.FeatureDelta}
	}
	if slices.ContainsFunc(p.components, func(c artifact.Component) bool { return c.Format == artifact.FormatVariants }) {
		m.Requires = append(m.Requires, artifact.FeatureVariants)
	}
	b, err := m.Encode()
	if err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	return b, nil
}

// replaceFile writes a new file beside path and renames it over path once it is
// complete and synced; on an error nothing is left of it.
func replaceFile(path string, fill func(io.Writer) error) (err error) {
	temp := fmt.Sprintf("%s.%d.tmp", path, os.Getpid())
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return &WriteError{err}
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(temp)
		}
	}()
	if err := fill(f); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return &WriteError{err}
	}
	if err := f.Close(); err != nil {
		return &WriteError{err}
	}
	if err := os.Rename(temp, path); err != nil {
		return &WriteError{err}
	}
	return nil
}

// told reports what is written, and stops when the context does.
type told struct {
	ctx  context.Context
	w    io.Writer
	tell func(int64)
}

func (t *told) Write(p []byte) (int, error) {
	if t.ctx.Err() != nil {
		return 0, context.Cause(t.ctx)
	}
	n, err := t.w.Write(p)
	t.tell(int64(n))
	if err != nil {
		return n, &WriteError{err}
	}
	return n, nil
}
