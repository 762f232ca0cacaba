package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/modules/view"
	"github.com/mender-app/mender-app/store"
)

// printJSON prints one document.
func (p *program) printJSON(v any) error {
	enc := json.NewEncoder(p.stdout)
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

// application is what list, show and status print for one application. What they say
// of a release is about the one that runs or should run.
type application struct {
	Name         string            `json:"application"`
	State        string            `json:"state"`
	Release      string            `json:"release,omitempty"`
	ArtifactName string            `json:"artifact_name,omitempty"`
	Version      string            `json:"application_version,omitempty"`
	Orchestrator string            `json:"orchestrator,omitempty"`
	Platform     string            `json:"platform,omitempty"`
	Components   []store.Component `json:"components,omitempty"`
	Statement    *signedStatement  `json:"statement,omitempty"`
	// Committed is the release that was committed last, if another one runs.
	Committed  string            `json:"committed,omitempty"`
	Kept       []string          `json:"kept,omitempty"`
	Deployment *store.Deployment `json:"deployment,omitempty"`
	Manifests  string            `json:"manifests,omitempty"`
	Problem    string            `json:"problem,omitempty"`

	view *view.Application
}

// application reads an application from the store.
func (p *program) application(s *store.Store, name string) (*application, error) {
	a, err := view.Read(s, name)
	if err != nil {
		return nil, err
	}
	out := &application{
		Name: name, State: a.State, Release: a.Running, Kept: a.Kept, Deployment: a.Deployment, Manifests: a.Manifests,
		Problem: a.Problem, view: a,
	}
	if a.Committed != a.Running {
		out.Committed = a.Committed
	}
	if a.Running == "" {
		out.Orchestrator = s.LegacyOrchestrator(name)
		return out, nil
	}
	r, err := a.Release(a.Running)
	if err != nil {
		out.Problem = err.Error()
		return out, nil
	}
	out.ArtifactName, out.Version, out.Orchestrator = r.ArtifactName, r.Version, r.Orchestrator
	out.Platform, out.Components, out.Statement = r.Platform, r.Components, p.statement(r)
	return out, nil
}

// stateText is the state for a person: with the artifact that waits, if another
// release runs.
func (a *application) stateText() string {
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
		Example: "  mender-app list\n  mender-app list --json",
		Args:    args(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			s := p.config.OpenStore()
			names, err := s.Apps()
			if err != nil {
				return err
			}
			apps := []*application{}
			var rows [][]string
			for _, name := range names {
				a, err := p.application(s, name)
				if err != nil {
					return err
				}
				apps = append(apps, a)
				rows = append(rows, []string{a.Name, a.Release, a.ArtifactName, a.Orchestrator, a.stateText()})
			}
			if p.json {
				return p.printJSON(apps)
			}
			return p.table("APPLICATION\tRELEASE\tARTIFACT\tORCHESTRATOR\tSTATE", rows)
		},
	}
}

func (p *program) showCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "show APP",
		Short:             "Show an application",
		Example:           "  mender-app show shop",
		Args:              args(cobra.ExactArgs(1)),
		ValidArgsFunction: completeApps,
		RunE: func(_ *cobra.Command, args []string) error {
			a, err := p.application(p.config.OpenStore(), args[0])
			if err != nil {
				return err
			}
			if p.json {
				return p.printJSON(a)
			}
			rows := [][]string{
				{"state", a.stateText()}, {"release", a.Release}, {"committed", a.Committed}, {"artifact", a.ArtifactName}, {"version", a.Version},
				{"orchestrator", a.Orchestrator}, {"platform", a.Platform}, {"manifests", a.Manifests},
			}
			if a.Statement != nil {
				rows = append(rows, []string{"statement", a.Statement.String()})
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
		},
	}
}

func when(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") }

func (p *program) releasesCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "releases APP",
		Short:             "List the releases of an application that are on the device",
		Example:           "  mender-app releases shop",
		Args:              args(cobra.ExactArgs(1)),
		ValidArgsFunction: completeApps,
		RunE: func(_ *cobra.Command, args []string) error {
			a, err := p.config.OpenStore().App(args[0])
			if err != nil {
				return err
			}
			ids, err := a.Releases()
			if err != nil {
				return err
			}
			var rows [][]string
			docs := []json.RawMessage{}
			for _, id := range ids {
				role := "unused"
				switch {
				case id == a.Current:
					role = "current"
				case slices.Contains(a.Kept, id):
					role = "kept"
				case a.Deployment != nil && a.Deployment.To == id:
					role = "incoming"
				}
				r, err := a.Release(id)
				if err != nil {
					r = &store.Release{ID: id}
					// A download that was killed may have made only the directory.
					if role != "incoming" || !errors.Is(err, store.ErrNoRelease) {
						role = "damaged"
					}
				}
				rows = append(rows, []string{id, role, r.ArtifactName, r.Version, when(r.Created)})
				doc, err := withRole(r, role)
				if err != nil {
					return err
				}
				docs = append(docs, doc)
			}
			if p.json {
				return p.printJSON(docs)
			}
			return p.table("RELEASE\tROLE\tARTIFACT\tVERSION\tCREATED", rows)
		},
	}
}

// withRole adds the role to a release's JSON.
func withRole(r *store.Release, role string) (json.RawMessage, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	doc := map[string]json.RawMessage{}
	if err := json.Unmarshal(data, &doc); err != nil {
		return nil, err
	}
	if doc["role"], err = json.Marshal(role); err != nil {
		return nil, err
	}
	return json.Marshal(doc)
}
