package k8s

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore/containerd"
	"github.com/mender-app/mender-app/submodules/k8s/manifest"
)

// planned is one object of a release on its way into the cluster.
type planned struct {
	*manifest.Object
	id      id
	mapping *meta.RESTMapping // nil as long as its CRD, in this release, is not applied
	data    []byte            // what is sent
	live    *live             // nil if it is not there yet
	replace bool              // it cannot be changed, only made anew: a Job, a Pod
	images  string            // what its pods' images are; see checkImages
	same    bool              // it is there exactly as it would be applied
}

// live is what matters of an object that is there.
type live struct {
	uid     types.UID
	content [sha256.Size]byte // see contentOf
	owner   string            // the application it belongs to, by label
	other   bool              // nothing says that mender-app made it
	ending  bool              // it is being deleted
	stopped bool
	images  string
}

func liveOf(o *unstructured.Unstructured) *live {
	owner := o.GetLabels()[labelApp]
	_, stopped := o.GetAnnotations()[annoStopped]
	return &live{
		uid: o.GetUID(), content: contentOf(o), owner: owner, other: owner == "",
		ending: o.GetDeletionTimestamp() != nil, stopped: stopped,
		images: o.GetAnnotations()[annoImages],
	}
}

// contentOf is what an object says, without the server's bookkeeping: a dry run
// that returns the same would change nothing.
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
		// Not possible for what was JSON; and no two are the same then.
		data = []byte(err.Error() + string(o.GetUID()))
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
	crds      map[string]crd // "group/kind" → what a CRD of this release defines
}

type crd struct {
	namespaced bool
	versions   []string
}

// readRelease reads the manifests in dir and resolves kinds and namespaces.
// Nothing in the cluster is changed. strict is false on the way back to a
// release that was accepted once: the policy may have changed since.
func (s *session) readRelease(ctx context.Context, app, dir string, strict bool) (*release, error) {
	objects, err := manifest.Read(dir)
	if err != nil {
		return nil, submodules.Mark(err, submodules.ErrContent)
	}
	r := &release{app: app, dir: dir, namespace: s.namespace(), crds: map[string]crd{}}
	for i := range objects {
		if err := r.noteCRD(&objects[i]); err != nil {
			return nil, submodules.Mark(err, submodules.ErrContent)
		}
	}
	for i := range objects {
		p, err := s.resolve(ctx, r, &objects[i], strict)
		if err != nil {
			return nil, err
		}
		r.objects = append(r.objects, p)
	}
	return r, nil
}

// noteCRD remembers what a CustomResourceDefinition of the release defines.
func (r *release) noteCRD(o *manifest.Object) error {
	if o.Kind != "CustomResourceDefinition" || o.Group() != "apiextensions.k8s.io" {
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
	c := crd{namespaced: d.Spec.Scope != "Cluster"}
	for _, v := range d.Spec.Versions {
		c.versions = append(c.versions, v.Name)
	}
	r.crds[d.Spec.Group+"/"+d.Spec.Names.Kind] = c
	return nil
}

// resolve finds an object's resource and namespace, and refuses what the
// policy does not allow.
func (s *session) resolve(ctx context.Context, r *release, o *manifest.Object, strict bool) (*planned, error) {
	p := &planned{Object: o, id: id{Group: o.Group(), Kind: o.Kind, Name: o.Name}}
	m, err := s.c.mapping(ctx, o.Group(), o.Kind, o.Version())
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
			return nil, refuse("an object of the whole cluster: refused unless K8S_ALLOW_CLUSTER_OBJECTS in %s allows the kind %s", ConfigName, o.Kind)
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
	if p.data, err = dress(o.JSON, p.id.Namespace, r.app); err != nil {
		return nil, refuse("%w", err)
	}
	return p, nil
}

// dress puts our label and the namespace on an object.
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
	labels[labelApp] = appLabel(app)
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

// check looks at what is there, and lets the API server check every object it
// can check now, with nothing changed. Its namespaces are there, but those
// that the release itself brings.
func (s *session) check(ctx context.Context, r *release, inv *inventory) error {
	brings := map[string]bool{}
	for _, p := range r.objects {
		if p.id.Kind == "Namespace" && p.id.Group == "" {
			brings[p.id.Name] = true
		}
	}
	missing := map[string]bool{}
	for ns := range brings {
		o, err := s.c.get(ctx, id{Kind: "Namespace", Name: ns})
		if err != nil {
			return err
		}
		missing[ns] = o == nil
	}
	var now []*planned
	for _, p := range r.objects {
		if p.mapping != nil && !missing[p.id.Namespace] {
			now = append(now, p)
		}
	}
	if err := s.findLive(ctx, now); err != nil {
		return err
	}
	return each(ctx, len(now), func(ctx context.Context, i int) error { return s.checkOne(ctx, r, now[i], inv) })
}

// findLive fills in what is there of the objects, one list for each kind and
// namespace.
func (s *session) findLive(ctx context.Context, objects []*planned) error {
	type place struct{ group, kind, namespace string }
	byPlace := map[place]map[string]*planned{}
	var places []place
	for _, p := range objects {
		at := place{p.id.Group, p.id.Kind, p.id.Namespace}
		if byPlace[at] == nil {
			byPlace[at] = map[string]*planned{}
			places = append(places, at)
		}
		byPlace[at][p.id.Name] = p
	}
	return each(ctx, len(places), func(ctx context.Context, i int) error {
		at, want := places[i], byPlace[places[i]]
		if len(want) < 3 {
			for _, p := range want {
				o, err := s.c.getMapped(ctx, p.mapping, p.id)
				if err != nil {
					return err
				}
				if o != nil {
					p.live = liveOf(o)
				}
			}
			return nil
		}
		return s.c.eachOf(ctx, at.group, at.kind, at.namespace, "", func(o *unstructured.Unstructured) {
			if p := want[o.GetName()]; p != nil {
				p.live = liveOf(o)
			}
		})
	})
}

func (s *session) checkOne(ctx context.Context, r *release, p *planned, inv *inventory) error {
	if p.live != nil {
		if p.live.owner != "" && p.live.owner != appLabel(r.app) {
			return submodules.Mark(p.Errorf("it belongs to the application %s", p.live.owner), submodules.ErrContent)
		}
		if p.live.ending && !once(p.Kind) {
			return p.Errorf("it is being deleted; try again when it is gone")
		}
	}
	o, err := s.c.apply(ctx, p.mapping, p.id, p.data, true)
	if err == nil && p.Kind == "Pod" && p.live != nil && p.live.images != p.images && inv.find(p.id) != nil {
		// A pod takes a new annotation, but not the image it stands for.
		p.replace = true
		return nil
	}
	if err == nil && p.live != nil && !p.live.stopped && !p.live.ending {
		p.same = contentOf(o) == p.live.content
	}
	if err != nil && p.live != nil && once(p.Kind) && apierrors.IsInvalid(err) && immutable(err) && inv.find(p.id) != nil {
		p.replace = true
		return nil
	}
	if err != nil {
		return submodules.Mark(s.explain(r.dir, p, err), submodules.ErrContent)
	}
	return nil
}

// once reports whether objects of a kind run once, so that a changed one is
// another one.
func once(kind string) bool { return kind == "Job" || kind == "Pod" }

func immutable(err error) bool {
	return strings.Contains(err.Error(), "immutable") || strings.Contains(err.Error(), "may not change fields") ||
		strings.Contains(err.Error(), "may not add or remove containers")
}

var (
	unknownField  = regexp.MustCompile(`unknown field "([^"]+)"`)
	undeclared    = regexp.MustCompile(`: \.?([^\s:]+): field not declared in schema`)
	typedMismatch = regexp.MustCompile(`: \.?(\S+): (expected [^,:]+)`)
)

// explain turns what the API server says into one line with file and line.
func (s *session) explain(dir string, p *planned, err error) error {
	at := func(field string, format string, args ...any) error {
		return &manifest.Error{
			File: p.File, Line: manifest.Position(dir, p.Object, field),
			Err: fmt.Errorf("%s/%s: %s", p.Kind, p.Name, fmt.Sprintf(format, args...)),
		}
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return p.Errorf("%w", err)
	}
	msg := status.Status().Message
	for _, re := range []*regexp.Regexp{unknownField, undeclared} {
		if m := re.FindStringSubmatch(msg); m != nil {
			return at(m[1], "unknown field %s", m[1])
		}
	}
	if m := typedMismatch.FindStringSubmatch(msg); m != nil {
		return at(m[1], "%s: %s", m[1], m[2])
	}
	if d := status.Status().Details; d != nil && len(d.Causes) > 0 && status.Status().Reason == metav1.StatusReasonInvalid {
		c := d.Causes[0]
		return at(c.Field, "%s: %s", c.Field, c.Message)
	}
	return p.Errorf("%s", msg)
}

// checkImages refuses a release that would run an image that is not on the
// node, or make the node pull one, unless that is allowed. It writes on the
// pods which images they are of: Kubernetes sees only names, and would not
// replace a pod whose image changed under the same one.
func (s *session) checkImages(ctx context.Context, r *release) error {
	known := map[string]image.Digest{}
	for _, p := range r.objects {
		uses, err := manifest.Images(p.Object)
		if err != nil {
			return submodules.Mark(err, submodules.ErrContent)
		}
		pull := s.set.Pull || allowsPull(p.JSON)
		sum := sha256.New()
		for _, u := range uses {
			config, err := s.checkImage(ctx, r, p, u, pull, known)
			if err != nil {
				return err
			}
			fmt.Fprintf(sum, "%s\n", config)
		}
		if len(uses) == 0 {
			continue
		}
		p.images = hex.EncodeToString(sum.Sum(nil)[:16])
		if p.data, err = manifest.AnnotatePods(p.Object, p.data, annoImages, p.images); err != nil {
			return submodules.Mark(err, submodules.ErrContent)
		}
	}
	return nil
}

// checkImage judges one use of an image, and returns its config digest; "" for
// one that is allowed to be pulled.
func (s *session) checkImage(ctx context.Context, r *release, p *planned, u manifest.ImageUse, pull bool, known map[string]image.Digest) (image.Digest, error) {
	refuse := func(mark error, format string, args ...any) error {
		return submodules.Mark(&manifest.Error{
			File: p.File, Line: manifest.Position(r.dir, p.Object, u.Field),
			Err: fmt.Errorf("%s/%s: image %s: %s", p.Kind, p.Name, u.Image, fmt.Sprintf(format, args...)),
		}, mark)
	}
	if u.Policy == "Always" && !pull {
		return "", refuse(submodules.ErrContent, "imagePullPolicy Always makes the node pull it each time: write IfNotPresent or Never (the tag latest needs it written)")
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
			if has {
				config = p.Config
			}
		} else if config, err = store.Config(ctx, u.Image); err != nil {
			return "", err
		}
		known[u.Image] = config
	}
	if config == "" && (u.Policy == "Never" || !pull) {
		return "", refuse(submodules.ErrNotFound, "it is not on this node: bundle it in the artifact")
	}
	return config, nil
}

func allowsPull(data []byte) bool {
	var o struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	return json.Unmarshal(data, &o) == nil && o.Metadata.Annotations[annoAllowPull] == "true"
}
