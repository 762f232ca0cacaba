package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"github.com/mender-app/mender-app/modules/client/download"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/cmd/internal/table"
	"github.com/mender-app/mender-app/delta/budget"
	"github.com/mender-app/mender-app/modules/deploy"
	"github.com/mender-app/mender-app/submodules"
)

func (p *program) checkCommand() *cobra.Command {
	var o installOptions
	var link string
	cmd := &cobra.Command{
		Use:   "check FILE|URL | --staged APP [VERSION]",
		Short: "Say whether an artifact would be installed, and what it would change",
		Long: `Runs all checks of an installation and shows the result of each: the signature, the
device, the statement, the platform, the sub-module and its requirements, the policies,
the bases of deltas, the free space, and, through the sub-module, the manifests. It says
which staged artifacts would be installed first, which services would start, restart,
keep running and be removed, which networks would be recreated, how long the release
would have to become healthy, what would be written, how long the download takes at the
rate of --link and the decoding on this device, and how long the last installations of
the application took here. Nothing is changed. The exit code is 9 if the artifact would
be refused.

On a device with a Mender client, the signature and the depends are checked as that
client does; with --staged or --key, as "mender-app install" does.

Of a URL only the head of the artifact is read, so the manifests are not checked.
--staged checks an artifact that "mender-app stage add" has put onto the device.`,
		Example: `  mender-app check shop-2.mender
  mender-app check https://example.com/shop-2.mender
  mender-app check shop-2.mender --json | jq .changes.restarts
  mender-app check --staged shop 2`,
		Args: o.staged.Args(),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, err := o.staged.File(p.config, p.stdin, args)
			if err != nil {
				return err
			}
			rate, err := budget.ParseLink(link)
			if err != nil {
				return fmt.Errorf("%w: --link: %w", device.ErrUsage, err)
			}
			return p.check(cmd.Context(), from, o, rate)
		},
	}
	o.keyOptions.Flags(cmd.Flags())
	o.staged.Flag(cmd, "check")
	cmd.Flags().StringVar(&link, "link", budget.DefaultLink.String(), "download rate, to estimate the time")
	return cmd
}

// printedForecast is what check prints.
type printedForecast struct {
	*deploy.Forecast
	Download int64 `json:"download,omitempty"` // bytes of the artifact, if they are known
	// Times is nil for an artifact that is here already, and where its bytes are not known.
	Times *budget.Times `json:"times,omitempty"`
}

func (p *program) check(ctx context.Context, from string, wanted installOptions, link budget.Link) (err error) {
	o := p.opener()
	f := foreseeOptions{whole: !download.IsURL(from), staged: wanted.staged.staged}
	if p.unmanaged() != nil && !f.staged && len(wanted.Files) == 0 {
		f.signature = o.underMender()
	} else if f.signature, err = o.toInstall(wanted.keyOptions); err != nil {
		return err
	}
	in, err := o.OpenToCheck(ctx, from, len(f.signature.keys) > 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.End(err)) }()
	found, err := p.foresee(ctx, in, f)
	if err != nil {
		return err
	}
	out := printedForecast{Forecast: found, Download: in.Size}
	if in.Size > 0 && !f.staged {
		out.Times = out.times(link)
	}
	if p.json {
		err = p.printJSON(out)
	} else {
		err = p.printForecast(out)
	}
	return errors.Join(err, found.Refused())
}

// times is how long this device takes to have the artifact.
func (f *printedForecast) times(link budget.Link) *budget.Times {
	var decode int64
	if f.Sizes != nil {
		decode = f.Sizes.Decode
	}
	t := link.TimesOn(platform, f.Download+f.Fetched, decode)
	return &t
}

// platform is this device's.
const platform = "linux/" + runtime.GOARCH

// foreseeOptions are what foresee knows of an artifact.
type foreseeOptions struct {
	signature signatureCheck
	whole     bool // its manifests are at hand
	staged    bool // mender-app installs it, even beside a Mender client
}

// foresee makes every check of an artifact. The sub-module gets the manifests only if the
// signature is right.
func (p *program) foresee(ctx context.Context, in io.Reader, o foreseeOptions) (*deploy.Forecast, error) {
	reader, signature, err := o.signature.open(in)
	if err != nil {
		return nil, err
	}
	before := &deploy.Forecast{ArtifactName: reader.Header().Name}
	if before.Add("signature", signature) {
		before.Findings[0].Detail = o.signature.note
	}
	meta, _, broken := artifact.ParseMetadata(reader.Header().MetaData)
	app := ""
	if meta != nil {
		app = meta.ApplicationName
	}
	before.Add("device", p.accepts(ctx, reader.Header(), app, o.staged))
	if broken != nil {
		before.Add("metadata", broken)
		return before, nil
	}
	e := p.engine()
	signer := ""
	if key := reader.Header().SignedBy; key != nil && o.signature.passed {
		if signer, err = mender.EncodePublicKey(key); err != nil {
			return nil, err
		}
	}
	e.Trust = p.config.Signatures.TrustWithin(signer, device.ReachOf(reader.Header()))
	manifests := deploy.Manifests{Lacking: "they are not at hand: check the file"}
	switch {
	case signature != nil:
		manifests.Lacking = "signature failed"
	case o.whole:
		manifests.Open = func() (io.Reader, error) { return manifestsOf(reader) }
	}
	found, err := e.Check(ctx, reader.Header().Name, meta, manifests)
	if err != nil {
		return nil, err
	}
	found.Findings = append(before.Findings, found.Findings...)
	return found, nil
}

// foreseeStaged makes the checks of a staged artifact that do not need its payload. Its
// signature is checked with the configured keys, if there are any.
func (p *program) foreseeStaged(ctx context.Context, in io.Reader) (*deploy.Forecast, error) {
	keys, err := p.config.Signatures.Read(p.config.Signatures.Keys)
	if err != nil {
		return nil, err
	}
	return p.foresee(ctx, in, foreseeOptions{signature: signatureCheck{keys: keys, passed: true}, staged: true})
}

// manifestsOf skips to the manifests of an artifact.
func manifestsOf(r *mender.Reader) (io.Reader, error) {
	for {
		info, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%w: no %s in it", artifact.ErrPayload, artifact.ManifestsPayload)
		}
		if err != nil || info.Name == artifact.ManifestsPayload {
			return r, err
		}
	}
}

// accepts makes the checks of the client that installs the artifact.
func (p *program) accepts(ctx context.Context, h *mender.Header, app string, staged bool) error {
	c, err := p.client()
	if err != nil {
		return err
	}
	if p.unmanaged() != nil && !staged {
		return p.acceptedByMender(ctx, c, p.withoutScripts(h), app)
	}
	if c.Views, err = p.views(ctx, h); err != nil {
		return err
	}
	return c.Accepts(h)
}

// fits makes those checks of the client that do not depend on what is installed.
func (p *program) fits(h *mender.Header) error {
	c, err := p.client()
	if err != nil {
		return err
	}
	return c.Fits(p.withoutScripts(h))
}

// withoutScripts leaves the state scripts out where a Mender client runs them.
func (p *program) withoutScripts(h *mender.Header) *mender.Header {
	bare := *h
	if p.unmanaged() != nil {
		bare.Scripts = nil
	}
	return &bare
}

func (p *program) printForecast(f printedForecast) error {
	var rows [][]string
	for _, c := range f.Findings {
		rows = append(rows, []string{c.Check, c.Result, device.OneLine(c.Detail)})
	}
	if err := p.table("CHECK\tRESULT\tWHY", rows); err != nil {
		return err
	}
	rows = [][]string{{"artifact", device.OneLine(f.ArtifactName)}}
	if !f.Expires.IsZero() {
		rows = append(rows, []string{"expires", f.Expires.UTC().Format(time.RFC3339)})
	}
	if f.Signatures > 1 {
		rows = append(rows, []string{"statement", fmt.Sprintf("%d signatures", f.Signatures)})
	}
	for _, m := range f.First {
		rows = append(rows, []string{"installs first", device.OneLine(m.ArtifactName) + " of " + m.Application})
	}
	if f.Download > 0 {
		rows = append(rows, []string{"read", table.Bytes(f.Download)})
	}
	if f.Fetched > 0 {
		rows = append(rows, []string{"fetched", table.Bytes(f.Fetched) + " of images that are not in the artifact"})
	}
	if s := f.Sizes; s != nil {
		rows = append(rows, []string{"written", fmt.Sprintf("%s by the engine, %s of manifests, up to %s for a time",
			table.Bytes(s.Engine), table.Bytes(s.Manifests), table.Bytes(s.Temp))})
	}
	if t := f.Times; t != nil {
		rows = append(rows, []string{"downloads", fmt.Sprintf("about %.1fs at %s", t.Download, t.Link)})
	}
	if s := f.Sizes; s != nil && s.Decode > 0 {
		rows = append(rows, []string{"decodes", budget.Text(s.Decode, platform)})
	}
	if f.Basis > 0 {
		took := time.Duration(f.Seconds * float64(time.Second)).Round(100 * time.Millisecond)
		rows = append(rows, []string{"takes", fmt.Sprintf("%v, as the last installations did here (median of %d)", took, f.Basis)})
	}
	if c := f.Changes; c != nil {
		rows = append(rows, changeRows(*c)...)
	}
	return p.table("application\t"+device.OneLine(f.Application), rows)
}

func changeRows(c submodules.Changes) (rows [][]string) {
	for _, r := range []struct {
		what string
		list []string
	}{{"starts", c.Starts}, {"restarts", c.Restarts}, {"keeps", c.Keeps}, {"removes", c.Removes}} {
		if len(r.list) > 0 {
			rows = append(rows, []string{r.what, device.OneLine(strings.Join(r.list, ", "))})
		}
	}
	if len(c.Networks) > 0 {
		rows = append(rows, []string{"networks", device.OneLine(strings.Join(c.Networks, ", ")) + ": made anew, so the services on them restart"})
	}
	if len(c.Volumes) > 0 {
		rows = append(rows, []string{"volumes", device.OneLine(strings.Join(c.Volumes, ", ")) + ": stay as they are, although the release says otherwise: their data would be lost"})
	}
	if c.HealthyWithin > 0 {
		rows = append(rows, []string{"healthy", fmt.Sprintf("within %v of its start", time.Duration(c.HealthyWithin)*time.Second)})
	}
	return rows
}
