package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/cmd/internal/table"
	"github.com/mender-app/mender-app/modules/view"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

func (p *program) statusCommand() *cobra.Command {
	var watch, stored, health bool
	cmd := &cobra.Command{
		Use:   "status [APP]",
		Short: "Show applications and their health; exit with 6 if something is not healthy",
		Long: `Shows the current release, the application's state, the result of its last deployment,
and each of its services: health, start or end, restarts, last failure and last output.
It also shows what is staged to be installed next, and why an update would have to wait.
Without APP it also names the data of applications that were removed without it. The
state of services comes from the engine, through the sub-module; one without the feature
"status" reports only the health of the whole application.

The health of a service is healthy, starting, unhealthy (it runs, but something is
wrong), down (it should run, but does not) or done (it had one job and has done it).

Shorter views: --health prints one line for each application. --stored asks no engine:
it lists the applications from the store, with the release that runs or should run (while
an update waits for its commit, the new one), or prints what the store has of APP.`,
		Example:           "  mender-app status\n  mender-app status shop --watch\n  mender-app status --health --json || echo something is wrong\n  mender-app status --stored",
		ValidArgsFunction: completeApps,
		RunE: func(cmd *cobra.Command, names []string) error {
			switch views := set(watch, stored, health); {
			case views > 1:
				return wrongUsage(cmd, errors.New("use only one of --watch, --stored and --health"), "")
			case stored && len(names) == 0:
				return p.list()
			case stored:
				return p.show(names[0])
			case health:
				return p.health(cmd.Context(), names)
			case watch:
				return p.watchStatus(cmd.Context(), names)
			}
			list, err := p.status(cmd.Context(), names)
			if errors.Is(err, store.ErrNoApp) && len(names) == 1 {
				return p.goneButData(cmd.Context(), err, names[0])
			}
			if list == nil {
				return err
			}
			if p.json {
				return errors.Join(p.printJSON(list), err)
			}
			text, wrong := p.rendered(p.stdout, list) // written at once
			if wrong == nil && len(names) == 0 {
				text += p.leftText(cmd.Context(), text != "")
			}
			if wrong == nil {
				_, wrong = io.WriteString(p.stdout, text)
			}
			return errors.Join(wrong, err)
		},
	}
	cmd.Flags().BoolVar(&health, "health", false, "print only the state and the health of each application")
	cmd.Flags().BoolVar(&stored, "stored", false, "print the store's view, without asking engines: a list, or the details of APP")
	cmd.Flags().BoolVar(&watch, "watch", false, "print it again at each change, until Ctrl-C; JSON as one line each")
	return cmd
}

// set is how many options are set.
func set(options ...bool) (n int) {
	for _, o := range options {
		if o {
			n++
		}
	}
	return n
}

// status looks at one application or at all. The list is nil if nothing could be
// found out; the error also says that something is not healthy.
func (p *program) status(ctx context.Context, names []string) (list []*view.Overview, wrong error) {
	s := p.config.OpenStore()
	if len(names) == 0 {
		var err error
		if names, err = s.Apps(); err != nil {
			return nil, err
		}
	}
	list = make([]*view.Overview, len(names))
	var failed error
	p.viewer().Overviews(ctx, s, names, func(i int, o *view.Overview, err error) {
		list[i], failed = o, cmp.Or(failed, err)
	})
	if failed != nil {
		return nil, failed
	}
	for _, o := range list {
		wrong = cmp.Or(wrong, o.Wrong)
	}
	addInconsistent(ctx, list)
	return list, wrong
}

// left is the data of applications that were removed without it.
func (p *program) left(ctx context.Context) []view.Left {
	left, err := p.viewer().Left(ctx, p.config.OpenStore(), p.config.Submodules())
	if err != nil {
		p.log.Warn("the data of applications that were removed is not known", "error", err)
	}
	return left
}

// leftText says what data is left, and how it is removed: a line for each application.
func (p *program) leftText(ctx context.Context, below bool) string {
	text := ""
	for _, l := range p.left(ctx) {
		text += l.Application + " was removed, its data was not: " + removable(l) + "\n"
	}
	if text != "" && below {
		text = "\n" + text
	}
	return text
}

// removable names the data and the command that removes it.
func removable(l view.Left) string {
	return device.OneLine(strings.Join(l.Data, ", ")) + "; mender-app purge " + l.Application + " --data removes it"
}

// goneButData adds to the error of an application that is not installed what data it has left.
func (p *program) goneButData(ctx context.Context, err error, name string) error {
	for _, l := range p.left(ctx) {
		if l.Application == name {
			return fmt.Errorf("%w; its data was not removed: %s", err, removable(l))
		}
	}
	return err
}

// printStatus prints the applications for a person.
func (p *program) printStatus(list []*view.Overview) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(p.stderr, "no application is installed; mender-app install FILE|URL installs one")
		return err
	}
	for i, st := range list {
		if i > 0 {
			fmt.Fprintln(p.stdout)
		}
		rows := [][]string{
			{"state", stateText(&st.Document)}, {"health", st.Health}, {"release", st.Release}, {"artifact", st.ArtifactName},
			{"committed", st.Committed}, {"last", lastText(st.Last)}, {"switched off", strings.Join(st.Disabled, ", ")}, {"problem", st.Problem},
		}
		if st.UpdatesWait != "" {
			rows = append(rows, []string{"updates", device.OneLine(st.UpdatesWait)})
		}
		for _, l := range st.Staged {
			rows = append(rows, []string{"staged", l.Text()})
		}
		if d := st.Deployment; d != nil {
			for _, s := range dataSteps(d.Steps) {
				rows = append(rows, []string{"data", s})
			}
		}
		rows = slices.DeleteFunc(rows, func(r []string) bool { return r[1] == "" })
		if err := p.table("application\t"+st.Name, rows); err != nil {
			return err
		}
		rows = nil
		for _, v := range st.Services {
			rows = append(rows, []string{cmp.Or(v.Instance, v.Name), v.Health, since(v.Since), fmt.Sprint(v.Restarts), failureText(v)})
		}
		if len(rows) == 0 {
			continue
		}
		if err := p.table("SERVICE\tHEALTH\tSINCE\tRESTARTS\tLAST FAILURE", rows); err != nil {
			return err
		}
	}
	return nil
}

// since is a time for a table; "" if it is not known.
func since(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return when(t)
}

// dataSteps says what an open deployment does and did with data.
func dataSteps(steps []store.Step) (lines []string) {
	for i, s := range steps {
		switch {
		case s.Data == "":
		case i+1 < len(steps):
			lines = append(lines, fmt.Sprintf("%s %s took %s", s.Data, when(s.At), took(s.At, steps[i+1].At)))
		default:
			lines = append(lines, fmt.Sprintf("%s since %s", s.Data, when(s.At)))
		}
	}
	return lines
}

// lastText says how the last deployment ended.
func lastText(r *store.Record) string {
	if r == nil {
		return ""
	}
	text := strings.TrimSpace(r.ArtifactName+" "+r.Status) + " " + when(r.Ended)
	if m := r.Measured; m != nil && m.DataSeconds > 0 {
		text += fmt.Sprintf(", %.1f s of it on data", m.DataSeconds)
	}
	if r.Error != "" {
		text += ": " + r.Error
	}
	return text
}

// failureText says what was wrong with a service the last time.
func failureText(v submodules.Service) string {
	text := v.Failure
	if !v.Failed.IsZero() && v.Health != submodules.Down {
		text = when(v.Failed) + " " + text
	}
	if v.Said != "" {
		text += "; it last said: " + v.Said
	}
	return text
}

// statusPause is the time between an answer and the next question.
const statusPause = 2 * time.Second

// watchStatus prints the status whenever it changes, until a person has seen enough.
// A terminal is cleared before.
func (p *program) watchStatus(ctx context.Context, names []string) error {
	out, before := p.stdout, ""
	defer func() { p.stdout = out }()
	terminal := table.IsTerminal(out)
	for {
		list, err := p.status(ctx, names)
		if ctx.Err() != nil {
			return nil // Ctrl-C is how it ends
		}
		if list == nil {
			return err
		}
		text, err := p.rendered(out, list)
		if err != nil {
			return err
		}
		if text != before {
			before = text
			if terminal && !p.json {
				text = "\x1b[H\x1b[2J" + text
			} else if !p.json {
				text = "# " + when(time.Now()) + "\n" + text
			}
			if _, err := io.WriteString(out, text); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(statusPause):
		}
	}
}

// rendered is the text of a list for out: JSON on one line, or tables.
func (p *program) rendered(out io.Writer, list []*view.Overview) (string, error) {
	if p.json {
		line, err := json.Marshal(list)
		return string(line) + "\n", err
	}
	var text bytes.Buffer
	p.stdout = &fitted{&text, terminalWidth(out)}
	defer func() { p.stdout = out }()
	err := p.printStatus(list)
	return text.String(), err
}

// fitted is a buffer whose tables fit a terminal.
type fitted struct {
	*bytes.Buffer
	width int
}
