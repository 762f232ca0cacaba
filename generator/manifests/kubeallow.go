package manifests

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/submodules/k8s/manifest"
)

// clusterKinds are the kinds of Kubernetes' own APIs whose objects are in no namespace, by
// their groups, as `kubectl api-resources --namespaced=false` lists them. Reviews, which
// nothing stores, are left out.
var clusterKinds = map[string][]string{
	"":                             {"Namespace", "Node", "PersistentVolume"},
	"admissionregistration.k8s.io": {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "MutatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration"},
	"apiextensions.k8s.io":         {"CustomResourceDefinition"},
	"apiregistration.k8s.io":       {"APIService"},
	"certificates.k8s.io":          {"CertificateSigningRequest", "ClusterTrustBundle"},
	"flowcontrol.apiserver.k8s.io": {"FlowSchema", "PriorityLevelConfiguration"},
	"networking.k8s.io":            {"IngressClass", "IPAddress", "ServiceCIDR"},
	"node.k8s.io":                  {"RuntimeClass"},
	"rbac.authorization.k8s.io":    {"ClusterRole", "ClusterRoleBinding"},
	"resource.k8s.io":              {"DeviceClass", "DeviceTaintRule", "ResourceSlice"},
	"scheduling.k8s.io":            {"PriorityClass"},
	"storage.k8s.io":               {"CSIDriver", "CSINode", "StorageClass", "VolumeAttachment", "VolumeAttributesClass"},
}

// deviceConfig is the file that says what the manifests of an application may do.
const deviceConfig = "mender-app-k8s.conf"

// needsOfDevice notes what a device refuses unless its configuration allows it: objects of
// the whole cluster, and those of other namespaces than the application's. namespace is the
// application's; "" leaves it to the device.
func needsOfDevice(objects []manifest.Object, namespace string, at func(Place) Place) (notes []string) {
	ofCluster := map[string]bool{} // "group/kind" that definitions of the release make
	for i := range objects {
		if o := &objects[i]; o.Kind == "CustomResourceDefinition" && o.Group() == "apiextensions.k8s.io" {
			var d struct {
				Spec struct {
					Group, Scope string
					Names        struct{ Kind string }
				}
			}
			if json.Unmarshal(o.JSON, &d) == nil && d.Spec.Scope == "Cluster" {
				ofCluster[d.Spec.Group+"/"+d.Spec.Names.Kind] = true
			}
		}
	}
	var kinds, cluster, spaces, foreign []string
	for i := range objects {
		o := &objects[i]
		place := fmt.Sprintf("%s: %s/%s", at(Place{File: o.File, Line: o.Line}), o.Kind, o.Name)
		switch {
		case slices.Contains(clusterKinds[o.Group()], o.Kind) || ofCluster[o.Group()+"/"+o.Kind]:
			if o.Kind == "Namespace" && o.Group() == "" && o.Name == namespace {
				continue
			}
			kinds, cluster = append(kinds, o.Kind), append(cluster, place)
		case o.Namespace != "" && o.Namespace != namespace:
			spaces, foreign = append(spaces, o.Namespace), append(foreign, place)
		}
	}
	setting := func(list []string) string {
		slices.Sort(list)
		return strings.Join(slices.Compact(list), " ")
	}
	if len(cluster) > 0 {
		notes = append(notes, fmt.Sprintf("objects of the whole cluster, which a device refuses unless K8S_ALLOW_CLUSTER_OBJECTS in its %s has %s: %s",
			deviceConfig, setting(kinds), strings.Join(cluster, ", ")))
	}
	if len(foreign) > 0 {
		list := setting(spaces)
		own, or := "the application's namespace, "+namespace, ""
		if namespace == "" {
			own = "the namespace that the device chooses"
			if !strings.Contains(list, " ") {
				or = "; with --k8s-namespace " + list + " it is the application's own"
			}
		}
		notes = append(notes, fmt.Sprintf("objects outside %s, which a device refuses unless K8S_ALLOW_NAMESPACES in its %s has %s%s: %s",
			own, deviceConfig, list, or, strings.Join(foreign, ", ")))
	}
	return notes
}
