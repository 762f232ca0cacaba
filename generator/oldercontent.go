package generator

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/mender-app/mender-app/generator/bases"
	"github.com/mender-app/mender-app/generator/source"
)

// olderContent lets r.opener find the content of images that older artifacts
// have as deltas only.
func (r *run) olderContent(ctx context.Context) error {
	chain, err := bases.NewChain(r.temp, r.tell)
	if err != nil {
		return err
	}
	r.older = chain
	chain.Elsewhere = r.opener
	r.opener.Rebuild = chain.Image
	for _, p := range r.Images.Pairs {
		for _, s := range []*source.Spec{p.Base, &p.New} {
			if s != nil && s.Kind == source.Artifact {
				chain.Artifacts = append(chain.Artifacts, s.Path)
			}
		}
	}
	for _, arg := range r.Images.Content {
		if err := r.addContent(ctx, arg); err != nil {
			return fmt.Errorf("--content %s: %w", arg, err)
		}
	}
	return nil
}

// addContent adds what --content names: an artifact, a directory of them, or an
// image.
func (r *run) addContent(ctx context.Context, arg string) error {
	path := strings.TrimPrefix(arg, string(source.Artifact)+":")
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		entries, err := os.ReadDir(path)
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), ".mender") {
				r.older.Artifacts = append(r.older.Artifacts, filepath.Join(path, e.Name()))
			}
		}
		return err
	} else if err == nil {
		r.older.Artifacts = append(r.older.Artifacts, path)
		return nil
	}
	spec, err := source.Parse(arg)
	if err != nil {
		return err
	}
	if spec.URL == "" && spec.Kind != source.Registry {
		spec.URL = "content" // the name does not matter here
	}
	found, err := r.opener.Open(ctx, spec, "")
	if err != nil {
		return err
	}
	return r.older.Add(ctx, arg, found.Image)
}
