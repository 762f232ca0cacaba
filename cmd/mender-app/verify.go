package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/artifact/input"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/modules/deploy"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

func (p *program) verifyCommand() *cobra.Command {
	var repair bool
	var from string
	cmd := &cobra.Command{
		Use:   "verify [APP]",
		Short: "Check the images of the current and the kept releases for damage",
		Long: `Reads every image of the current and the kept releases of APP, or of all applications,
compares each layer with its digest, and names each damaged layer and file. If the maker
of a release signed a statement, it names the key and says whether the store matches the
statement. For an application that is not adopted yet it reads the images of its
containers. Nothing is changed.

With --repair, damaged images are deleted and loaded again: from another image on the
device that has the same layer, or from the artifact FILE, which must have the whole
image. Images that share a damaged layer are repaired together. Their containers are
removed meanwhile and started again; volumes stay. If something cannot be repaired,
nothing is changed, and the error says what to do.`,
		Example:           "  mender-app verify shop\n  mender-app verify --repair --from shop-2.mender shop",
		ValidArgsFunction: completeApps,
		RunE: func(cmd *cobra.Command, args []string) error {
			names := args
			if from != "" && !repair {
				return fmt.Errorf("%w: --from goes with --repair", device.ErrUsage)
			}
			s := p.config.OpenStore()
			if len(names) == 0 {
				all, err := s.Apps()
				if err != nil {
					return err
				}
				names = all
				if repair {
					names = slices.DeleteFunc(all, s.Legacy)
				}
			} else if repair || !s.Legacy(names[0]) {
				if _, err := s.App(names[0]); err != nil {
					return err
				}
			}
			if some, err := anyCommitted(s, names); err != nil {
				return err
			} else if !some {
				return p.nothingToVerify(args)
			}
			if repair {
				return p.repair(cmd.Context(), names, from)
			}
			problems := []deploy.Problem{}
			for _, name := range names {
				found, err := p.verify(cmd.Context(), s, name)
				if errors.Is(err, deploy.ErrNothingToVerify) && len(args) == 0 {
					p.log.Warn(err.Error())
					continue
				}
				if err != nil {
					return err
				}
				problems = append(problems, found...)
			}
			if p.json {
				if err := p.printJSON(problems); err != nil {
					return err
				}
			}
			p.sayProblems(problems)
			if len(problems) > 0 {
				return damagedError(problems, "mender-app verify --repair")
			}
			if !p.json {
				fmt.Fprintln(p.stdout, "all components are whole")
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&repair, "repair", false, "repair damaged images")
	cmd.Flags().StringVar(&from, "from", "", "artifact `FILE` that carries the damaged images whole")
	return cmd
}

// verify returns what is wrong with an application. One that was not adopted yet has
// no release and no statement: what its containers use is read.
func (p *program) verify(ctx context.Context, s *store.Store, name string) ([]deploy.Problem, error) {
	if s.Legacy(name) {
		all := p.config.Submodules() // no sub-module, no answer
		find := p.engine().Find
		damages, err := deploy.VerifyLegacy(ctx, s, name, all, func(o string) (deploy.LegacyModule, error) { return find(o) })
		problems := []deploy.Problem{}
		for _, d := range damages {
			problems = append(problems, deploy.Problem{App: name, Release: store.AdoptedID, Component: d.Component.URL, Digest: d.Component.Digest, Text: d.Text})
		}
		return problems, err
	}
	problems, err := p.engine().Verify(ctx, name)
	if err != nil {
		return nil, err
	}
	unsigned, err := p.statements(name)
	return append(problems, unsigned...), err
}

// anyCommitted reports whether one of the applications has a release that verify
// reads: the current one or a kept one. One that was not adopted yet counts.
func anyCommitted(s *store.Store, names []string) (bool, error) {
	for _, name := range names {
		if s.Legacy(name) {
			return true, nil
		}
		a, err := s.App(name)
		if err != nil {
			return false, err
		}
		if a.Current != "" || len(a.Kept) > 0 {
			return true, nil
		}
	}
	return false, nil
}

func (p *program) nothingToVerify(names []string) error {
	if len(names) == 0 {
		return p.printResult([]deploy.Problem{}, "nothing to verify: no application has a committed release")
	}
	return p.printResult([]deploy.Problem{}, "nothing to verify: %s has no committed release", names[0])
}

func (p *program) sayProblems(problems []deploy.Problem) {
	if p.json {
		return
	}
	for _, f := range problems {
		fmt.Fprintf(p.stdout, "%s %s: %s\n", f.App, f.Release, device.OneLine(f.Text))
	}
}

func damagedError(problems []deploy.Problem, next string) error {
	components := map[deploy.Problem]bool{}
	for _, f := range problems {
		components[deploy.Problem{App: f.App, Component: f.Component, Digest: f.Digest}] = true
	}
	err := fmt.Errorf("not whole: %s; run %s, or install the release again", metered.Count(len(components), "component"), next)
	return submodules.Mark(err, submodules.ErrContent)
}

func (p *program) repair(ctx context.Context, names []string, from string) error {
	var payload deploy.RepairSource
	if from != "" {
		f, err := input.Open(from)
		if err != nil {
			return err
		}
		defer f.Close()
		r, err := p.opener().RepairSource(f)
		if err != nil {
			return fmt.Errorf("%s: %w", from, err)
		}
		if t := r.Header().PayloadType; t != mender.PayloadTypeApp {
			return fmt.Errorf("%w: %s: the payload is of type %q, not %q", device.ErrUsage, from, t, mender.PayloadTypeApp)
		}
		payload = artifactFile{r}
	}
	found, left, err := p.engine().Repair(ctx, names, payload)
	type result struct {
		deploy.Problem
		Repaired bool `json:"repaired"`
	}
	results := []result{}
	for _, f := range found {
		results = append(results, result{f, !slices.Contains(left, f)})
	}
	if p.json {
		if jerr := p.printJSON(results); jerr != nil {
			return jerr
		}
	} else {
		for _, r := range results {
			word := "damaged"
			if r.Repaired {
				word = "repaired"
			}
			fmt.Fprintf(p.stdout, "%s %s: %s: %s\n", r.App, r.Release, word, device.OneLine(r.Text))
		}
	}
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return damagedError(left, "mender-app verify --repair --from FILE.mender")
	}
	if !p.json {
		fmt.Fprintln(p.stdout, "all components are whole")
	}
	return nil
}

// artifactFile gives a repair the payload of an artifact.
type artifactFile struct{ *mender.Reader }

func (a artifactFile) MetaData() []byte { return a.Header().MetaData }

func (a artifactFile) Next() (string, io.Reader, error) {
	info, err := a.Reader.Next()
	if err != nil {
		return "", nil, err
	}
	return info.Name, a.Reader, nil
}
