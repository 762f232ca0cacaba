package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// Get returns the object, or nil if the object or its kind does not exist.
func (c *Cluster) Get(ctx context.Context, i ID) (*unstructured.Unstructured, error) {
	m, err := c.Mapping(ctx, i.Group, i.Kind, "")
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", i, err)
	}
	return c.GetMapped(ctx, m, i)
}

func (c *Cluster) GetMapped(ctx context.Context, m *meta.RESTMapping, i ID) (*unstructured.Unstructured, error) {
	var o *unstructured.Unstructured
	err := c.Retry(ctx, func() (err error) {
		o, err = c.resource(m, i.Namespace).Get(ctx, i.Name, metav1.GetOptions{})
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", i, err)
	}
	return o, nil
}

// Apply sends one object by server-side apply. The server refuses fields that
// the API does not know.
func (c *Cluster) Apply(ctx context.Context, m *meta.RESTMapping, i ID, data []byte) (*unstructured.Unstructured, error) {
	return c.ApplyAs(ctx, m, i, data, metav1.PatchOptions{FieldManager: c.Manager})
}

// TryApply returns the result of Apply from a dry run, which changes nothing.
func (c *Cluster) TryApply(ctx context.Context, m *meta.RESTMapping, i ID, data []byte, manager string) (*unstructured.Unstructured, error) {
	return c.ApplyAs(ctx, m, i, data, metav1.PatchOptions{FieldManager: manager, DryRun: []string{metav1.DryRunAll}})
}

func (c *Cluster) ApplyAs(ctx context.Context, m *meta.RESTMapping, i ID, data []byte, opts metav1.PatchOptions) (*unstructured.Unstructured, error) {
	force := true
	opts.Force, opts.FieldValidation = &force, metav1.FieldValidationStrict
	var o *unstructured.Unstructured
	err := c.settle(ctx, func() (err error) {
		o, err = c.resource(m, i.Namespace).Patch(ctx, i.Name, types.ApplyPatchType, data, opts)
		return err
	})
	return o, err
}

// settle is Retry for writes. It also repeats after conflicts: others may change
// the object more often than the API server itself repeats, or create it first.
func (c *Cluster) settle(ctx context.Context, f func() error) error {
	for try := 1; ; try++ {
		err := c.Retry(ctx, f)
		if try == 5 || !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return err
		}
		if serr := Sleep(ctx, time.Duration(try)*50*time.Millisecond); serr != nil {
			return errors.Join(serr, err)
		}
	}
}

// Patch sends a JSON merge patch. A missing object is not an error.
func (c *Cluster) Patch(ctx context.Context, i ID, patch map[string]any) error {
	m, err := c.Mapping(ctx, i.Group, i.Kind, "")
	if meta.IsNoMatchError(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", i, err)
	}
	data, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	err = c.settle(ctx, func() error {
		_, err := c.resource(m, i.Namespace).Patch(ctx, i.Name, types.MergePatchType, data, metav1.PatchOptions{FieldManager: c.Manager})
		return err
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("patch %s: %w", i, err)
	}
	return nil
}

// Remove deletes an object if it still has the uid ("" is any). The pods of a
// workload are deleted before it. Remove returns before the object is gone. A missing
// object is not an error.
func (c *Cluster) Remove(ctx context.Context, i ID, uid types.UID) error {
	m, err := c.Mapping(ctx, i.Group, i.Kind, "")
	if meta.IsNoMatchError(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", i, err)
	}
	// With foreground deletion, an object exists until everything that it owns is
	// gone. The garbage collector handles such objects one by one, which is slow, so
	// objects that own nothing are deleted in the background.
	how := metav1.DeletePropagationForeground
	if Stateless[i.Kind] {
		how = metav1.DeletePropagationBackground
	}
	opts := metav1.DeleteOptions{PropagationPolicy: &how}
	if uid != "" {
		opts.Preconditions = &metav1.Preconditions{UID: &uid}
	}
	err = c.Retry(ctx, func() error { return c.resource(m, i.Namespace).Delete(ctx, i.Name, opts) })
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete %s: %w", i, err)
	}
	return nil
}

// List returns the objects of a kind with the labels, in a namespace or ("")
// in all.
func (c *Cluster) List(ctx context.Context, group, kind, namespace, selector string) ([]unstructured.Unstructured, error) {
	var items []unstructured.Unstructured
	err := c.EachOf(ctx, group, kind, namespace, selector, func(o *unstructured.Unstructured) { items = append(items, *o) })
	return items, err
}

// EachOf calls f for each object that List would return, without keeping them.
func (c *Cluster) EachOf(ctx context.Context, group, kind, namespace, selector string, f func(*unstructured.Unstructured)) error {
	m, err := c.Mapping(ctx, group, kind, "")
	if err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	return c.pages(ctx, kind, c.resource(m, namespace), selector, f)
}

// ListResource returns the objects of a resource in a namespace. The error is "not
// found" for a resource that the API does not have.
func (c *Cluster) ListResource(ctx context.Context, r schema.GroupVersionResource, namespace string) ([]unstructured.Unstructured, error) {
	var items []unstructured.Unstructured
	err := c.pages(ctx, r.Resource, c.dyn.Resource(r).Namespace(namespace), "", func(o *unstructured.Unstructured) { items = append(items, *o) })
	return items, err
}

// pages calls f for each object that from lists. It keeps one page in memory.
func (c *Cluster) pages(ctx context.Context, what string, from dynamic.ResourceInterface, selector string, f func(*unstructured.Unstructured)) error {
	opts := metav1.ListOptions{LabelSelector: selector, Limit: 200}
	for {
		var l *unstructured.UnstructuredList
		err := c.Retry(ctx, func() (err error) {
			l, err = from.List(ctx, opts)
			return err
		})
		if err != nil {
			return fmt.Errorf("list %s: %w", what, err)
		}
		for i := range l.Items {
			f(&l.Items[i])
		}
		if opts.Continue = l.GetContinue(); opts.Continue == "" {
			return nil
		}
	}
}

// Follow calls f for each object of a kind in a namespace, and again when one changes or
// is gone, until the stream or ctx ends. A stream lasts as long as the client's limit for
// a request.
func (c *Cluster) Follow(ctx context.Context, group, kind, namespace string, f func(o *unstructured.Unstructured, gone bool)) error {
	m, err := c.Mapping(ctx, group, kind, "")
	if err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	stream, err := c.resource(m, namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("watch %s: %w", kind, err)
	}
	defer stream.Stop()
	for e := range stream.ResultChan() {
		if o, ok := e.Object.(*unstructured.Unstructured); ok && e.Type != watch.Error {
			f(o, e.Type == watch.Deleted)
		}
	}
	return ctx.Err()
}

// PodLog returns the last lines of a container's log; with previous, the log of its
// previous run.
func (c *Cluster) PodLog(ctx context.Context, namespace, pod, container string, lines int64, previous bool) ([]string, error) {
	req := c.Disco.RESTClient().Get().AbsPath("/api/v1/namespaces", namespace, "pods", pod, "log").
		Param("container", container).Param("tailLines", fmt.Sprint(lines)).Param("limitBytes", "8192")
	if previous {
		req = req.Param("previous", "true")
	}
	data, err := req.DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSpace(string(data)), "\n"), nil
}

// OpenLog opens a container's log. Each line begins with its time and a space. since is
// a bound in whole seconds, unless it is zero; lines is how many of the last lines, -1
// for all. The caller closes it.
func (c *Cluster) OpenLog(ctx context.Context, namespace, pod, container string, lines int, since time.Time, follow bool) (io.ReadCloser, error) {
	req := c.Disco.RESTClient().Get().AbsPath("/api/v1/namespaces", namespace, "pods", pod, "log").
		Param("container", container).Param("timestamps", "true").Param("follow", fmt.Sprint(follow))
	if lines >= 0 {
		req = req.Param("tailLines", fmt.Sprint(lines))
	}
	if !since.IsZero() {
		req = req.Param("sinceTime", since.UTC().Format(time.RFC3339))
	}
	return req.Stream(ctx)
}

func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// Stateless kinds have no status to wait for.
var Stateless = map[string]bool{
	"ConfigMap": true, "Secret": true, "ServiceAccount": true, "Role": true, "RoleBinding": true,
	"ClusterRole": true, "ClusterRoleBinding": true, "LimitRange": true, "PriorityClass": true,
	"StorageClass": true, "IngressClass": true, "RuntimeClass": true, "NetworkPolicy": true,
}
