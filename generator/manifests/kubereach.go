package manifests

import (
	"strings"

	"gopkg.in/yaml.v3"
)

// reachOf is the reach of an object, which may be defined several times.
func (k *kube) reachOf(who string) *Reach {
	r := k.reach[who]
	if r == nil {
		r = &Reach{By: who}
		k.reach[who] = r
	}
	return r
}

// podReach notes what a pod reaches.
func (k *kube) podReach(who string, spec *yaml.Node) {
	r := k.reachOf(who)
	r.HostPID = r.HostPID || isTrue(get(spec, "hostPID"))
	r.HostNetwork = r.HostNetwork || isTrue(get(spec, "hostNetwork"))
	r.HostIPC = r.HostIPC || isTrue(get(spec, "hostIPC"))
	securityReach(r, get(spec, "securityContext"))
	for _, key := range []string{"initContainers", "containers", "ephemeralContainers"} {
		for _, c := range items(get(spec, key)) {
			securityReach(r, get(c, "securityContext"))
			for _, d := range items(get(c, "volumeDevices")) {
				r.Devices = append(r.Devices, scalar(get(d, "devicePath")))
			}
		}
	}
	for _, v := range items(get(spec, "volumes")) {
		if p := scalar(get(v, "hostPath", "path")); p != "" {
			r.outside(p)
		}
	}
}

// volumeReach notes the path of a persistent volume that is one of the device's.
func (k *kube) volumeReach(who string, spec *yaml.Node) {
	for _, kind := range []string{"hostPath", "local"} {
		if p := scalar(get(spec, kind, "path")); p != "" {
			k.reachOf(who).outside(p)
		}
	}
}

func securityReach(r *Reach, context *yaml.Node) {
	r.Privileged = r.Privileged || isTrue(get(context, "privileged"))
	for _, c := range items(get(context, "capabilities", "add")) {
		r.Capabilities = append(r.Capabilities, scalar(c))
	}
	for key, option := range map[string]string{"seccompProfile": "seccomp", "appArmorProfile": "apparmor"} {
		if scalar(get(context, key, "type")) == "Unconfined" {
			r.Options = append(r.Options, option+"=unconfined")
		}
	}
	if isTrue(get(context, "windowsOptions", "hostProcess")) {
		r.Privileged = true
	}
}

// items are the elements of a list; nil if n is not a list.
func items(n *yaml.Node) []*yaml.Node {
	if n == nil || n.Kind != yaml.SequenceNode {
		return nil
	}
	list := make([]*yaml.Node, len(n.Content))
	for i, c := range n.Content {
		list[i] = resolve(c)
	}
	return list
}

// isTrue reads a boolean as in YAML 1.1, which Kubernetes accepts.
func isTrue(n *yaml.Node) bool {
	switch strings.ToLower(scalar(n)) {
	case "true", "yes", "on", "y":
		return true
	}
	return false
}
