package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/mender-app/mender-app/modules/client/download"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/cmd/internal/table"
	"github.com/mender-app/mender-app/modules/deploy"
	"github.com/mender-app/mender-app/modules/staging"
	"github.com/mender-app/mender-app/modules/view"
)

func (p *program) stageCommand() *cobra.Command {
	return noun(cobra.Command{
		Use:   "stage",
		Short: "Keep artifacts on this device, to be installed later",
		Long: `Keeps artifacts on this device, to be installed later by "mender-app install --staged
APP" without a network.`,
		Example: "  mender-app stage add https://example.com/shop-2.mender\n  mender-app stage list",
	}, p.stageAddCommand(), p.stageAddCommand(), p.stageListCommand(), p.stageRmCommand())
}

func (p *program) stageAddCommand() *cobra.Command {
	var o stageOptions
	var source sourceOption
	cmd := &cobra.Command{
		Use:   "add FILE|URL",
		Short: "Stage an artifact, to be installed later",
		Long: `Reads the artifact in FILE or at an https URL to its end, and keeps it in the store.
"mender-app install --staged APP" installs it, without a network.

The artifact must be signed as for "mender-app install", its checksums must be right,
its metadata and policy readable, and it must be for this device's type. "mender-app
stage list" says whether it may be installed. An artifact of the same application and
artifact's name is replaced.

--load also loads its images beside the running ones, from checked content, so that the
installation loads nothing and takes seconds. They stay until the artifact is unstaged
or replaced, or removed to make room; an update or a purge of another application does
not delete them. Hooks do not run. It needs a sub-module with the feature "stage".

In mender-app.conf, staging_mib limits all staged artifacts with their loaded images,
and staging_free_mib is the space that stays free on the file system. The oldest
artifacts are removed to make room. The same command continues an interrupted download.
While another call uses the store, the exit code is 75.`,
		Example: "  mender-app stage add shop-2.mender\n  mender-app stage add --load https://example.com/shop-2.mender",
		Args:    source.Args(),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, err := source.Read(p.stdin, args)
			if err != nil {
				return err
			}
			one, dropped, err := p.stage(cmd.Context(), from, o)
			for _, x := range dropped {
				p.log.Warn("removed to make room", "artifact", x.ArtifactName, "app", x.Application)
			}
			if err != nil {
				return err
			}
			state, done := view.StateStaged, "staged"
			if o.load {
				state, done = view.StateLoaded, "staged and loaded"
			}
			words := one.Application + o.again()
			next := "now mender-app install --staged " + words
			if name, _ := device.MenderClient(); name != "" {
				next = fmt.Sprintf("%s manages this device and does not install it: mender-app install --force --staged %s does, and %s does not learn of it",
					name, words, name)
			}
			return p.printResult(stagedResult{one.Record, state, artifactNames(dropped)}, "%s %s (%s of %s); %s",
				done, one.ArtifactName, table.Bytes(one.Size), one.Application, next)
		},
	}
	o.Flags(cmd.Flags())
	source.Flag(cmd)
	cmd.Flags().BoolVar(&o.load, "load", false, "also load its images beside the running ones")
	return cmd
}

// stageOptions are the flags of stage.
type stageOptions struct {
	keyOptions
	load bool
}

// stagedResult is what stage prints.
type stagedResult struct {
	staging.Record
	State   string   `json:"state"`
	Dropped []string `json:"dropped,omitempty"`
}

func artifactNames(list []staging.Artifact) (names []string) {
	for _, a := range list {
		names = append(names, a.Name())
	}
	return names
}

// stage stages an artifact, and loads it if that is asked for. dropped is what was removed
// for it.
func (p *program) stage(ctx context.Context, from string, k stageOptions) (one *staging.Artifact, dropped []staging.Artifact, err error) {
	if from == "-" {
		return nil, nil, fmt.Errorf("%w: stage reads a FILE or a URL, not standard input", device.ErrUsage)
	}
	o := p.opener()
	keys, err := o.Trusted(k.keyOptions)
	if err != nil {
		return nil, nil, err
	}
	change, err := p.config.StagingArea().Begin(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer change.End()
	defer func() { p.unloadStaged(ctx) }()
	in, err := o.Open(ctx, from, len(keys) > 0, change.Room)
	if err != nil {
		return nil, change.Dropped(), err
	}
	defer func() { err = errors.Join(err, in.End(err)) }()
	if in.Size == 0 && !download.IsURL(from) {
		return nil, nil, fmt.Errorf("%w: %s is empty or not a file", device.ErrUsage, from)
	}
	bar := progress(p.stderr, p.json, in)
	defer bar.Done()
	one, err = change.Add(staging.Source{Reader: bar, Size: in.Size, Move: in.Move}, func(r io.Reader) (*mender.Reader, error) {
		a, err := openArtifact(r, keys)
		if err != nil {
			return nil, err
		}
		return a, p.fits(a.Header())
	})
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = fmt.Errorf("%w: nothing was staged", cause)
	}
	bar.Done()
	if err == nil && k.load {
		if err = p.loadStaged(ctx, one, keys, change); err != nil {
			const text = "%s is staged, and its images are not loaded: "
			if device.ExitCode(err) == device.ExitRefused { // that would say that nothing was changed
				err = fmt.Errorf(text+"%v", one.ArtifactName, err)
			} else {
				err = fmt.Errorf(text+"%w", one.ArtifactName, err)
			}
		}
	}
	return one, change.Dropped(), err
}

// unloadStaged deletes the images of what is no longer staged.
func (p *program) unloadStaged(ctx context.Context) {
	if err := p.engine().Unload(context.WithoutCancel(ctx)); err != nil {
		p.log.Warn("images of artifacts that are no longer staged are still loaded; mender-app resume tries again", "error", err)
	}
}

// listStaged lists what is staged. It asks no sub-module.
func listStaged(c *device.Config) ([]view.Staged, error) {
	return view.ListStaged(c.OpenStore(), c.StagingArea(), "")
}

func (p *program) stageListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the staged artifacts, and whether they would be installed",
		Long: `Lists the staged artifacts: the newest version of each application first, how it
compares with the installed one, and whether it would be installed now. This runs the
checks of "mender-app check" without reading the payload; check --staged says more.

STATE is "loaded" after stage add --load, with the announced space of the images in the
engine; shared layers take none.

A damaged artifact is named by the beginning of its digest. It is never installed, and
"mender-app stage rm" removes it.`,
		Example: "  mender-app stage list\n  mender-app stage list --json | jq '.[] | select(.allowed) | .artifact_name'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := listStaged(p.config)
			if err != nil {
				return err
			}
			type checked struct {
				view.Staged
				Allowed bool   `json:"allowed"`
				Why     string `json:"why,omitempty"`
			}
			all := []checked{}
			var rows [][]string
			for _, l := range list {
				one := checked{Staged: l}
				one.Why = p.stagedRefusal(cmd.Context(), &l)
				if cause := context.Cause(cmd.Context()); cause != nil {
					return cause
				}
				one.Allowed = one.Why == ""
				all = append(all, one)
				state := l.State
				if l.Engine > 0 {
					state += " (" + table.Bytes(l.Engine) + ")"
				}
				rows = append(rows, []string{l.Application, l.Version, l.Artifact.Name(), table.Bytes(l.Size), state, l.Record.Staged.UTC().Format(time.DateTime),
					l.Compared(), cmp.Or(one.Why, "yes"), l.Digest.Hex()[:12]})
			}
			if p.json || len(rows) > 0 {
				if p.json {
					return p.printResult(all, "")
				}
				return p.table("APPLICATION\tVERSION\tARTIFACT\tSIZE\tSTATE\tSTAGED (UTC)\tINSTALLED\tALLOWED\tDIGEST", rows)
			}
			return p.printResult(all, "nothing is staged")
		},
	}
}

// stagedRefusal is why an artifact would not be installed now; "" if it would.
func (p *program) stagedRefusal(ctx context.Context, l *view.Staged) string {
	if l.Problem != "" {
		return "damaged: " + l.Problem
	}
	f, _, err := l.Artifact.Open(mender.ReadOptions{})
	if err != nil {
		return "damaged: " + device.OneLine(err.Error())
	}
	defer f.Close()
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return device.OneLine(err.Error())
	}
	found, err := p.foreseeStaged(ctx, f)
	if err != nil {
		return device.OneLine(err.Error())
	}
	var why []string
	for _, c := range found.Findings {
		if c.Result == deploy.ResultFail {
			why = append(why, c.Check+": "+c.Detail)
		}
	}
	return strings.Join(why, "; ")
}

func (p *program) stageRmCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rm NAME",
		Short: "Remove a staged artifact",
		Long: `Removes the staged artifact with this artifact's name, or with a digest that begins with
NAME (at least 8 digits), as "mender-app stage list" shows them, and its loaded images
that nothing else needs. The installed release stays; if it came from this artifact,
"mender-app reconcile" may restore an older staged one (downgrades.automatic of its
policy). While another call uses the store, the exit code is 75.`,
		Example: "  mender-app stage rm shop-2",
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			c, err := device.Load()
			if err != nil || len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			list, _ := c.StagingArea().List()
			return artifactNames(list), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			change, err := p.config.StagingArea().Begin(cmd.Context())
			if err != nil {
				return err
			}
			defer change.End()
			defer func() { p.unloadStaged(cmd.Context()) }()
			list, err := p.config.StagingArea().List()
			if err != nil {
				return err
			}
			switch found := staging.Named(list, args[0]); len(found) {
			case 0:
				return fmt.Errorf("%s is %w: see mender-app stage list", args[0], staging.ErrNone)
			case 1:
				// Told before and after: a kill between must not lose it, and what
				// looks between finds the artifact still staged.
				for _, step := range []func() error{
					func() error { return withdraw(cmd.Context(), p.config, found[0]) },
					func() error { return change.Drop(found[0]) },
					func() error { return withdraw(cmd.Context(), p.config, found[0]) },
				} {
					if err := step(); err != nil {
						return err
					}
				}
				return p.printResult(map[string]string{"artifact_name": found[0].ArtifactName, "digest": found[0].Digest.String()}, "%s is no longer staged", found[0].Name())
			default:
				return fmt.Errorf("%w: %d staged artifacts are called %s: give the digest that mender-app stage list shows", device.ErrUsage, len(found), args[0])
			}
		},
	}
}

// stagedChoice is the option --staged of install and check.
type stagedChoice struct {
	staged bool
	source sourceOption
}

// Flag adds the option.
func (c *stagedChoice) Flag(cmd *cobra.Command, verb string) {
	cmd.Flags().BoolVar(&c.staged, "staged", false, verb+" the staged artifact of APP: its newest, or VERSION")
	c.source.Flag(cmd)
}

// completeStaged completes what is staged for a command with --staged: an application, and then
// a version. Without --staged it completes files.
func completeStaged(files cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, to string) (values []string, _ cobra.ShellCompDirective) {
		if on, err := cmd.Flags().GetBool("staged"); err != nil || !on {
			return files(cmd, args, to)
		}
		c, err := device.Load()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		list, _ := c.StagingArea().List()
		for _, a := range list {
			switch {
			case len(args) == 0 && !slices.Contains(values, a.Application):
				values = append(values, a.Application)
			case len(args) == 1 && a.Application == args[0]:
				values = append(values, cmp.Or(a.Version, a.ArtifactName))
			}
		}
		return values, cobra.ShellCompDirectiveNoFileComp
	}
}

// Args checks the number of arguments.
func (c *stagedChoice) Args() cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if c.staged && c.source.stdin {
			return wrongUsage(cmd, errors.New("give either --staged or --source-stdin"), "")
		}
		if c.staged {
			return checkArguments(cmd, "APP [VERSION]", args)
		}
		return c.source.Args()(cmd, args)
	}
}

// File is the file that the arguments of install and check mean.
func (c *stagedChoice) File(config *device.Config, stdin io.Reader, args []string) (string, error) {
	if !c.staged {
		return c.source.Read(stdin, args)
	}
	list, err := config.StagingArea().List()
	if err != nil {
		return "", err
	}
	wanted := ""
	if len(args) == 2 {
		wanted = args[1]
	}
	a, err := staging.Find(list, args[0], wanted)
	if err != nil {
		return "", err
	}
	return a.Path, nil
}
