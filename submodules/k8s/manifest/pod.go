package manifest

import (
	"encoding/json"
	"strconv"
	"strings"
)

// ImageUse is one place where an object asks for an image.
type ImageUse struct {
	Field string // of the object, as the API server writes it
	Image string
	// Policy is the imagePullPolicy: the written one, or the API server's default
	// (Always for the tag latest, else IfNotPresent).
	Policy string
}

type container struct {
	Image  string `json:"image"`
	Policy string `json:"imagePullPolicy"`
}

type podSpec struct {
	InitContainers []container `json:"initContainers"`
	Containers     []container `json:"containers"`
	Volumes        []struct {
		Image *struct {
			Reference  string `json:"reference"`
			PullPolicy string `json:"pullPolicy"`
		} `json:"image"`
	} `json:"volumes"`
}

// PodPath returns the path of the pods' spec in an object of Kubernetes' own kinds,
// "" if it has none.
func PodPath(group, kind string) string {
	switch group + "/" + kind {
	case "/Pod":
		return "spec"
	case "/ReplicationController", "apps/Deployment", "apps/ReplicaSet", "apps/StatefulSet", "apps/DaemonSet", "batch/Job":
		return "spec.template.spec"
	case "batch/CronJob":
		return "spec.jobTemplate.spec.template.spec"
	case "/PodTemplate":
		return "template.spec"
	}
	return ""
}

// Images returns the images that the pods of o would run. A custom resource
// may ask its controller for others; those are not seen.
func Images(o *Object) ([]ImageUse, error) {
	at := PodPath(o.Group(), o.Kind)
	if at == "" {
		return nil, nil
	}
	raw := json.RawMessage(o.JSON)
	for _, part := range strings.Split(at, ".") {
		var m map[string]json.RawMessage
		if err := json.Unmarshal(raw, &m); err != nil {
			return nil, o.Errorf("%s: %w", at, err)
		}
		if raw = m[part]; len(raw) == 0 {
			return nil, nil // the API server refuses it
		}
	}
	var spec podSpec
	if err := json.Unmarshal(raw, &spec); err != nil {
		return nil, o.Errorf("%s: %w", at, err)
	}
	var uses []ImageUse
	add := func(field string, i int, image, policy string) {
		if image == "" {
			return
		}
		if policy == "" {
			policy = defaultPolicy(image)
		}
		uses = append(uses, ImageUse{Field: at + "." + field + "[" + strconv.Itoa(i) + "]", Image: image, Policy: policy})
	}
	for i, c := range spec.InitContainers {
		add("initContainers", i, c.Image, c.Policy)
	}
	for i, c := range spec.Containers {
		add("containers", i, c.Image, c.Policy)
	}
	for i, v := range spec.Volumes {
		if v.Image != nil {
			add("volumes", i, v.Image.Reference, v.Image.PullPolicy)
		}
	}
	return uses, nil
}

// defaultPolicy is the API server's rule for a missing imagePullPolicy.
func defaultPolicy(image string) string {
	name, _, hasDigest := strings.Cut(image, "@")
	tag := ""
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		tag = name[i+1:]
	}
	if tag == "latest" || tag == "" && !hasDigest {
		return "Always"
	}
	return "IfNotPresent"
}

// AnnotatePods returns data, which is o's JSON or made from it, with an
// annotation on the pods it makes. Objects that make none are left as they are.
func AnnotatePods(o *Object, data []byte, key, value string) ([]byte, error) {
	at := PodPath(o.Group(), o.Kind)
	if at == "" {
		return data, nil
	}
	parts := strings.Split(at, ".")
	parts = append(parts[:len(parts)-1], "metadata", "annotations", key)
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	data, err = set(data, parts, text)
	if err != nil {
		return nil, o.Errorf("%w", err)
	}
	return data, nil
}

// SetImages returns data, which is o's JSON or made from it, with the images of its
// pods replaced: refs maps written references to new ones. The pull policy Never
// becomes IfNotPresent, because other nodes have to pull the new images.
func SetImages(o *Object, data []byte, refs map[string]string) ([]byte, error) {
	at := PodPath(o.Group(), o.Kind)
	if at == "" || len(refs) == 0 {
		return data, nil
	}
	data, err := change(data, strings.Split(at, "."), func(spec []byte) ([]byte, error) {
		var err error
		for _, field := range []string{"initContainers", "containers", "volumes"} {
			spec, err = change(spec, []string{field}, func(list []byte) ([]byte, error) { return setImages(list, field, refs) })
			if err != nil {
				return nil, err
			}
		}
		return spec, nil
	})
	if err != nil {
		return nil, o.Errorf("%w", err)
	}
	return data, nil
}

// setImages changes the images in a list of containers or volumes.
func setImages(list []byte, field string, refs map[string]string) ([]byte, error) {
	var items []json.RawMessage
	if err := json.Unmarshal(list, &items); err != nil {
		return nil, err
	}
	path, image, policy := []string{}, "image", "imagePullPolicy"
	if field == "volumes" {
		path, image, policy = []string{"image"}, "reference", "pullPolicy"
	}
	for i := range items {
		item, err := change(items[i], path, func(data []byte) ([]byte, error) {
			var m map[string]json.RawMessage
			if err := json.Unmarshal(data, &m); err != nil {
				return nil, err
			}
			var name, pull string
			_ = json.Unmarshal(m[image], &name) // Images has checked both
			_ = json.Unmarshal(m[policy], &pull)
			if refs[name] == "" {
				return data, nil
			}
			m[image] = json.RawMessage(strconv.Quote(refs[name]))
			if pull == "Never" {
				m[policy] = json.RawMessage(`"IfNotPresent"`)
			}
			return json.Marshal(m)
		})
		if err != nil {
			return nil, err
		}
		items[i] = item
	}
	return json.Marshal(items)
}

// change replaces the value at a path through JSON objects, if there is one.
func change(data []byte, path []string, f func([]byte) ([]byte, error)) ([]byte, error) {
	if len(path) == 0 {
		return f(data)
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, err
	}
	if len(m[path[0]]) == 0 || string(m[path[0]]) == "null" {
		return data, nil
	}
	sub, err := change(m[path[0]], path[1:], f)
	if err != nil {
		return nil, err
	}
	m[path[0]] = sub
	return json.Marshal(m)
}

// set puts a value into a tree of JSON objects, making those that are missing.
func set(data []byte, path []string, value []byte) ([]byte, error) {
	if len(path) == 0 {
		return value, nil
	}
	m := map[string]json.RawMessage{}
	if len(data) > 0 {
		if err := json.Unmarshal(data, &m); err != nil {
			return nil, err
		}
		if m == nil {
			m = map[string]json.RawMessage{}
		}
	}
	sub, err := set(m[path[0]], path[1:], value)
	if err != nil {
		return nil, err
	}
	m[path[0]] = sub
	return json.Marshal(m)
}
