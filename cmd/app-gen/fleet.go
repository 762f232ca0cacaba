package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/generator/fleet"
	"github.com/mender-app/mender-app/generator/write"
)

func fleetCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "fleet",
		Short: "prepare a release for a fleet with many older ones",
		Long: `fleet prepares the right delta for each device of a fleet before a rollout begins:

  plan     counts what the devices have, and plans the deltas that are worth their cost
  run      makes them, in one process or several
  status   says how many are made
  publish  writes the artifact, once all of them are made
  job      prints a job for your cluster or CI that makes them

docs/FLEET.md has an example from the inventory to the rollout.`,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(fleetPlanCommand(), fleetRunCommand(), fleetStatusCommand(), fleetPublishCommand(), fleetJobCommand())
	return c
}

func fleetPlanCommand() *cobra.Command {
	var o fleet.Options
	var inventories []string
	var store, output, storage string
	var cpu, span time.Duration
	var lenient, asJSON bool
	c := &cobra.Command{
		Use:   "plan --inventory FILE… --releases PLACE -n RELEASE",
		Short: "count what the devices have, and plan the deltas that are worth their cost",
		Long: `plan counts the devices of an inventory by release, platform and device type. It plans one
delta for each image of RELEASE over each image that devices have in its place, ordered by
the bytes that a delta saves in the fleet for its processor time. With a budget it chooses
the deltas that together save the most, within half a percent. It encodes nothing.

An inventory is an export of Mender's inventory API (a list of devices in JSON), JSON lines
of mender-app inventory --json, or CSV with a header line. Of these fields the first one
that a device has counts:

  its release      app_APP_artifact, data-partition.APP.version,
                   rootfs-image.APP.version, version
  its device type  device_type
  its platform     platform; without one, that of the release for its device type

RELEASE must be in PLACE with whole images, for devices without a planned base. Sizes and
times are exact if the release or the --store has a delta, and otherwise estimated from the
changed layers; docs/FLEET.md says how.

` + exitText,
		Example: `  app-gen fleet plan --inventory devices.json --releases releases -n shop-5 -o plan.json
  app-gen fleet plan --inventory a.csv --inventory b.csv --releases releases -n shop-5 \
      --budget-time 2h --shards 8 --store store -o plan.json`,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if len(inventories) == 0 || len(o.Releases) == 0 || o.Release == "" {
				return &usageError{text: "--inventory, --releases or --artifact-name is missing", hint: "see app-gen fleet plan --help"}
			}
			if cpu < 0 || span < 0 || o.Budget.Shards < 0 || o.Budget.Shards > fleet.MaxShards {
				return &usageError{text: fmt.Sprintf("a budget is a time above 0, and --shards a number up to %d", fleet.MaxShards)}
			}
			if n := budgets(c); n > 1 {
				return &usageError{text: "--budget-cpu, --budget-storage and --budget-time exclude each other", hint: "give the one that is short"}
			}
			if o.Budget.Shards > 0 && span == 0 {
				return &usageError{text: "--shards without --budget-time", hint: "it says how many shards share the work in that time"}
			}
			o.Budget.CPU, o.Budget.Time = cpu.Milliseconds(), span.Milliseconds()
			if span > 0 {
				o.Budget.Shards = max(o.Budget.Shards, 1)
			}
			if storage != "" {
				if o.Budget.Storage, err = parseBytes(storage); err != nil {
					return &usageError{text: "--budget-storage: " + err.Error(), hint: "give bytes, or a number with kB, MB, GB or TB"}
				}
			}
			if store != "" {
				if o.Store, err = fleet.OpenStore(store); err != nil {
					return err
				}
			}
			dirs, remove, err := fetched(c.Context(), o.Releases)
			defer remove()
			if err != nil {
				return err
			}
			o.Releases = dirs
			p, garbage, err := fleet.MakePlan(c.Context(), o, inventories, lenient)
			if err != nil {
				return err
			}
			for _, g := range garbage {
				fmt.Fprintf(c.ErrOrStderr(), "app-gen: skipped: %s\n", g)
			}
			if output != "" {
				if err := writePlan(c.Context(), output, p); err != nil {
					return err
				}
			}
			if asJSON {
				return printJSON(c.OutOrStdout(), p)
			}
			printFleetPlan(c.OutOrStdout(), p)
			return nil
		},
	}
	fl := c.Flags()
	fl.SortFlags = false
	fl.StringArrayVar(&inventories, "inventory", nil, "file with the devices (repeatable)")
	fl.StringArrayVar(&o.Releases, "releases", nil, "directory, URL or oci:REPOSITORY with the releases (repeatable)")
	fl.StringVarP(&o.Release, "artifact-name", "n", "", "release to prepare")
	fl.StringVar(&o.Application, "application-name", "", "its application, if several have a release of the name")
	fl.StringVarP(&output, "output-path", "o", "", "file to write the plan to")
	fl.StringVar(&store, "store", "", "directory with finished deltas, which need not be made again")
	fl.DurationVar(&cpu, "budget-cpu", 0, "processor time for all deltas, such as 4h30m")
	fl.StringVar(&storage, "budget-storage", "", "bytes that all deltas may take, such as 20GB")
	fl.DurationVar(&span, "budget-time", 0, "time until the last of --shards is done, with a processor for each")
	fl.IntVar(&o.Budget.Shards, "shards", 0, "number of processes for --budget-time (default 1)")
	fl.BoolVar(&lenient, "lenient", false, "skip and count unreadable devices")
	fl.BoolVar(&asJSON, "json", false, "print the plan as one JSON document")
	return c
}

// budgets counts the budgets that are given.
func budgets(c *cobra.Command) (n int) {
	for _, name := range []string{"budget-cpu", "budget-storage", "budget-time"} {
		if c.Flags().Changed(name) {
			n++
		}
	}
	return n
}

func writePlan(ctx context.Context, path string, p *fleet.Plan) error {
	return write.To(ctx, path, "", func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", " ")
		return e.Encode(p)
	})
}

var bytesForm = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?) ?(B|kB|KB|MB|GB|TB)?$`)

// parseBytes reads a number of bytes.
func parseBytes(s string) (int64, error) {
	m := bytesForm.FindStringSubmatch(s)
	if m == nil {
		return 0, fmt.Errorf("%q is no number of bytes", s)
	}
	n, err := strconv.ParseFloat(m[1], 64)
	n *= map[string]float64{"": 1, "B": 1, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}[m[2]]
	if err != nil || n < 1 || n > 1e18 {
		return 0, fmt.Errorf("%s is too little or too much", s)
	}
	return int64(n), nil
}

func millis(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	if d > 10*time.Second {
		d = d.Round(time.Second)
	} else {
		d = d.Round(100 * time.Millisecond)
	}
	return d.String()
}

// maxShown is how many rows of a list people see; --json has all.
const maxShown = 40

func printFleetPlan(w io.Writer, p *fleet.Plan) {
	t := newColumns(w, "DEVICES", "HAVE", "PLATFORM", "DEVICE TYPE")
	for _, c := range p.Histogram[:min(len(p.Histogram), maxShown)] {
		t.row(fmt.Sprint(c.Devices), cmp.Or(c.Version, "nothing"), cmp.Or(c.Platform, "-"), cmp.Or(c.DeviceType, "-"))
	}
	t.print()
	more(w, len(p.Histogram))
	fmt.Fprintln(w)
	printDeltas(w, p.Deltas, "")
	if len(p.Left) > 0 {
		fmt.Fprintln(w, "\nnot made, so that these devices fetch whole images:")
		printDeltas(w, p.Left, "WHY")
	}
	if len(p.Whole) > 0 {
		fmt.Fprintln(w, "\nwhole images without a choice:")
		t := newColumns(w, "DEVICES", "HAVE", "EACH", "WHY")
		for _, c := range p.Whole[:min(len(p.Whole), maxShown)] {
			t.row(fmt.Sprint(c.Devices), cmp.Or(c.Version, "nothing"), bytesText(c.Bytes), c.Why)
		}
		t.print()
		more(w, len(p.Whole))
	}
	if len(p.Missing) > 0 {
		fmt.Fprintf(w, "\nreleases that devices have, and that are not here: %s\n", strings.Join(p.Missing, ", "))
	}
	fmt.Fprintln(w)
	if p.Skipped > 0 {
		fmt.Fprintf(w, "%s unreadable\n", metered.Count(int(p.Skipped), "device"))
	}
	s := p.Totals
	fmt.Fprintf(w, "downloads of %s: about %s with this plan, and %s with whole images alone\n", metered.Count(int(p.Devices), "device"), bytesText(s.Planned), bytesText(s.Whole))
	fmt.Fprintf(w, "%s: about %s of one processor and %s in the store", metered.Count(len(p.Deltas), "delta"), millis(s.CPU), bytesText(s.Storage))
	if p.Budget != nil && p.Budget.Time > 0 {
		fmt.Fprintf(w, ", %s with %s", millis(s.Longest), metered.Count(p.Budget.Shards, "shard"))
	}
	fmt.Fprintln(w)
}

func more(w io.Writer, n int) {
	if n > maxShown {
		fmt.Fprintf(w, "and %d more, which --json has\n", n-maxShown)
	}
}

func printDeltas(w io.Writer, list []fleet.Delta, why string) {
	t := newColumns(w, "DEVICES", "IMAGE", "OVER THAT OF", "PLATFORM", "DELTA", "WHOLE", "SAVES", "CPU", why)
	for _, d := range list[:min(len(list), maxShown)] {
		size, cpu := bytesText(d.Bytes), millis(d.CPU)
		if d.There == "" {
			size = "~" + size
		} else {
			cpu = "in the " + d.There
		}
		over := d.Over[0]
		if n := len(d.Over); n > 1 {
			over = fmt.Sprintf("%s and %d more", over, n-1)
		}
		t.row(fmt.Sprint(d.Devices), d.Key.To.URL, over, d.Key.Platform, size, bytesText(d.Whole), bytesText(d.Saved), cpu, d.Left)
	}
	t.print()
	more(w, len(list))
}
