package k8s

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mender-app/mender-app/submodules/k8s/cluster"
	"github.com/mender-app/mender-app/submodules/k8s/manifest"
	"github.com/mender-app/mender-app/submodules/k8s/marks"
)

// inventoryKey is the data of the inventory: JSON, compressed.
const inventoryKey = "inventory.json.gz"

// maxInventory bounds the inventory, uncompressed, in bytes.
const maxInventory = 16 << 20

// item is one object in the inventory.
type item struct {
	cluster.ID
	// Adopted: the object existed before us and is not marked as ours. It is never
	// deleted.
	Adopted bool `json:"adopted,omitempty"`
	// Retained: the release no longer has the object, but it stayed because it holds
	// data or asks to be kept.
	Retained bool `json:"retained,omitempty"`
	// Made: it was not there before the application's first ROLLOUT. Before are the claims
	// of a StatefulSet that were.
	Made   bool     `json:"made,omitempty"`
	Before []string `json:"before,omitempty"`
	// Lent is the volume of a claim that goes with a failed first installation.
	Lent *lent `json:"lent,omitempty"`
}

// inventory lists what an application has in the cluster. It is a ConfigMap in the
// application's namespace, so it exists as long as the objects do. All objects are
// added before any is applied; once the release is healthy and the rest is pruned,
// the inventory has only the release. So after any interruption it lists at least the
// existing objects.
type inventory struct {
	App   string
	Items []item
	// Changes names the changes the release was rolled out with; see changes.Changes.
	Changes string
	// Places are the namespaces in which the inventory was found: several if the
	// application moves.
	Places []string
}

// deviceID identifies this machine without revealing its machine-id.
func deviceID() string {
	id, err := os.ReadFile("/etc/machine-id")
	if err != nil || len(bytes.TrimSpace(id)) == 0 {
		name, _ := os.Hostname()
		id = []byte(name)
	}
	sum := sha256.Sum256(append([]byte("mender-app "), bytes.TrimSpace(id)...))
	return hex.EncodeToString(sum[:8])
}

func inventoryID(app, namespace string) cluster.ID {
	return cluster.ID{Kind: "ConfigMap", Namespace: namespace, Name: marks.InventoryName(app)}
}

// ours reports whether mender-app made the object for the application. An object
// from another application's manifests has that application's label; one that an
// earlier version wrote has none.
func ours(o *unstructured.Unstructured, app string) bool {
	label := o.GetLabels()[marks.App]
	return label == "" || label == marks.Value(app)
}

// loadInventory reads the application's inventory, empty if there is none. In other
// namespaces only an inventory of this device counts, which means that the
// application moved: another device of the cluster may have an application of the
// same name. If the cluster does not let us read other namespaces, they count as
// empty.
func loadInventory(ctx context.Context, c *cluster.Cluster, app, namespace string) (*inventory, error) {
	inv := &inventory{App: app}
	list, err := c.List(ctx, "", "ConfigMap", "", marks.Inventory+"="+marks.Value(app))
	if apierrors.IsForbidden(errors.Unwrap(err)) {
		list = nil
		o, gerr := c.Get(ctx, inventoryID(app, namespace))
		if gerr != nil {
			return nil, gerr
		}
		if o != nil {
			list = append(list, *o)
		}
	} else if err != nil {
		return nil, err
	}
	for i := range list {
		o := &list[i]
		if name, _, _ := unstructured.NestedString(o.Object, "data", "app"); name != app || o.GetName() != marks.InventoryName(app) {
			continue
		}
		if !ours(o, app) {
			continue
		}
		if device, _, _ := unstructured.NestedString(o.Object, "data", "device"); o.GetNamespace() != namespace && device != deviceID() {
			continue
		}
		items, applied, err := decodeInventory(o)
		if err != nil {
			return nil, fmt.Errorf("inventory %s in %s: %w", o.GetName(), o.GetNamespace(), err)
		}
		inv.Places = append(inv.Places, o.GetNamespace())
		inv.Changes = applied
		inv.add(items...)
	}
	return inv, nil
}

func decodeInventory(o *unstructured.Unstructured) (items []item, applied string, err error) {
	text, _, err := unstructured.NestedString(o.Object, "binaryData", inventoryKey)
	if err != nil {
		return nil, "", err
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, "", err
	}
	zr, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, "", err
	}
	data, err := io.ReadAll(io.LimitReader(zr, maxInventory+1))
	if err != nil {
		return nil, "", err
	}
	if len(data) > maxInventory {
		return nil, "", fmt.Errorf("larger than %d bytes", maxInventory)
	}
	var body struct {
		Format  int    `json:"format"`
		Items   []item `json:"items"`
		Changes string `json:"changes"`
	}
	if err := json.Unmarshal(data, &body); err != nil {
		return nil, "", err
	}
	if body.Format != 1 {
		return nil, "", fmt.Errorf("format %d is newer than this program", body.Format)
	}
	return body.Items, body.Changes, nil
}

// saveInventory writes the inventory to an existing namespace.
func saveInventory(ctx context.Context, c *cluster.Cluster, inv *inventory, namespace string) error {
	data, err := json.Marshal(map[string]any{"format": 1, "items": inv.Items, "changes": inv.Changes})
	if err != nil {
		return err
	}
	var z bytes.Buffer
	zw := gzip.NewWriter(&z)
	if _, err := zw.Write(data); err != nil {
		return err
	}
	if err := zw.Close(); err != nil {
		return err
	}
	i := inventoryID(inv.App, namespace)
	body, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata":   map[string]any{"name": i.Name, "namespace": i.Namespace, "labels": map[string]string{marks.Inventory: marks.Value(inv.App), marks.App: marks.Value(inv.App)}},
		"data":       map[string]string{"app": inv.App, "device": deviceID()},
		"binaryData": map[string][]byte{inventoryKey: z.Bytes()},
	})
	if err != nil {
		return err
	}
	m, err := c.Mapping(ctx, "", "ConfigMap", "v1")
	if err != nil {
		return err
	}
	if _, err := c.Apply(ctx, m, i, body); err != nil {
		return fmt.Errorf("write inventory %s: %w", i, err)
	}
	return nil
}

// dropInventories removes the inventory from every namespace except one; "" excepts
// none.
func dropInventories(ctx context.Context, c *cluster.Cluster, inv *inventory, but string) error {
	for _, ns := range inv.Places {
		if ns == but {
			continue
		}
		if err := c.Remove(ctx, inventoryID(inv.App, ns), types.UID("")); err != nil {
			return err
		}
	}
	return nil
}

func (inv *inventory) ids() (ids []cluster.ID) {
	for _, it := range inv.Items {
		ids = append(ids, it.ID)
	}
	return ids
}

func (inv *inventory) find(i cluster.ID) *item {
	for n := range inv.Items {
		if inv.Items[n].ID == i {
			return &inv.Items[n]
		}
	}
	return nil
}

// add adds items, and replaces those with the same id. Items are in the order of
// application.
func (inv *inventory) add(items ...item) {
	have := make(map[cluster.ID]int, len(inv.Items)+len(items))
	for n, it := range inv.Items {
		have[it.ID] = n
	}
	for _, it := range items {
		if n, ok := have[it.ID]; ok {
			inv.Items[n] = it
			continue
		}
		have[it.ID] = len(inv.Items)
		inv.Items = append(inv.Items, it)
	}
	slices.SortStableFunc(inv.Items, func(a, b item) int { return manifest.Rank(a.Kind) - manifest.Rank(b.Kind) })
}
