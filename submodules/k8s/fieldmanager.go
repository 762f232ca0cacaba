package k8s

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// applied reports whether a manager owns fields of an object by server-side
// apply.
func applied(o *unstructured.Unstructured, manager string) bool {
	for _, f := range o.GetManagedFields() {
		if f.Manager == manager && f.Operation == metav1.ManagedFieldsOperationApply {
			return true
		}
	}
	return false
}

// manager is who a dry run of the object acts as: the fields that an older
// version applied belong to the shared manager until takeFields moves them, and
// a dry run as another one would not show that they go.
func (p *planned) manager(own string) string {
	if p.live != nil && p.live.shared {
		return sharedManager
	}
	return own
}

// takeFields makes the application's manager the owner of the fields that the
// shared one owns. Without it, a field that a release no longer has would stay:
// the server removes only those that no manager owns any more.
func (c *cluster) takeFields(ctx context.Context, m *meta.RESTMapping, i id) error {
	err := c.settle(ctx, func() error {
		o, err := c.resource(m, i.Namespace).Get(ctx, i.Name, metav1.GetOptions{})
		if err != nil || !applied(o, sharedManager) || applied(o, c.manager) {
			return err
		}
		fields := o.GetManagedFields()
		for n := range fields {
			if fields[n].Manager == sharedManager {
				fields[n].Manager = c.manager
			}
		}
		// The version makes the server refuse the patch if someone else was faster.
		data, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"managedFields": fields, "resourceVersion": o.GetResourceVersion(),
		}})
		if err != nil {
			return err
		}
		_, err = c.resource(m, i.Namespace).Patch(ctx, i.Name, types.MergePatchType, data, metav1.PatchOptions{FieldManager: c.manager})
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("take the fields of %s over: %w", i, err)
	}
	return nil
}
