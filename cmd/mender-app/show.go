package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/artifact/clip"
	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/modules/view"
)

// printJSON prints one document.
func (p *program) printJSON(v any) error {
	enc := json.NewEncoder(clip.JSONWriter(p.stdout))
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// printResult prints the result of a command, as JSON or as a line.
func (p *program) printResult(doc any, format string, args ...any) error {
	if p.json {
		return p.printJSON(doc)
	}
	_, err := fmt.Fprintf(p.stdout, format+"\n", args...)
	return err
}

// stateText is the state of an application for a person: with the artifact that
// waits, if another release runs.
func stateText(a *view.Document) string {
	if a.State == view.Loaded {
		return a.Deployment.ArtifactName + " " + a.State
	}
	return a.State
}

func (p *program) listCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the applications",
		Long: `Lists the applications with the release that runs or should run: while an update
waits for its commit, the new one. It reads only the store; "mender-app status" asks
the engines too.`,
		Example: "  mender-app status --stored\n  mender-app status --stored --json",
		RunE:    func(*cobra.Command, []string) error { return p.list() },
	}
}

// list prints the applications from the store alone.
func (p *program) list() error {
	s := p.config.OpenStore()
	names, err := s.Apps()
	if err != nil {
		return err
	}
	apps := []*view.Document{}
	var rows [][]string
	for _, name := range names {
		a, err := p.viewer().Document(s, name)
		if err != nil {
			return err
		}
		apps = append(apps, a)
		rows = append(rows, []string{a.Name, a.Release, a.ArtifactName, a.Orchestrator, stateText(a)})
	}
	if p.json {
		return p.printJSON(apps)
	}
	return p.table("APPLICATION\tRELEASE\tARTIFACT\tORCHESTRATOR\tSTATE", rows)
}

func (p *program) showCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "show APP",
		Short:             "Show an application",
		Example:           "  mender-app status --stored shop",
		ValidArgsFunction: completeApps,
		RunE:              func(_ *cobra.Command, args []string) error { return p.show(args[0]) },
	}
}

// show prints what the store has of an application.
func (p *program) show(app string) error {
	a, err := p.viewer().Document(p.config.OpenStore(), app)
	if err != nil {
		return err
	}
	if p.json {
		return p.printJSON(a)
	}
	rows := [][]string{
		{"state", stateText(a)}, {"release", a.Release}, {"committed", a.Committed}, {"artifact", a.ArtifactName}, {"version", a.Version},
		{"orchestrator", a.Orchestrator}, {"platform", a.Platform}, {"manifests", a.Manifests},
	}
	if a.Statement != nil {
		rows = append(rows, []string{"statement", statementText(a.Statement)})
	}
	for _, id := range a.Kept {
		rows = append(rows, []string{"kept", id})
	}
	if d := a.Deployment; d != nil {
		rows = append(rows, []string{"deploying", fmt.Sprintf("%s, %s since %s", d.ArtifactName, d.Phase, when(d.Updated))})
	}
	if a.Problem != "" {
		rows = append(rows, []string{"problem", device.OneLine(a.Problem)})
	}
	for _, c := range a.Components {
		rows = append(rows, []string{c.Type, c.URL + " " + c.Digest.String()})
	}
	rows = slices.DeleteFunc(rows, func(r []string) bool { return r[1] == "" })
	return p.table("application\t"+a.Name, rows)
}

func when(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") }

func (p *program) releasesCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "releases APP",
		Short:             "List the releases of an application that are on the device",
		Example:           "  mender-app releases shop",
		ValidArgsFunction: completeApps,
		RunE: func(_ *cobra.Command, args []string) error {
			list, err := view.Releases(p.config.OpenStore(), args[0])
			if err != nil {
				return err
			}
			if p.json {
				return p.printJSON(list)
			}
			var rows [][]string
			for _, r := range list {
				rows = append(rows, []string{r.ID, r.Role, r.ArtifactName, r.Version, when(r.Created)})
			}
			return p.table("RELEASE\tROLE\tARTIFACT\tVERSION\tCREATED", rows)
		},
	}
}
