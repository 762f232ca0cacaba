package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/cmd/internal/table"
	"github.com/mender-app/mender-app/modules/view"
	"github.com/mender-app/mender-app/store"
)

// defaultPage is how many deployments history prints without --limit.
const defaultPage = 20

func (p *program) historyCommand() *cobra.Command {
	var limit int
	var cursor int64
	var status []string
	var since, until string
	cmd := &cobra.Command{
		Use:   "history [APP [NUMBER]]",
		Short: "List the deployments of one or all applications, or show one",
		Long: `Lists the finished deployments of an application, the newest first, also when the
application was removed. Without APP it lists those of all applications. Their status is
installed, restored (mender-app rollback APP went back to a kept release), rolled-back,
refused, failed, purged, or reconciled (the device started it again by itself). BY says
who drove it: "mender" for the Mender client's own updates, "by hand" with the user's
name, or "automatic" for a systemd unit.

With a number it shows that deployment: its changes, with digests; each step with its
start, duration and outcome; the bytes received, and those that all programs wrote to the
disks; and the downtime of each restarted service. "mender-app logs APP --deployment N"
has its log.

--since and --until take a date (2026-11-24), a time (2026-11-24T07:00:00Z) or how
long ago it was (36h, 7d); they choose by the end of a deployment. If there are
more than --limit, the last line has the --cursor of the next page: the number of the last
deployment, also for --json. Without APP it has the --until of the next page: the end of the
last deployment.`,
		Example:           "  mender-app history\n  mender-app history shop --limit 5\n  mender-app history shop 12\n  mender-app history shop --status rolled-back,failed --since 7d --json",
		ValidArgsFunction: completeApps,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 2 {
				return p.deployment(args[0], args[1])
			}
			q := store.Query{Statuses: status, Limit: limit, Before: cursor}
			for _, s := range status {
				if !slices.Contains(store.Statuses(), s) {
					return fmt.Errorf("%w: --status %s is not one of %v", device.ErrUsage, s, store.Statuses())
				}
			}
			if limit < 0 || cursor < 0 {
				return fmt.Errorf("%w: --limit and --cursor must not be negative", device.ErrUsage)
			}
			var err error
			if q.Since, err = timeOf("--since", since); err != nil {
				return err
			}
			if q.Until, err = timeOf("--until", until); err != nil {
				return err
			}
			if len(args) == 1 {
				return p.history(args[0], q)
			}
			if cursor > 0 {
				return fmt.Errorf("%w: --cursor needs an APP; for the next page of all applications, use --until", device.ErrUsage)
			}
			return p.histories(q)
		},
	}
	cmd.Flags().IntVar(&limit, "limit", defaultPage, "print at most N; 0: all")
	cmd.Flags().Int64Var(&cursor, "cursor", 0, "print the page after the one that named this cursor")
	cmd.Flags().StringSliceVar(&status, "status", nil, "print only those with one of these statuses")
	cmd.Flags().StringVar(&since, "since", "", "print only those that ended at this time or later")
	cmd.Flags().StringVar(&until, "until", "", "print only those that ended before this time")
	return cmd
}

func (p *program) history(app string, q store.Query) error {
	s := p.config.OpenStore()
	page, more, err := s.Deployments(app, q)
	if err != nil {
		return err
	}
	if len(page) == 0 {
		if _, found, err := s.Last(app); err != nil || !found {
			if _, err := s.App(app); err != nil {
				return err
			}
		}
	}
	if p.json {
		return p.printJSON(page)
	}
	var rows [][]string
	for _, r := range page {
		rows = append(rows, historyRow(r))
	}
	if err := p.table(historyHead, rows); err != nil || more == 0 {
		return err
	}
	_, err = fmt.Fprintf(p.stdout, "more: --cursor %d\n", more)
	return err
}

const historyHead = "NO\tENDED\tARTIFACT\tSTATUS\tTOOK\tBY\tERROR"

func historyRow(r store.Record) []string {
	return []string{strconv.FormatInt(r.Number, 10), when(r.Ended), r.ArtifactName, r.Status, took(r.Started, r.Ended), by(r), device.OneLine(r.Error)}
}

// histories prints the deployments of all applications. A history that cannot be read does
// not hide the others.
func (p *program) histories(q store.Query) error {
	s := p.config.OpenStore()
	names, err := s.Remembered()
	if err != nil {
		return err
	}
	page, more := []store.Record{}, false
	var unread error
	for _, name := range names {
		of, older, err := s.Deployments(name, q)
		unread = errors.Join(unread, err)
		page = append(page, of...)
		slices.SortStableFunc(page, func(a, b store.Record) int { return b.Ended.Compare(a.Ended) })
		if more = more || older > 0; q.Limit > 0 && len(page) > q.Limit {
			page, more = page[:q.Limit:q.Limit], true // so that no more are in memory
		}
	}
	if p.json {
		return errors.Join(p.printJSON(page), unread)
	}
	var rows [][]string
	for _, r := range page {
		rows = append(rows, append([]string{r.Application}, historyRow(r)...))
	}
	err = p.table("APPLICATION\t"+historyHead, rows)
	if err == nil && more {
		_, err = fmt.Fprintf(p.stdout, "more: --until %s\n", page[len(page)-1].Ended.Format(time.RFC3339Nano))
	}
	return errors.Join(err, unread)
}

// deployment prints one deployment.
func (p *program) deployment(app, number string) error {
	n, err := deploymentNumber(number)
	if err != nil {
		return err
	}
	r, err := p.config.OpenStore().Deployment(app, n)
	if err != nil {
		return err
	}
	if p.json {
		return p.printJSON(r)
	}
	var changed store.Changed
	if r.Changed != nil {
		changed = *r.Changed
	}
	rows := [][]string{
		{"status", r.Status}, {"artifact", r.ArtifactName}, {"from", joined(r.From, changed.FromArtifact)}, {"to", r.To}, {"by", by(r)},
		{"together with", leader(r)}, {"installed first", members(r)}, {"started", when(r.Started)}, {"ended", when(r.Ended)}, {"took", took(r.Started, r.Ended)},
	}
	if m := r.Measured; m != nil {
		rows = append(rows, []string{"received", measured(m.Received)}, []string{"written", writtenText(m.Written)})
	}
	for _, t := range downtimes(r) {
		rows = append(rows, []string{"down", device.OneLine(t.Service) + " " + downText(t)})
	}
	if r.Error != "" {
		rows = append(rows, []string{"error", device.OneLine(r.Error)})
	}
	for _, s := range r.Steps {
		text := fmt.Sprintf("%s %s %s", when(s.At), took(s.At, s.End), s.Outcome)
		if s.Error != "" && s.Error != r.Error {
			text += ": " + device.OneLine(s.Error)
		}
		rows = append(rows, []string{joined(string(s.Phase), dataText(s.Data)), text})
	}
	for _, c := range changed.Components {
		rows = append(rows, []string{c.Type, device.OneLine(c.URL) + " " + changeText(c)})
	}
	rows = slices.DeleteFunc(rows, func(row []string) bool { return row[1] == "" })
	return p.table(fmt.Sprintf("deployment\t%d of %s", r.Number, r.Application), rows)
}

// dataText says what a step does with data; "" for nothing.
func dataText(data string) string {
	if data == "" {
		return ""
	}
	return data + " data"
}

// leader is the deployment that one was a member of; "" for none.
func leader(r store.Record) string {
	if r.Leader == nil {
		return ""
	}
	return fmt.Sprintf("deployment %d of %s", r.Leader.Number, r.Leader.Application)
}

// members are what was installed first; "" for nothing.
func members(r store.Record) string {
	var list []string
	for _, m := range r.Members {
		list = append(list, device.OneLine(m.ArtifactName)+" of "+m.Application)
	}
	return strings.Join(list, ", ")
}

func deploymentNumber(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%w: %q is not the number of a deployment: mender-app history APP lists them", device.ErrUsage, text)
	}
	return n, nil
}

func joined(words ...string) string {
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " ")
}

func changeText(c store.Change) string {
	from, to := c.From.String(), c.To.String()
	switch {
	case from == to:
		return "unchanged " + to
	case from == "":
		return "new " + to
	case to == "":
		return "removed " + from
	}
	return from + " -> " + to
}

// by says who asked for a deployment, in the space of a column.
func by(r store.Record) string {
	switch {
	case r.Asked == nil || r.Asked.How == store.AskedByClient:
		return r.Driver
	case r.Asked.User != "":
		return r.Asked.How + " (" + device.OneLine(r.Asked.User) + ")"
	}
	return r.Asked.How
}

// took is how long something took by the device's clock; "?" if the clock was set
// back meanwhile.
func took(from, to time.Time) string {
	d := to.Sub(from)
	switch {
	case d < 0 || from.IsZero() || to.IsZero():
		return "?"
	case d < 10*time.Second:
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// measured is a number of bytes that was measured; "" if it was not.
func measured(n int64) string {
	if n == 0 {
		return ""
	}
	return table.Bytes(n)
}

// writtenText says whose bytes were counted: those of the update are among them.
func writtenText(n int64) string {
	if n == 0 {
		return ""
	}
	return measured(n) + " by all programs, to the disks of the store and the engine"
}

// downtimes are those that a record has.
func downtimes(r store.Record) []store.Downtime {
	if r.Measured == nil {
		return nil
	}
	return r.Measured.Downtimes
}

// downText says how long a service was down.
func downText(t store.Downtime) string {
	text := time.Duration(t.Seconds * float64(time.Second)).Round(10 * time.Millisecond).String()
	if !t.Since.IsZero() {
		text += ", and was not ready again"
	}
	return text
}

// timeOf reads the value of --since or --until.
func timeOf(option, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := view.ParseTime(text)
	if err != nil {
		return t, fmt.Errorf("%w: %s %w", device.ErrUsage, option, err)
	}
	return t, nil
}
