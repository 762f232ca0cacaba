package k8s

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/k8s/cluster"
	"github.com/mender-app/mender-app/submodules/k8s/manifest"
	"github.com/mender-app/mender-app/submodules/k8s/marks"
)

// Check implements submodules.Checker: it takes the steps of rollout up to the first
// change. A service is a workload.
func (s *session) Check(ctx context.Context, _ submodules.Request) (c submodules.Changes, err error) {
	s.checking = true
	r, inv, _, err := s.prepare(ctx, s.req, true)
	if err != nil {
		return c, err
	}
	if err := s.checkImages(ctx, r); err != nil {
		return c, err
	}
	// Rollout makes the namespace before it checks the objects in it.
	if err := s.check(ctx, r, inv, r.namespace); err != nil {
		return c, err
	}
	there := map[cluster.ID]bool{}
	for _, p := range r.objects {
		there[p.id] = true
		if marks.IsService(p.Kind) {
			p.note(&c)
		}
	}
	for _, it := range inv.Items {
		if marks.IsService(it.Kind) && !it.Retained && !there[it.ID] {
			c.Removes = append(c.Removes, marks.ServiceName(it.ID.Kind, it.ID.Name))
		}
	}
	for _, list := range [][]string{c.Starts, c.Restarts, c.Keeps, c.Removes} {
		slices.Sort(list)
	}
	return c, nil
}

// note records what ROLLOUT would do with a workload.
func (p *planned) note(c *submodules.Changes) {
	list := &c.Restarts
	switch {
	case p.live == nil || p.live.stopped || p.live.ending:
		list = &c.Starts
	case p.same || p.samePods && !p.replace:
		list = &c.Keeps
	}
	*list = append(*list, marks.ServiceName(p.id.Kind, p.id.Name))
}

// check has the API server check every object that it can check now; nothing changes.
// Namespaces must exist, unless the release or the caller creates them.
func (s *session) check(ctx context.Context, r *release, inv *inventory, namespaces ...string) error {
	brings := map[string]bool{}
	for _, ns := range namespaces {
		brings[ns] = true
	}
	for _, p := range r.objects {
		if p.id.Kind == "Namespace" && p.id.Group == "" {
			brings[p.id.Name] = true
		}
	}
	missing := map[string]bool{}
	for ns := range brings {
		o, err := s.c.Get(ctx, cluster.ID{Kind: "Namespace", Name: ns})
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
	// Definitions that the release changes are applied first: with the old ones the
	// server would refuse what the new ones allow.
	definitions, rest := split(now, func(p *planned) bool { return p.Kind == kindCRD && p.Group() == groupCRD })
	for _, wave := range [][]*planned{definitions, rest} {
		err := cluster.Each(ctx, len(wave), func(ctx context.Context, i int) error { return s.checkOne(ctx, r, wave[i], inv) })
		if err != nil {
			return err
		}
	}
	return nil
}

func split[T any](all []T, first func(T) bool) (yes, no []T) {
	for _, x := range all {
		if first(x) {
			yes = append(yes, x)
		} else {
			no = append(no, x)
		}
	}
	return yes, no
}

// findLive fills in the objects that exist, with one list for each kind and
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
	return cluster.Each(ctx, len(places), func(ctx context.Context, i int) error {
		at, want := places[i], byPlace[places[i]]
		if len(want) < 3 {
			for _, p := range want {
				o, err := s.c.GetMapped(ctx, p.mapping, p.id)
				if err != nil {
					return err
				}
				if o != nil {
					p.live = liveOf(o)
				}
			}
			return nil
		}
		return s.c.EachOf(ctx, at.group, at.kind, at.namespace, "", func(o *unstructured.Unstructured) {
			if p := want[o.GetName()]; p != nil {
				p.live = liveOf(o)
			}
		})
	})
}

func (s *session) checkOne(ctx context.Context, r *release, p *planned, inv *inventory) error {
	if p.live != nil {
		if p.live.owner != "" && p.live.owner != marks.Value(r.app) {
			return submodules.Mark(p.Errorf("it belongs to the application %s", p.live.owner), submodules.ErrContent)
		}
		if p.live.ending && !once(p.Kind) {
			return p.Errorf("it is being deleted; try again when it is gone")
		}
	}
	if r.redefines(p) {
		return nil
	}
	o, err := s.c.TryApply(ctx, p.mapping, p.id, p.data, p.manager(s.c.Manager))
	if err == nil && p.Kind == "Pod" && p.live != nil && p.live.images != p.images && inv.find(p.id) != nil {
		// A pod accepts a new annotation, but not a new image.
		p.replace = true
		return nil
	}
	if err == nil && p.live != nil && !p.live.stopped && !p.live.ending {
		p.same = contentOf(o) == p.live.content
		p.samePods = podsOf(o) == p.live.pods
		if !p.samePods && keepsPods(p.Kind) && inv.find(p.id) != nil {
			p.replace = true
		}
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

// once reports whether objects of a kind run once: a changed one must be recreated.
func once(kind string) bool { return kind == "Job" || kind == "Pod" }

// keepsPods reports whether a kind keeps the pods that it has when its template changes.
func keepsPods(kind string) bool { return kind == "ReplicaSet" || kind == "ReplicationController" }

func immutable(err error) bool {
	return strings.Contains(err.Error(), "immutable") || strings.Contains(err.Error(), "may not change fields") ||
		strings.Contains(err.Error(), "may not add or remove containers")
}

var (
	unknownField  = regexp.MustCompile(`unknown field "([^"]+)"`)
	undeclared    = regexp.MustCompile(`: \.?([^\s:]+): field not declared in schema`)
	typedMismatch = regexp.MustCompile(`(?m)(?:: |^ *)\.?(\S+): (expected [^,:\n]+)`)
	// The value in a message of Kubernetes' field errors, with what is before and after it.
	quotedValue = regexp.MustCompile(`^(Invalid value|Duplicate value|Not found): (?:"(?:[^"\\]|\\.)*"|[-+.\w]+)(: .*)?$`)
)

// refused returns the error for an object that the API server refuses, where the server's
// message may contain parts of a secret.
func (p *planned) refused(s metav1.Status) error {
	what := string(s.Reason)
	if s.Details != nil && len(s.Details.Causes) > 0 && s.Reason == metav1.StatusReasonInvalid {
		what += ", " + s.Details.Causes[0].Field
	}
	return &manifest.Error{File: p.File, Line: p.Line, Err: fmt.Errorf(
		"%s/%s%s: the API server refuses it (%s); its message is not shown, because it may contain parts of a secret", p.Kind, p.Name, p.overridden(), what)}
}

// overridden names the overrides that changed the object, for an error.
func (p *planned) overridden() string {
	if len(p.Overrides) == 0 {
		return ""
	}
	return fmt.Sprintf(" (with the override %s)", strings.Join(p.Overrides, ", "))
}

// explain turns an error of the API server into one line with file and line number. It
// shows no value of a Secret, and none of an override.
func (s *session) explain(dir string, p *planned, err error) error {
	at := func(field string, format string, args ...any) error {
		return &manifest.Error{
			File: p.File, Line: manifest.Position(dir, p.Object, field),
			Err: fmt.Errorf("%s/%s%s: %s", p.Kind, p.Name, p.overridden(), fmt.Sprintf(format, args...)),
		}
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return p.Errorf("%w", err)
	}
	if p.Sealed {
		return p.refused(status.Status())
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
	secret := p.Kind == "Secret" || len(p.Overrides) > 0 // values of overrides may be secrets
	if d := status.Status().Details; d != nil && len(d.Causes) > 0 && status.Status().Reason == metav1.StatusReasonInvalid {
		c := d.Causes[0]
		if m := quotedValue.FindStringSubmatch(c.Message); m != nil && secret {
			return at(c.Field, "%s: %s%s", c.Field, m[1], m[2])
		}
		if !secret {
			return at(c.Field, "%s: %s", c.Field, c.Message)
		}
	}
	if secret {
		return p.refused(status.Status())
	}
	return p.Errorf("%s", msg)
}
