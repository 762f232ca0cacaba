package main

import (
	"slices"

	"github.com/spf13/cobra"
)

// groups are the commands in the order of --help.
var groups = []struct {
	title    string
	commands []string
}{
	{"Every day:", []string{"status", "logs", "history", "check", "install", "commit", "rollback", "abort"}},
	{"Care:", []string{"doctor", "report", "verify", "backup", "restore", "stop", "start", "restart", "purge", "releases", "events"}},
	{"Settings:", []string{"values", "overrides", "service", "hold", "windows", "secrets"}},
	{"Machinery:", []string{"stage", "reconcile", "resume", "trigger", "queue", "engine-check", "inventory", "metrics", "serve", "version", "completion", "help"}},
}

// group puts the commands of root into groups, and the groups in their order.
func group(root *cobra.Command) {
	cobra.EnableCommandSorting = false
	order := map[string]int{}
	for i, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for n, name := range g.commands {
			order[name] = i<<8 + n
		}
	}
	commands := slices.Clone(root.Commands())
	slices.SortStableFunc(commands, func(a, b *cobra.Command) int { return order[a.Name()] - order[b.Name()] })
	root.RemoveCommand(commands...)
	for _, c := range commands {
		if at, ok := order[c.Name()]; ok {
			c.GroupID = groups[at>>8].title
		}
		root.AddCommand(c)
	}
	root.SetHelpCommandGroupID(groups[len(groups)-1].title)
	root.SetCompletionCommandGroupID(groups[len(groups)-1].title)
}
