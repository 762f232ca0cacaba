package k8s

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
	"github.com/mender-app/mender-app/submodules/imagestore/containerd"
	"github.com/mender-app/mender-app/submodules/k8s/manifest"
	"github.com/mender-app/mender-app/submodules/k8s/marks"
)

// checkImages refuses a release that would run an image missing on the node, or one
// that the node would have to pull, unless that is allowed. It records on each pod
// which images it runs: Kubernetes sees only names, and would not replace a pod whose
// image changed under the same name. If a registry serves the nodes, the pods' images
// get their names there.
func (s *session) checkImages(ctx context.Context, r *release) error {
	known := map[string]image.Digest{}
	for _, p := range r.objects {
		uses, err := manifest.Images(p.Object)
		if err != nil {
			return submodules.Mark(err, submodules.ErrContent)
		}
		annotated := allowsPull(p.JSON)
		sum := sha256.New()
		refs := map[string]string{}
		for _, u := range uses {
			config, err := s.checkImage(ctx, r, p, u, s.set.pullAllowed(u.Image, annotated), known)
			if err != nil {
				return err
			}
			fmt.Fprintf(sum, "%s\n", config)
			// For CHECK the image may be missing, and then has no name in the registry yet.
			if config != "" && s.set.Registry != nil && !s.checking {
				if refs[u.Image], err = s.registryRef(ctx, r, u.Image, config); err != nil {
					return err
				}
			}
		}
		if len(uses) == 0 {
			continue
		}
		p.images = hex.EncodeToString(sum.Sum(nil)[:16])
		if p.data, err = manifest.AnnotatePods(p.Object, p.data, marks.Images, p.images); err != nil {
			return submodules.Mark(err, submodules.ErrContent)
		}
		if p.data, err = manifest.SetImages(p.Object, p.data, refs); err != nil {
			return submodules.Mark(err, submodules.ErrContent)
		}
	}
	return nil
}

// registryRef returns the name of the node's image in the registry, and records that
// it must be there.
func (s *session) registryRef(ctx context.Context, r *release, written string, config image.Digest) (string, error) {
	id := imagestore.Identity{Config: config}
	if p, ok := r.pins[containerd.Canonical(written)]; ok {
		id = p.Identity
	}
	store, err := s.images(ctx)
	if err != nil {
		return "", err
	}
	r.pushes[config] = id
	return store.RegistryRef(ctx, s.set.Registry, r.app, id)
}

// checkImage checks one use of an image and returns its config digest; "" if it may
// be pulled.
func (s *session) checkImage(ctx context.Context, r *release, p *planned, u manifest.ImageUse, pull bool, known map[string]image.Digest) (image.Digest, error) {
	refuse := func(mark error, format string, args ...any) error {
		return submodules.Mark(&manifest.Error{
			File: p.File, Line: manifest.Position(r.dir, p.Object, u.Field),
			Err: fmt.Errorf("%s/%s: image %s: %s", p.Kind, p.Name, u.Image, fmt.Sprintf(format, args...)),
		}, mark)
	}
	if err := imagestore.CheckName(u.Image); err != nil {
		return "", refuse(submodules.ErrContent, "%v", err)
	}
	if u.Policy == "Always" && !pull {
		return "", refuse(submodules.ErrContent, "imagePullPolicy Always makes the node pull it each time: set IfNotPresent or Never (with the tag latest, set it explicitly)")
	}
	config, ok := known[u.Image]
	if !ok {
		store, err := s.images(ctx)
		if err != nil {
			return "", err
		}
		if p, ok := r.pins[containerd.Canonical(u.Image)]; ok {
			has, err := store.Has(ctx, p.Identity)
			if err != nil {
				return "", err
			}
			if has || s.checking {
				config = p.Config
			}
		} else if config, err = store.Config(ctx, u.Image); err != nil {
			return "", err
		}
		known[u.Image] = config
	}
	if config == "" && (u.Policy == "Never" || !pull) {
		return "", refuse(submodules.ErrNotFound, "it is not on this node: bundle it in the artifact, or let K8S_ALLOW_PULL in %s name its registry", ConfigName)
	}
	return config, nil
}

func allowsPull(data []byte) bool {
	var o struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	return json.Unmarshal(data, &o) == nil && o.Metadata.Annotations[marks.AllowPull] == "true"
}
