package k8s

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/k8s/cluster"
	"github.com/mender-app/mender-app/submodules/k8s/manifest"
	"github.com/mender-app/mender-app/submodules/k8s/marks"
)

// The manifests of the installed release are kept in the cluster, in a Secret beside
// the inventory, because they may contain secrets. EXPORT_MANIFEST returns them byte
// for byte.

const shippedKey = "manifests.tar.gz"

func shippedID(app, ns string) cluster.ID {
	return cluster.ID{Kind: "Secret", Namespace: ns, Name: marks.InventoryName(app)}
}

func (s *session) saveShipped(ctx context.Context, app, ns string, archive []byte) error {
	i := shippedID(app, ns)
	if archive == nil {
		s.log("warning: the manifests are too large to be kept for EXPORT_MANIFEST")
		return s.c.Remove(ctx, i, "")
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": marks.Manifests,
		"metadata": map[string]any{"name": i.Name, "namespace": i.Namespace, "labels": map[string]string{marks.Inventory: marks.Value(app), marks.App: marks.Value(app)}},
		"data":     map[string][]byte{shippedKey: archive},
	})
	if err != nil {
		return err
	}
	m, err := s.c.Mapping(ctx, "", "Secret", "v1")
	if err != nil {
		return err
	}
	if _, err := s.c.Apply(ctx, m, i, body); err != nil {
		return fmt.Errorf("keep the manifests in %s: %w", i, err)
	}
	return nil
}

// export writes the manifests of the installed release to dir.
func (s *session) export(ctx context.Context, app, dir string) error {
	inv, err := loadInventory(ctx, s.c, app, s.namespace())
	if err != nil {
		return err
	}
	for _, ns := range inv.Places {
		o, err := s.c.Get(ctx, shippedID(app, ns))
		if err != nil {
			return err
		}
		if o == nil || !ours(o, app) {
			continue
		}
		text, _, err := unstructured.NestedString(o.Object, "data", shippedKey)
		if err != nil {
			return err
		}
		archive, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return err
		}
		return manifest.Unpack(archive, dir)
	}
	return submodules.Mark(fmt.Errorf("no manifests of %s are kept in this cluster", app), submodules.ErrNotFound)
}
