package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/cmd/internal/version"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/decoder"
	"github.com/mender-app/mender-app/modules/diskspace"
	"github.com/mender-app/mender-app/modules/view"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

const (
	// enginePatience bounds the question for an engine: Mender's client waits for
	// every inventory script.
	enginePatience = 10 * time.Second
	// maxBases bounds how many bases are reported for one application.
	maxBases = 32
)

func (p *program) inventoryCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "inventory",
		Short: "Print the applications' attributes for Mender's inventory",
		Long: `Prints lines NAME=VALUE for the inventory of a Mender client, which calls this
through the script mender-inventory-app in /usr/share/mender/inventory:

  mender_app_version        the version of mender-app
  mender_app_features       the features of artifacts and deltas that it reads, for app-gen
  mender_app_applications   the names of the applications, one a line
  mender_app_free_bytes     free bytes on the file system of the store
  mender_app_engine         SUB-MODULE NAME VERSION of each engine that answers
  mender_app_compose        the version of Docker Compose, for app-gen
  app_APP_version           the application_version of its committed release
  app_APP_artifact          the name of that release's artifact
  app_APP_state             its state, as mender-app status prints it
  app_APP_last              how its last deployment ended, and when
  app_APP_staged            the name of each artifact staged for it
  app_APP_base              URL@DIGEST of each component that a delta may start
                            from, 32 at most

Several lines of one name are a list. Unknown values are left out.`,
		Example: "  mender-app inventory\n  mender-app inventory --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			v, err := p.inventory(cmd.Context())
			if err != nil {
				return err
			}
			if p.json {
				return p.printJSON(v)
			}
			for _, name := range slices.Sorted(maps.Keys(v)) {
				for _, value := range v[name] {
					fmt.Fprintf(p.stdout, "%s=%s\n", name, value)
				}
			}
			return nil
		},
	}
}

// attributes are the values of each attribute of the inventory.
type attributes map[string][]string

// add adds a value on one line, unless it is empty.
func (a attributes) add(name, value string) {
	if value = device.OneLine(value); value != "" {
		a[name] = append(a[name], value)
	}
}

func (p *program) inventory(ctx context.Context) (attributes, error) {
	v := attributes{}
	v.add("mender_app_version", version.String())
	v.add("mender_app_features", strings.Join(features(), " "))
	s := p.config.OpenStore()
	names, err := s.Apps()
	if err != nil {
		return nil, err
	}
	if free, _, err := diskspace.Free(existing(s.Dir())); err == nil {
		v.add("mender_app_free_bytes", fmt.Sprint(free))
	}
	for _, name := range names {
		v.add("mender_app_applications", name)
		p.addApplication(v, s, name)
	}
	if list, err := listStaged(p.config); err == nil {
		for _, l := range list {
			if l.Problem == "" {
				v.add("app_"+l.Application+"_staged", l.ArtifactName)
			}
		}
	}
	p.addEngines(ctx, v)
	return v, nil
}

// features are those of artifacts and deltas that the programs here read.
func features() []string {
	list := slices.Clone(artifact.Features)
	for _, f := range delta.Features {
		if decoder.Knows(f) {
			list = append(list, f)
		}
	}
	return list
}

// addApplication adds what is known of an application.
func (p *program) addApplication(v attributes, s *store.Store, name string) {
	prefix := "app_" + name + "_"
	a, err := view.Read(s, name)
	if err != nil {
		v.add(prefix+"state", view.Damaged)
		return
	}
	v.add(prefix+"state", a.State)
	// A release that waits for its commit may be gone when a delta arrives.
	if r, err := a.Release(a.Committed); err == nil {
		v.add(prefix+"version", r.Version)
		v.add(prefix+"artifact", r.ArtifactName)
		for _, c := range r.Components[:min(len(r.Components), maxBases)] {
			v.add(prefix+"base", c.URL+"@"+c.Digest.String())
		}
	}
	if last, found, err := s.Last(name); err == nil && found {
		v.add(prefix+"last", strings.TrimSpace(last.Status+" "+last.ArtifactName)+" "+last.Ended.UTC().Format(time.RFC3339))
	}
}

// addEngines adds the engines that answer.
func (p *program) addEngines(ctx context.Context, v attributes) {
	entries, err := os.ReadDir(p.config.SubmodulesDir)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, enginePatience)
	defer cancel()
	for _, entry := range entries {
		m, err := submodules.Find(p.config.SubmodulesDir, entry.Name())
		if err != nil {
			continue
		}
		m.Config = submodules.Config{Deadline: enginePatience, Log: func(string) {}}
		info, err := m.Client().Describe(ctx)
		if err != nil || !info.Has(submodules.FeatureEngine) {
			continue
		}
		if e, err := m.Client().Engine(ctx, submodules.Request{}); err == nil {
			v.add("mender_app_engine", m.Name+" "+e.Name+" "+e.Version)
			v.add("mender_app_compose", e.Compose)
		}
	}
}
