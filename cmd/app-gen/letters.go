package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mender-app/mender-app/generator/manifests"
)

// compatibleTypes is the name of --device-type in mender-artifact since version 4.4.
const compatibleTypes = "compatible-types"

// alias makes --compatible-types another name of --device-type.
func alias(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	if name == compatibleTypes {
		name = "device-type"
	}
	return pflag.NormalizedName(name)
}

// Two letters have two meanings each: one in mender-artifact, whose users know -c as
// --compatible-types and -o as --output-path, and one in the shell app-gen, where they
// are --k8s-ctr-address and --orchestrator. The value shows which one is meant.
var letters = map[string]func(value string) string{
	// An address of containerd is the path of a socket. A device type is a name.
	"-c": func(value string) string {
		if strings.Contains(value, "/") {
			return "--k8s-ctr-address"
		}
		return "--device-type"
	},
	"-o": func(value string) string {
		switch {
		case value == manifests.DockerCompose || value == manifests.K8s:
			return "--orchestrator"
		case value == standard || strings.Contains(value, "/") || strings.HasSuffix(value, ".mender"):
			return "--output-path"
		}
		return "" // a custom orchestrator, or a file: refused with a hint
	},
}

// meant replaces these letters with the intended options. The options after -- and
// those of other commands stay.
func meant(root *cobra.Command, args []string) []string {
	if c, _, err := root.Find(args); err != nil || c != root {
		return args
	}
	out := slices.Clone(args)
	for i, a := range out {
		if a == "--" {
			break
		}
		for letter, long := range letters {
			if value, ok := strings.CutPrefix(a, letter+"="); ok && long(value) != "" {
				out[i] = long(value) + "=" + value
			}
			if a == letter && i+1 < len(out) && long(out[i+1]) != "" {
				out[i] = long(out[i+1])
			}
		}
	}
	return out
}
