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
	// Adopted: it was there before us, and nothing says it is ours; it is
	// never deleted.
	Adopted bool `json:"adopted,omitempty"`
	// Retained: the release does not have it any more, and it stayed because
	// it holds data or asks to be kept.
	Retained bool `json:"retained,omitempty"`
}

// inventory is what an application has in the cluster. It is kept in the
// cluster, as a ConfigMap in the application's namespace, so that it is there
// as long as the objects are. Before anything is applied it is widened to what
// is going to be, and after a release is healthy and pruned, narrowed to it:
// after any interruption it has at least what is there.
type inventory struct {
	App   string
	Items []item
	// Places are the namespaces the inventory was found in: more than one if
	// the application moves.
	Places []string
}

// deviceID tells this machine from others, without giving its machine-id away.
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

// ours reports whether the object is mender-app's own for the application. One
// that another application's manifests brought has that application's label; one
// that an earlier version wrote has none.
func ours(o *unstructured.Unstructured, app string) bool {
	label := o.GetLabels()[marks.App]
	return label == "" || label == marks.Value(app)
}

// loadInventory reads the application's inventory, empty if there is none. In
// other namespaces than its own only one that this device wrote counts (the
// application moved): a device that shares the cluster may have an application
// of the same name. A cluster that does not let us see the others is taken to
// have none there.
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
		items, err := decodeInventory(o)
		if err != nil {
			return nil, fmt.Errorf("inventory %s in %s: %w", o.GetName(), o.GetNamespace(), err)
		}
		inv.Places = append(inv.Places, o.GetNamespace())
		inv.add(items...)
	}
	return inv, nil
}

func decodeInventory(o *unstructured.Unstructured) ([]item, error) {
	text, _, err := unstructured.NestedString(o.Object, "binaryData", inventoryKey)
	if err != nil {
		return nil, err
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, err
	}
	zr, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(zr, maxInventory+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxInventory {
		return nil, fmt.Errorf("larger than %d bytes", maxInventory)
	}
	var body struct {
		Format int    `json:"format"`
		Items  []item `json:"items"`
	}
	if err := json.Unmarshal(data, &body); err != nil {
		return nil, err
	}
	if body.Format != 1 {
		return nil, fmt.Errorf("format %d is newer than this program", body.Format)
	}
	return body.Items, nil
}

// saveInventory writes the inventory to a namespace, which is there.
func saveInventory(ctx context.Context, c *cluster.Cluster, inv *inventory, namespace string) error {
	data, err := json.Marshal(map[string]any{"format": 1, "items": inv.Items})
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

// dropInventories removes the inventory from every namespace but one; "" is
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

func (inv *inventory) find(i cluster.ID) *item {
	for n := range inv.Items {
		if inv.Items[n].ID == i {
			return &inv.Items[n]
		}
	}
	return nil
}

// add puts items in, in the place of those with the same id. Order: as they
// are applied.
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
