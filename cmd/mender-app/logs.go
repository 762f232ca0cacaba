package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/artifact/clip"
	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/cmd/internal/table"
	"github.com/mender-app/mender-app/modules/view"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

func (p *program) logsCommand() *cobra.Command {
	var follow, times bool
	var tail int
	var number, step, since string
	cmd := &cobra.Command{
		Use:   "logs APP [SERVICE]",
		Short: "Show the output of an application's services",
		Long: `Shows the newest lines of each container of an application, or of one service, in the
order of time, each after the container's name. They come from the engine, through the
sub-module; the error names one without the feature "logs/1".

--since takes a date (2026-11-24), a time (2026-11-24T07:00:00Z) or how long ago it was
(30m, 36h, 7d), and shows all lines since then, unless --tail is given.

On a terminal, colours are left out and control characters are quoted, so that a service
cannot command the terminal. Elsewhere lines are as the service wrote them, except that
invalid UTF-8 is replaced and a line is cut after 16 KiB. With --json each line is a
document with service, instance, at, stream and line.

With --deployment it shows instead the log of the update module and the sub-module in a
deployment, by its number in "mender-app history APP", also of the open one and of
removed applications; with --step only of one step, such as downloading, installing or
rolling-back. The device keeps the logs of the last 20 deployments of an application.`,
		Example:           "  mender-app logs shop\n  mender-app logs shop web -f --tail 10\n  mender-app logs shop --since 30m\n  mender-app logs shop --json | jq -r .line\n  mender-app logs shop --deployment 12 --step installing",
		ValidArgsFunction: completeServices,
		RunE: func(cmd *cobra.Command, names []string) error {
			if tail < 0 || tail > submodules.MaxLogLines {
				return fmt.Errorf("%w: --tail %d is not between 0 and %d", device.ErrUsage, tail, submodules.MaxLogLines)
			}
			if number != "" || step != "" {
				if len(names) > 1 || follow || number == "" {
					return fmt.Errorf("%w: --step needs --deployment, and works with neither a service nor --follow", device.ErrUsage)
				}
				return p.deploymentLog(names[0], number, step, times)
			}
			from, err := timeOf("--since", since)
			if err != nil {
				return err
			}
			if !from.IsZero() && !cmd.Flags().Changed("tail") {
				tail = submodules.MaxLogLines
			}
			app, err := view.Read(p.config.OpenStore(), names[0])
			if err != nil {
				return err
			}
			err = p.viewer().Logs(cmd.Context(), app, strings.Join(names[1:], ""), tail, follow, writtenSince(from, p.logPrinter(times)))
			if follow && cmd.Context().Err() != nil { // Ctrl-C is how -f ends
				return nil
			}
			return err
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "continue with new lines, until Ctrl-C")
	cmd.Flags().IntVar(&tail, "tail", submodules.DefaultLogLines, "show the newest N lines of each container")
	cmd.Flags().StringVar(&since, "since", "", "show lines from this time on: a date, a time, or how long ago")
	cmd.Flags().StringVar(&number, "deployment", "", "show the log of deployment `N`")
	cmd.Flags().StringVar(&step, "step", "", "with --deployment: show only the step `S`")
	cmd.Flags().BoolVarP(&times, "timestamps", "t", false, "show when each line was written")
	return cmd
}

// writtenSince leaves out lines that were written before a time.
func writtenSince(from time.Time, each func(submodules.LogLine) error) func(submodules.LogLine) error {
	return func(l submodules.LogLine) error {
		if l.At.Before(from) && !l.At.IsZero() {
			return nil
		}
		return each(l)
	}
}

// deploymentLog prints what was said in a deployment.
func (p *program) deploymentLog(app, number, step string, times bool) error {
	n, err := deploymentNumber(number)
	if err != nil {
		return err
	}
	enc := json.NewEncoder(clip.JSONWriter(p.stdout))
	enc.SetEscapeHTML(false)
	err = p.config.OpenStore().DeploymentLog(app, n, func(l store.LogEntry) error {
		switch {
		case step != "" && l.Step != step:
			return nil
		case p.json:
			return enc.Encode(l)
		}
		line := l.Step + " | "
		if times {
			line = l.At.Format("2006-01-02T15:04:05.000Z") + " " + line
		}
		if l.Level == "warn" || l.Level == store.LevelError {
			line += l.Level + ": "
		}
		_, err := io.WriteString(p.stdout, line+device.OneLine(l.Text)+"\n")
		return err
	})
	if errors.Is(err, store.ErrNoRecord) {
		return fmt.Errorf("%w: mender-app history %s lists the numbers; only the newest 20 deployments have a log", err, app)
	}
	return err
}

// logPrinter returns what prints a line of a log.
func (p *program) logPrinter(times bool) func(submodules.LogLine) error {
	if p.json {
		enc := json.NewEncoder(clip.JSONWriter(p.stdout))
		enc.SetEscapeHTML(false)
		return func(l submodules.LogLine) error { return enc.Encode(l) }
	}
	clean := func(text string) string { return strings.ReplaceAll(text, "\n", " ") }
	if table.IsTerminal(p.stdout) {
		clean = forTerminal
	}
	return func(l submodules.LogLine) error {
		head := device.OneLine(l.Instance)
		if head == "" {
			head = device.OneLine(l.Service)
		}
		if times && !l.At.IsZero() {
			head += " " + l.At.UTC().Format("2006-01-02T15:04:05.000Z")
		}
		_, err := io.WriteString(p.stdout, head+" | "+clean(l.Text)+"\n")
		return err
	}
}

// colour is a command that changes the colour of the text after it (SGR).
var colour = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile("\x1b\\[[0-9;:]*m")
})

// forTerminal makes a line of a service harmless for a terminal.
func forTerminal(text string) string { return device.OneLine(colour().ReplaceAllString(text, "")) }
