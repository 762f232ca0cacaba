package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/artifact/input"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/generator/fleet"
	"github.com/mender-app/mender-app/generator/places"
	"github.com/mender-app/mender-app/generator/write"
)

// planAndStore are the arguments of the commands that work on a plan.
func planAndStore(args []string) (*fleet.Plan, *fleet.Store, error) {
	p, err := fleet.ReadPlan(args[0])
	if err != nil {
		return nil, nil, err
	}
	s, err := fleet.OpenStore(args[1])
	return p, s, err
}

var shardForm = regexp.MustCompile(`^([0-9]{1,5})/([0-9]{1,5})$`)

// parseShard reads i/n.
func parseShard(s string) (i, n int, err error) {
	m := shardForm.FindStringSubmatch(s)
	if m != nil {
		i, _ = strconv.Atoi(m[1])
		n, _ = strconv.Atoi(m[2])
	}
	if i < 1 || i > n || n > fleet.MaxShards {
		return 0, 0, &usageError{text: fmt.Sprintf("--shard %q is not I/N", s), hint: fmt.Sprintf("such as 2/8: the second of eight, which may be %d at most", fleet.MaxShards)}
	}
	return i, n, nil
}

func fleetRunCommand() *cobra.Command {
	r := fleet.Run{}
	var shard string
	var asJSON bool
	c := &cobra.Command{
		Use:   "run PLAN STORE --releases PLACE",
		Short: "make the deltas of a plan, or a shard of them",
		Long: `run makes the deltas of PLAN that are not in STORE, the best first. With --shard I/N it
makes one of N parts, on any machines that share the STORE:
` + places.Forms + `.
Each delta is decoded before it is stored, and its bytes do not depend on N. A process may
die, run twice, or run on another machine: deltas in the store are not made again, unless
they are damaged.

` + exitText,
		Example: `  app-gen fleet run plan.json store --releases releases
  app-gen fleet run plan.json store --releases releases --shard 2/8 --json`,
		RunE: func(c *cobra.Command, args []string) (err error) {
			if len(r.Releases) == 0 {
				return &usageError{text: "--releases is missing", hint: "name the place that the plan was made with"}
			}
			if r.Shard, r.Shards, err = parseShard(shard); err != nil {
				return err
			}
			if r.Plan, r.Store, err = planAndStore(args); err != nil {
				return err
			}
			dirs, remove, err := fetched(c.Context(), r.Releases)
			defer remove()
			if err != nil {
				return err
			}
			r.Releases = dirs
			events := json.NewEncoder(c.OutOrStdout())
			r.Tell = func(e fleet.Event) {
				if asJSON {
					_ = events.Encode(e) // as what people see
					return
				}
				printEvent(c.OutOrStdout(), e)
			}
			return kept(c.Context(), r.Do(c.Context()), "interrupted: the deltas that were made are in the store", "the same command makes the others")
		},
	}
	fl := c.Flags()
	fl.SortFlags = false
	fl.StringArrayVar(&r.Releases, "releases", nil, "directory, URL or oci:REPOSITORY with the releases (repeatable)")
	fl.StringVar(&shard, "shard", "1/1", "which part to make: I/N, from 1")
	fl.StringVar(&r.TempDir, "temp-dir", "", "directory for temporary files (default: TMPDIR)")
	fl.BoolVar(&asJSON, "json", false, "print one JSON document a line for each delta")
	return c
}

func printEvent(w io.Writer, e fleet.Event) {
	what := fmt.Sprintf("%s over %s", e.Image, e.Over)
	switch e.Type {
	case "begin":
		fmt.Fprintf(w, "%d/%d  making %s, %s\n", e.Done+1, e.Of, what, e.Platform)
	case "made":
		fmt.Fprintf(w, "%d/%d  made   %s: %s in %d s\n", e.Done, e.Of, what, bytesText(e.Bytes), e.Seconds)
	case "there":
		fmt.Fprintf(w, "%d/%d  there  %s: %s\n", e.Done, e.Of, what, bytesText(e.Bytes))
	}
}

func fleetStatusCommand() *cobra.Command {
	var asJSON bool
	var metrics string
	c := &cobra.Command{
		Use:   "status PLAN STORE",
		Short: "say how many deltas of a plan are made",
		Long: `status says which deltas of PLAN are in STORE, and how long the others take. --metrics
writes the numbers for Prometheus' textfile collector.

` + exitText,
		Example: "  app-gen fleet status plan.json store --metrics /var/lib/node_exporter/fleet.prom",
		RunE: func(c *cobra.Command, args []string) error {
			p, s, err := planAndStore(args)
			if err != nil {
				return err
			}
			st, err := fleet.Look(c.Context(), p, s)
			if err != nil {
				return err
			}
			if metrics != "" {
				if err := write.To(c.Context(), metrics, "", func(w io.Writer) error { return st.Metrics(w, p.Release) }); err != nil {
					return err
				}
			}
			if asJSON {
				return printJSON(c.OutOrStdout(), st)
			}
			fmt.Fprintf(c.OutOrStdout(), "made: %d of %s, %s\n", st.There, metered.Count(st.Deltas, "delta"), bytesText(st.Bytes))
			if len(st.Lacking) > 0 {
				fmt.Fprintf(c.OutOrStdout(), "the others take about %s of one processor:\n", millis(st.CPULeft))
				printDeltas(c.OutOrStdout(), st.Lacking, "")
			}
			return nil
		},
	}
	c.Flags().StringVar(&metrics, "metrics", "", "file to write metrics to, in the text format of Prometheus")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return c
}

// lookAgain is how often --wait looks.
const lookAgain = 5 * time.Second

// publication is what fleet publish is asked for.
type publication struct {
	fleet.Publication
	keys              genFlags
	wait, asJSON      bool
	upload, tokenFile string
	server            *places.MenderServer // nil: none
}

func fleetPublishCommand() *cobra.Command {
	p := &publication{}
	c := &cobra.Command{
		Use:   "publish PLAN STORE -o OUT",
		Short: "write the artifact of a release, when all its deltas are made",
		Long: `publish writes the artifact for Mender or for devices: some kilobytes, with the digests of
the deltas and whole images, which devices fetch from the place of STORE. It refuses until
every delta of PLAN is in STORE, reads each, and puts the whole images there too, so that
devices can fetch everything in a deployed artifact.
` + "`app-gen by-reference --help`" + ` says how devices find the files.

--upload gives the artifact to a Mender server, with its management API, as the user of the
token in --token-file. If that fails, the artifact stays, and the same command uploads it.
With --source, first put the files of STORE there.

` + exitText,
		Example: `  app-gen fleet publish plan.json store --wait --source https://downloads.example/content \
      --key private.pem -o shop-5.mender
  app-gen fleet publish plan.json s3://downloads/content --source https://downloads.example/content \
      -o shop-5.mender --upload https://mender.example --token-file token`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := p.read(c, args); err != nil {
				return err
			}
			list, err := p.write(c.Context())
			if err != nil {
				return err
			}
			if err := p.give(c.Context(), list); err != nil {
				return err
			}
			return p.print(c.OutOrStdout(), list)
		},
	}
	fl := c.Flags()
	fl.SortFlags = false
	fl.StringVarP(&p.Output, "output-path", "o", "", "artifact to write; {platform} in it is that of the release")
	fl.BoolVar(&p.wait, "wait", false, "wait until all deltas are made")
	fl.StringArrayVar(&p.Sources, "source", nil, "URL below which devices find the files of STORE, after their own mirrors (repeatable)")
	p.keys.keyFlags(c)
	fl.StringVar(&p.upload, "upload", "", "Mender server to give the artifact to: https://HOST")
	fl.StringVar(&p.tokenFile, "token-file", "", "file with the token of a user of that server")
	fl.StringVar(&p.TempDir, "temp-dir", "", "directory for temporary files (default: TMPDIR)")
	fl.BoolVar(&p.asJSON, "json", false, "print one JSON document")
	return c
}

// read completes the publication from the command line.
func (p *publication) read(c *cobra.Command, args []string) (err error) {
	if p.Output == "" {
		return &usageError{text: "--output-path is missing", hint: "name the artifact to write with -o"}
	}
	if p.Plan, p.Store, err = planAndStore(args); err != nil {
		return err
	}
	if p.Sources, err = sources(p.Sources, p.Store.Place()); err != nil {
		return err
	}
	for _, t := range p.Plan.Targets {
		if same(p.Output, t.File) {
			return &usageError{text: "--output-path is the release itself", hint: "later releases build on it: choose another name"}
		}
	}
	if p.server, err = menderServer(p.upload, p.tokenFile); err != nil {
		return err
	}
	s, err := p.keys.signing(c.Context())
	if err != nil {
		return err
	}
	p.Signing = mender.Options{Key: s.Key, Sign: s.Sign, Public: s.Public}
	if p.Signing.ModTime, err = epoch(); err != nil {
		return err
	}
	if p.wait {
		p.Wait = lookAgain
	}
	p.Tell = func(st *fleet.Status) {
		fmt.Fprintf(c.ErrOrStderr(), "app-gen: waiting: made: %d of %s\n", st.There, metered.Count(st.Deltas, "delta"))
	}
	return nil
}

// write writes the artifacts, one for each platform.
func (p *publication) write(ctx context.Context) ([]fleet.Published, error) {
	list, err := p.Do(ctx)
	if err != nil {
		text := "interrupted: no artifact was written"
		if len(list) > 0 {
			text = "interrupted: the artifacts of some platforms were not written"
		}
		return nil, kept(ctx, err, text, "images that are in the store by now stay there: the same command goes on")
	}
	return list, nil
}

// give gives the artifacts to the Mender server, if one is named, and notes which it had.
func (p *publication) give(ctx context.Context, list []fleet.Published) error {
	if p.server == nil {
		return nil
	}
	for i := range list {
		r := &list[i]
		there, err := p.server.Upload(ctx, r.Result.Name, r.Path)
		if err != nil {
			return kept(ctx, fmt.Errorf("%s: %w", r.Path, err), "interrupted: "+r.Path+" was not uploaded", "it is written: the same command uploads it")
		}
		if r.Uploaded = "new"; there {
			r.Uploaded = "there"
		}
	}
	return nil
}

// print says what was published, and what is left to do.
func (p *publication) print(w io.Writer, list []fleet.Published) error {
	if p.asJSON {
		return printJSON(w, struct {
			Published []fleet.Published `json:"published"`
		}{list})
	}
	for _, r := range list {
		done := bytesText(r.Result.Size)
		if r.Unchanged {
			done = "unchanged"
		}
		fmt.Fprintf(w, "%s: %s, artifact %s for %s with %s\n", r.Path, done, r.Result.Name, r.Platform, metered.Count(r.Deltas, "delta"))
	}
	if p.server != nil {
		for _, r := range list {
			state := "uploaded to"
			if r.Uploaded == "there" {
				state = "already on"
			}
			fmt.Fprintf(w, "%s: %s %s\n", r.Path, state, p.upload)
		}
		return nil
	}
	if dir := p.Store.Place().Directory(); dir != "" {
		fmt.Fprintf(w, "First copy the files of %s to where devices find them, all but the directory made.\n", filepath.Clean(dir))
	}
	fmt.Fprint(w, "Upload to Mender:")
	for _, r := range list {
		fmt.Fprintf(w, " %s", r.Path)
	}
	fmt.Fprintln(w)
	return nil
}

// menderServer is the server of --upload; nil without one.
func menderServer(url, tokenFile string) (*places.MenderServer, error) {
	if (url == "") != (tokenFile == "") {
		return nil, &usageError{text: "--upload and --token-file go together", hint: "the file has the token of a user of the Mender server"}
	}
	if url == "" {
		return nil, nil
	}
	token, err := input.Read(tokenFile, 64<<10)
	if err != nil {
		return nil, err
	}
	return places.OpenMenderServer(url, strings.TrimSpace(string(token)))
}

func fleetJobCommand() *cobra.Command {
	j := fleet.Job{}
	c := &cobra.Command{
		Use:   "job ENGINE PLAN STORE --releases PLACE --shards N",
		Short: "print a job for your cluster or CI that makes the deltas",
		Long: `job prints a job for the shards of app-gen fleet run. ENGINE is one of

  kubernetes  an Indexed Job, which tries a shard that fails again by itself
  gitlab      a job with parallel, for .gitlab-ci.yml
  github      a job with a matrix, for runners that share the STORE
  shell       a line with xargs

PLAN, STORE and PLACE are paths there: with kubernetes on the volume of --claim, which is the
working directory. All shards share STORE.

` + exitText,
		Example: `  app-gen fleet job kubernetes plan.json store --releases releases --shards 8 \
      --image registry.example/app-gen:1 --claim fleet | kubectl create -f -
  app-gen fleet job shell plan.json store --releases releases --shards 4 | sh`,
		ValidArgs: fleet.JobKinds,
		RunE: func(c *cobra.Command, args []string) error {
			if j.Releases == "" {
				return &usageError{text: "--releases is missing", hint: "name the place that the plan was made with"}
			}
			j.Kind, j.Plan, j.Store = args[0], args[1], args[2]
			return j.Write(c.OutOrStdout())
		},
	}
	fl := c.Flags()
	fl.SortFlags = false
	fl.StringVar(&j.Releases, "releases", "", "directory, URL or oci:REPOSITORY with the releases")
	fl.IntVar(&j.Shards, "shards", 0, "how many processes share the work")
	fl.StringVar(&j.Image, "image", "", "container image that has app-gen and sh")
	fl.StringVar(&j.Claim, "claim", "", "PersistentVolumeClaim for kubernetes, mounted at /fleet")
	return c
}
