package k8s

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
	"github.com/mender-app/mender-app/submodules/k8s/cluster"
	"github.com/mender-app/mender-app/submodules/k8s/manifest"
	"github.com/mender-app/mender-app/submodules/k8s/marks"
	"github.com/mender-app/mender-app/submodules/k8s/reach"
	"github.com/mender-app/mender-app/submodules/secrets"
)

// planned is an object of a release to apply.
type planned struct {
	*manifest.Object
	id      cluster.ID
	mapping *meta.RESTMapping // nil until its CRD, which is in this release, is applied
	data    []byte            // the data to send
	live    *live             // nil if it does not exist yet
	replace bool              // it cannot be changed, only recreated: a Job or a Pod
	images  string            // the images of its pods; see checkImages
	same    bool              // it already exists exactly as it would be applied
	// samePods: the workload would keep its pods.
	samePods bool
}

// live has the facts we need about an object in the cluster.
type live struct {
	uid     types.UID
	content [sha256.Size]byte // see contentOf
	pods    [sha256.Size]byte // see podsOf
	owner   string            // the application it belongs to, by label
	other   bool              // it is not marked as made by mender-app
	shared  bool              // sharedManager owns fields of it
	ending  bool              // it is being deleted
	stopped bool
	images  string
}

func liveOf(o *unstructured.Unstructured) *live {
	owner := o.GetLabels()[marks.App]
	_, stopped := o.GetAnnotations()[marks.Stopped]
	return &live{
		uid: o.GetUID(), content: contentOf(o), pods: podsOf(o), owner: owner, other: owner == "", shared: cluster.Applied(o, cluster.SharedManager),
		ending: o.GetDeletionTimestamp() != nil, stopped: stopped,
		images: o.GetAnnotations()[marks.Images],
	}
}

// contentOf returns the hash of an object without the server's bookkeeping: if a dry
// run gives the same hash, it would change nothing.
func contentOf(o *unstructured.Unstructured) [sha256.Size]byte {
	bare := make(map[string]any, len(o.Object))
	for k, v := range o.Object {
		bare[k] = v
	}
	if m, ok := bare["metadata"].(map[string]any); ok {
		meta := make(map[string]any, len(m))
		for k, v := range m {
			if k != "managedFields" && k != "resourceVersion" {
				meta[k] = v
			}
		}
		bare["metadata"] = meta
	}
	data, err := json.Marshal(bare)
	if err != nil {
		// JSON can always be encoded again; if not, no two objects count as the
		// same.
		data = []byte(err.Error() + string(o.GetUID()))
	}
	return sha256.Sum256(data)
}

// podsOf returns the hash of the template of a workload's pods: if it stays the same,
// so do the pods.
func podsOf(o *unstructured.Unstructured) [sha256.Size]byte {
	from, ok, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "template")
	if !ok {
		from = o.Object["spec"]
	}
	data, err := json.Marshal(from)
	if err != nil {
		data = []byte(err.Error() + string(o.GetUID())) // as in contentOf
	}
	return sha256.Sum256(data)
}

// release is a set of manifests, resolved against the cluster.
type release struct {
	app       string
	dir       string
	namespace string
	objects   []*planned
	pins      map[string]pinned
	pushes    map[image.Digest]imagestore.Identity // images the registry must have
	crds      map[string]crd                       // "group/kind" → what a CRD of this release defines
}

type crd struct {
	by         *manifest.Object
	namespaced bool
	versions   []string
}

// The group and kind of custom resource definitions.
const (
	groupCRD = "apiextensions.k8s.io"
	kindCRD  = "CustomResourceDefinition"
)

// redefines reports whether the release adds or changes the definition of an
// object's kind.
func (r *release) redefines(p *planned) bool {
	own, ok := r.crds[p.Group()+"/"+p.Kind]
	return ok && slices.ContainsFunc(r.objects, func(d *planned) bool { return d.Object == own.by && !d.same })
}

// readRelease reads the manifests in dir and resolves kinds and namespaces. Nothing
// in the cluster changes. strict is false when going back to a release that was
// accepted earlier: the policy may have changed since.
func (s *session) readRelease(ctx context.Context, app, dir string, strict bool) (*release, error) {
	var keys *secrets.Keys
	objects, err := manifest.Read(dir, func(sealed io.Reader) (text []byte, err error) {
		if keys == nil {
			if keys, err = s.set.Secrets.Keys(ctx); err != nil {
				return nil, err
			}
		}
		return keys.Decrypt(sealed, names.MaxSecret)
	})
	if err != nil {
		return nil, submodules.Mark(err, submodules.ErrContent)
	}
	if objects, err = changesOf(s.req).Apply(objects, s.log); err != nil {
		return nil, err
	}
	if strict {
		if err := s.checkLevel(app, objects); err != nil {
			return nil, submodules.Mark(err, submodules.ErrContent)
		}
	}
	r := &release{app: app, dir: dir, namespace: s.namespace(), pushes: map[image.Digest]imagestore.Identity{}, crds: map[string]crd{}}
	for i := range objects {
		if err := r.noteCRD(&objects[i]); err != nil {
			return nil, submodules.Mark(err, submodules.ErrContent)
		}
	}
	values := valuesOf(objects)
	for i := range objects {
		p, err := s.resolve(ctx, r, &objects[i], strict)
		if err == nil && values[i] != "" {
			p.data, err = manifest.AnnotatePods(p.Object, p.data, marks.ValuesOf, values[i])
		}
		if err != nil {
			return nil, err
		}
		r.objects = append(r.objects, p)
	}
	return r, nil
}

// checkLevel refuses objects that reach more of the node than the application may.
func (s *session) checkLevel(app string, objects []manifest.Object) error {
	given := s.set.Levels.Of(app)
	for _, n := range reach.Needs(objects, s.namespace()) {
		if n.Level > given {
			return n.Object.Errorf("%s, which needs the level %s, and LEVEL in %s gives this application %s", n.What, n.Level, ConfigName, given)
		}
	}
	return nil
}

// noteCRD remembers what a CustomResourceDefinition of the release defines.
func (r *release) noteCRD(o *manifest.Object) error {
	if o.Kind != kindCRD || o.Group() != groupCRD {
		return nil
	}
	var d struct {
		Spec struct {
			Group string `json:"group"`
			Scope string `json:"scope"`
			Names struct {
				Kind string `json:"kind"`
			} `json:"names"`
			Versions []struct {
				Name string `json:"name"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(o.JSON, &d); err != nil {
		return o.Errorf("%w", err)
	}
	c := crd{by: o, namespaced: d.Spec.Scope != "Cluster"}
	for _, v := range d.Spec.Versions {
		c.versions = append(c.versions, v.Name)
	}
	r.crds[d.Spec.Group+"/"+d.Spec.Names.Kind] = c
	return nil
}

// resolve finds an object's resource and namespace, and refuses objects that the
// policy forbids.
func (s *session) resolve(ctx context.Context, r *release, o *manifest.Object, strict bool) (*planned, error) {
	p := &planned{Object: o, id: cluster.ID{Group: o.Group(), Kind: o.Kind, Name: o.Name}}
	m, err := s.c.Mapping(ctx, o.Group(), o.Kind, o.Version())
	own, isOwn := r.crds[o.Group()+"/"+o.Kind]
	var namespaced bool
	switch {
	case err == nil:
		p.mapping = m
		namespaced = m.Scope.Name() == meta.RESTScopeNameNamespace
	case meta.IsNoMatchError(err) && isOwn:
		namespaced = own.namespaced
	case meta.IsNoMatchError(err):
		return nil, submodules.Mark(o.Errorf("this cluster has no kind %s in %s, and no CustomResourceDefinition of the release brings it", o.Kind, o.APIVersion), submodules.ErrContent)
	default:
		return nil, o.Errorf("%w", err)
	}
	refuse := func(format string, args ...any) error {
		return submodules.Mark(o.Errorf(format, args...), submodules.ErrContent)
	}
	switch {
	case !namespaced:
		if strict && !s.set.clusterAllowed(o.Kind) && !(o.Kind == "Namespace" && o.Group() == "" && o.Name == r.namespace) {
			return nil, refuse("a cluster-wide object: refused unless K8S_ALLOW_CLUSTER_OBJECTS in %s allows the kind %s", ConfigName, o.Kind)
		}
	case o.Namespace == "" || o.Namespace == r.namespace:
		p.id.Namespace = r.namespace
	default:
		if strict && !s.set.namespaceAllowed(o.Namespace) {
			return nil, refuse("in the namespace %s, not in the application's own, %s: refused unless K8S_ALLOW_NAMESPACES in %s allows it", o.Namespace, r.namespace, ConfigName)
		}
		p.id.Namespace = o.Namespace
	}
	if p.id == inventoryID(r.app, p.id.Namespace) {
		return nil, refuse("that name is mender-app's own")
	}
	if strict {
		if err := p.checkMarks(); err != nil {
			return nil, refuse("%w", err)
		}
	}
	if p.data, err = dress(o.JSON, p.id.Namespace, r.app); err != nil {
		return nil, refuse("%w", err)
	}
	return p, nil
}

// checkMarks refuses names, types, labels and annotations that mender-app reserves.
func (p *planned) checkMarks() error {
	var o map[string]any
	if err := json.Unmarshal(p.JSON, &o); err != nil {
		return err
	}
	return marks.Check(p.Group(), p.Kind, p.Name, o)
}

// dress adds our label and the namespace to an object.
func dress(data []byte, namespace, app string) ([]byte, error) {
	var o, m map[string]json.RawMessage
	if err := json.Unmarshal(data, &o); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(o["metadata"], &m); err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	labels := map[string]any{}
	if raw, ok := m["labels"]; ok {
		if err := json.Unmarshal(raw, &labels); err != nil {
			return nil, fmt.Errorf("metadata.labels: %w", err)
		}
		if labels == nil {
			labels = map[string]any{}
		}
	}
	labels[marks.App] = marks.Value(app)
	var err error
	if m["labels"], err = json.Marshal(labels); err != nil {
		return nil, err
	}
	if namespace != "" {
		if m["namespace"], err = json.Marshal(namespace); err != nil {
			return nil, err
		}
	}
	if o["metadata"], err = json.Marshal(m); err != nil {
		return nil, err
	}
	return json.Marshal(o)
}

// manager is the field manager of an object's dry run. The fields that an older
// version applied belong to the shared manager until takeFields moves them; a dry
// run as another manager would not show that they are removed.
func (p *planned) manager(own string) string {
	if p.live != nil && p.live.shared {
		return cluster.SharedManager
	}
	return own
}
