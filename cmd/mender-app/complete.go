package main

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/modules/view"
	"github.com/mender-app/mender-app/store"
)

// addCompletions tells the shells the values of options and arguments. Commands
// complete applications themselves.
func addCompletions(root *cobra.Command) {
	artifacts := cobra.FixedCompletions([]string{"mender"}, cobra.ShellCompDirectiveFilterFileExt)
	values := map[string]cobra.CompletionFunc{
		"from":         artifacts,
		"orchestrator": cobra.FixedCompletions([]string{"docker-compose", "k8s"}, cobra.ShellCompDirectiveNoFileComp),
		"status":       cobra.FixedCompletions(store.Statuses(), cobra.ShellCompDirectiveNoFileComp),
	}
	for _, c := range commandsBelow(root) {
		for option, f := range values {
			if c.Flags().Lookup(option) == nil {
				continue
			}
			if err := c.RegisterFlagCompletionFunc(option, f); err != nil {
				panic(err)
			}
		}
		switch {
		case c.Name() == "install", c.Name() == "check":
			c.ValidArgsFunction = completeStaged(artifacts)
		case c.Name() == "add", c.Name() == "stage":
			c.ValidArgsFunction = artifacts
		case c.ValidArgsFunction == nil:
			c.ValidArgsFunction = cobra.NoFileCompletions
		}
	}
}

// commandsBelow are the commands below c, at every depth.
func commandsBelow(c *cobra.Command) (list []*cobra.Command) {
	for _, sub := range c.Commands() {
		list = append(append(list, sub), commandsBelow(sub)...)
	}
	return list
}

// completeApps completes the name of an application, the only argument.
func completeApps(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	c, err := device.Load()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names, _ := c.OpenStore().Apps()
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeKept completes an application, and then one of its kept releases.
func completeKept(cmd *cobra.Command, args []string, to string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return completeApps(cmd, args, to)
	}
	c, err := device.Load()
	if err != nil || len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	a, err := c.OpenStore().App(args[0])
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.Kept, cobra.ShellCompDirectiveNoFileComp
}

// completePatience is how long a person waits for the names of services.
const completePatience = 5 * time.Second

// completeServices completes an application, and then one of its services.
func completeServices(cmd *cobra.Command, args []string, to string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return completeApps(cmd, args, to)
	}
	c, err := device.Load()
	if err != nil || len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	a, err := view.Read(c.OpenStore(), args[0])
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(context.Background(), completePatience)
	defer cancel()
	st, _ := c.Viewer(slog.New(slog.DiscardHandler)).Status(ctx, a)
	var names []string
	for _, v := range st.Services {
		names = append(names, v.Name)
	}
	return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
}
