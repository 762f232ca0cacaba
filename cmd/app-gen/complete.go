package main

import (
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/delta/budget"
	"github.com/mender-app/mender-app/generator"
	"github.com/mender-app/mender-app/generator/manifests"
)

// platforms are common values of --platform.
var platforms = []string{"linux/amd64", "linux/arm64", "linux/arm/v7", "linux/arm/v6", "linux/386", "linux/riscv64", "linux/ppc64le", "linux/s390x"}

// addCompletions adds completions for the values of options and arguments.
func addCompletions(root *cobra.Command) {
	fixed := func(values []string) cobra.CompletionFunc {
		return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
	}
	var compressions []string
	for _, c := range mender.Compressions {
		compressions = append(compressions, string(c))
	}
	var versions []string
	for _, r := range generator.Versions {
		versions = append(versions, r.Version)
	}
	values := map[string]cobra.CompletionFunc{
		"orchestrator":  fixed([]string{manifests.DockerCompose, manifests.K8s}),
		"platform":      fixed(platforms),
		"compression":   fixed(compressions),
		"for":           fixed(generator.Readers),
		forVersion:      fixed(versions),
		decodeBudget:    completeBudget,
		"env-from-host": completeVariables,
		"image":         completeImages,
		"on-device":     completeImages,
	}
	values["for-device"] = fixed(classes())
	artifacts := cobra.FixedCompletions([]string{"mender"}, cobra.ShellCompDirectiveFilterFileExt)
	for _, option := range []string{"base", "content", "output-path"} {
		values[option] = artifacts
	}
	values["html"] = cobra.FixedCompletions([]string{"html"}, cobra.ShellCompDirectiveFilterFileExt)
	directories := cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
	for _, option := range []string{"manifests-dir", "bases-from", "temp-dir"} {
		values[option] = directories
	}
	commands := []*cobra.Command{root}
	for len(commands) > 0 {
		c := commands[0]
		commands = append(commands[1:], c.Commands()...)
		for option, f := range values {
			if c.Flags().Lookup(option) == nil {
				continue
			}
			if err := c.RegisterFlagCompletionFunc(option, f); err != nil {
				panic(err)
			}
		}
		if c.Name() == "inspect" || c.Name() == "diff" {
			c.ValidArgsFunction = artifacts
		}
	}
	root.ValidArgsFunction = cobra.NoFileCompletions
}

// completeBudget completes the class of devices behind a time.
func completeBudget(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
	amount, _, _ := strings.Cut(word, "@")
	var fit []string
	for _, c := range budget.Classes {
		if s := amount + "@" + c.Name; amount != "" && strings.HasPrefix(s, word) {
			fit = append(fit, s)
		}
	}
	return fit, cobra.ShellCompDirectiveNoFileComp
}

// classes are the names of the classes of devices.
func classes() (names []string) {
	for _, c := range budget.Classes {
		names = append(names, c.Name)
	}
	return names
}

// completeVariables completes the names of variables of the environment.
func completeVariables(_ *cobra.Command, _ []string, word string) (fit []string, _ cobra.ShellCompDirective) {
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, word) {
			fit = append(fit, name)
		}
	}
	return fit, cobra.ShellCompDirectiveNoFileComp
}

// completeImages completes [CURRENT,]NEW with the images that the manifests of the
// command line use. If none fits, the shell completes file names.
func completeImages(c *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
	text := func(option string) string {
		value, _ := c.Flags().GetString(option)
		return value
	}
	list := func(option string) []string {
		value, _ := c.Flags().GetStringArray(option)
		return value
	}
	dir := text("manifests-dir")
	if dir == "" {
		return nil, cobra.ShellCompDirectiveDefault
	}
	var found *manifests.Found
	var err error
	if text("orchestrator") == manifests.K8s {
		found, err = manifests.Kubernetes(dir, manifests.KubernetesOptions{})
	} else {
		environ, _ := fromHost(list("env-from-host"))
		found, err = manifests.Compose(c.Context(), dir, manifests.ComposeOptions{
			Files: list("compose-file"), Profiles: list("profile"), EnvFiles: list("env-file"), Environ: environ,
		})
	}
	if err != nil {
		return nil, cobra.ShellCompDirectiveDefault
	}
	current, _, two := strings.Cut(word, ",")
	var fit []string
	for _, image := range found.Images() {
		if two {
			image = current + "," + image
		}
		if strings.HasPrefix(image, word) {
			fit = append(fit, image)
		}
	}
	return fit, cobra.ShellCompDirectiveDefault
}
