package cluster

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

// Applied reports whether a manager owns fields of an object by server-side
// apply.
func Applied(o *unstructured.Unstructured, manager string) bool {
	for _, f := range o.GetManagedFields() {
		if f.Manager == manager && f.Operation == metav1.ManagedFieldsOperationApply {
			return true
		}
	}
	return false
}

// TakeFields makes the application's manager the owner of the fields that the
// shared manager owns. Without it, a field that a release no longer has would stay:
// the server removes only fields that no manager owns.
func (c *Cluster) TakeFields(ctx context.Context, m *meta.RESTMapping, i ID) error {
	err := c.settle(ctx, func() error {
		o, err := c.resource(m, i.Namespace).Get(ctx, i.Name, metav1.GetOptions{})
		if err != nil || !Applied(o, SharedManager) || Applied(o, c.Manager) {
			return err
		}
		fields := o.GetManagedFields()
		for n := range fields {
			if fields[n].Manager == SharedManager {
				fields[n].Manager = c.Manager
			}
		}
		// The version makes the server refuse the patch if someone else was faster.
		data, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"managedFields": fields, "resourceVersion": o.GetResourceVersion(),
		}})
		if err != nil {
			return err
		}
		_, err = c.resource(m, i.Namespace).Patch(ctx, i.Name, types.MergePatchType, data, metav1.PatchOptions{FieldManager: c.Manager})
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
