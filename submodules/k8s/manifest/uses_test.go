package manifest

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// Every field of a pod that names an object of its namespace is seen, also one that
// Kubernetes adds.
func TestUses(t *testing.T) {
	seen := 0
	var walk func(at string, typ reflect.Type, wrap func(any) any)
	walk = func(at string, typ reflect.Type, wrap func(any) any) {
		switch typ.Kind() {
		case reflect.Pointer:
			walk(at, typ.Elem(), wrap)
			return
		case reflect.Slice:
			walk(at, typ.Elem(), func(v any) any { return wrap([]any{v}) })
			return
		case reflect.Struct:
		default:
			return
		}
		names := func(key string) {
			text, err := json.Marshal(map[string]any{"spec": wrap(map[string]any{key: "x"})})
			require.NoError(t, err)
			uses := Uses(&Object{APIVersion: "v1", Kind: "Pod", JSON: text})
			require.Len(t, uses, 1, "%s.%s", at, key)
			require.Equal(t, "x", uses[0].Name)
			seen++
		}
		if typ == reflect.TypeFor[corev1.LocalObjectReference]() || typ == reflect.TypeFor[corev1.SecretReference]() {
			names("name")
			return
		}
		for i := range typ.NumField() {
			f := typ.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case name == "":
				walk(at, f.Type, wrap)
			case name == "secretName", name == "claimName", name == "serviceAccountName", name == "serviceAccount":
				names(name)
			default:
				walk(at+"."+name, f.Type, func(v any) any { return wrap(map[string]any{name: v}) })
			}
		}
	}
	walk("spec", reflect.TypeFor[corev1.PodSpec](), func(v any) any { return v })
	require.Greater(t, seen, 20)

	for text, want := range map[string][]Use{
		`{"spec": {"tls": [{"secretName": "a"}], "rules": [{"http": {"paths": [{"backend": {"service": {"name": "b"}}}]}}]}}`: {{"", "Secret", "a"}, {"", "Service", "b"}},
	} {
		require.Equal(t, want, Uses(&Object{APIVersion: "networking.k8s.io/v1", Kind: "Ingress", JSON: []byte(text)}))
	}
	require.Equal(t, []Use{{"apps", "Deployment", "a"}}, Uses(&Object{APIVersion: "autoscaling/v2", Kind: "HorizontalPodAutoscaler",
		JSON: []byte(`{"spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}}}`)}))
	require.Empty(t, Uses(&Object{APIVersion: "v1", Kind: "ConfigMap", JSON: []byte(`{"data": {"secretName": "x"}}`)}))
}
