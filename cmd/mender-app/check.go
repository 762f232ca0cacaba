package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/cmd/internal/table"
	"github.com/mender-app/mender-app/modules/client"
	"github.com/mender-app/mender-app/modules/client/download"
	"github.com/mender-app/mender-app/modules/deploy/forecast"
	"github.com/mender-app/mender-app/submodules"
)

func (p *program) checkCommand() *cobra.Command {
	var o installOptions
	cmd := &cobra.Command{
		Use:   "check FILE|URL",
		Short: "Say whether an artifact would be installed, and what it would change",
		Long: `Makes every check that an installation makes before it changes anything, each with
its result: the signature, the device, the statement, the platform, the sub-module
and what it needs, the policies, the bases of deltas, the free space, and, through
the sub-module, the manifests. It says which services would start, restart, go on
and be removed, what would be written, and how long the last installations of the
application took on this device. Nothing is changed. The exit code is 9 if the
artifact would be refused.

Of a URL only the head of the artifact is read, so the manifests are not checked.`,
		Example: `  mender-app check shop-2.mender
  mender-app check https://example.com/shop-2.mender
  mender-app check shop-2.mender --json | jq .changes.restarts`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error { return p.check(cmd.Context(), args[0], o) },
	}
	cmd.Flags().StringArrayVar(&o.keys, "key", nil, "public key (PEM) that must have signed the artifact; repeatable: one of them must")
	cmd.Flags().BoolVar(&o.unsigned, "unsigned", false, "do not check the signature, if no key is configured")
	return cmd
}

// printedForecast is what check prints.
type printedForecast struct {
	*forecast.Forecast
	Download int64 `json:"download,omitempty"` // bytes of the artifact, if they are known
}

func (p *program) check(ctx context.Context, from string, o installOptions) (err error) {
	keys, noKeys := p.trusted(o)
	if noKeys != nil && !errors.Is(noKeys, client.ErrRefused) {
		return noKeys
	}
	in, err := p.openToCheck(ctx, from, len(keys) > 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.end(err)) }()
	reader, signature := p.openArtifact(in, keys)
	if reader == nil {
		return signature
	}
	meta, _, err := artifact.ParseMetadata(reader.Header().MetaData)
	if err != nil {
		return err
	}
	manifests := func() (io.Reader, error) { return manifestsOf(reader) }
	if download.IsURL(from) {
		manifests = nil
	}
	e := p.engine()
	signer := ""
	if key := reader.Header().SignedBy; key != nil {
		if signer, err = mender.EncodePublicKey(key); err != nil {
			return err
		}
	}
	e.Trust = p.config.Signatures.Trust(signer)
	found, err := e.Check(ctx, reader.Header().Name, meta, manifests)
	if err != nil {
		return err
	}
	before := &forecast.Forecast{}
	before.Add("signature", errors.Join(noKeys, signature))
	before.Add("device", p.accepts(reader.Header()))
	found.Findings = append(before.Findings, found.Findings...)
	out := printedForecast{found, in.size}
	if p.json {
		err = p.printJSON(out)
	} else {
		err = p.printForecast(out)
	}
	return errors.Join(err, found.Refused())
}

// openToCheck opens an artifact. What arrives from a URL is not kept.
func (p *program) openToCheck(ctx context.Context, from string, signed bool) (*input, error) {
	if !download.IsURL(from) {
		return p.openInput(ctx, from, signed)
	}
	dir, err := os.MkdirTemp("", "mender-app-check-")
	if err != nil {
		return nil, err
	}
	o := download.Defaults()
	o.Dir, o.PlainHTTP, o.Log = dir, signed, func(line string) { p.log.Warn(line) }
	in, err := p.openDownload(ctx, from, o)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	end := in.end
	in.end = func(err error) error { return errors.Join(end(err), os.RemoveAll(dir)) }
	return in, nil
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

// accepts makes the checks of the client. With a Mender client here, that one knows
// what is installed, and runs state scripts.
func (p *program) accepts(h *mender.Header) error {
	c, err := p.client()
	if err != nil {
		return err
	}
	if p.unmanaged() == nil {
		return c.Accepts(h)
	}
	bare := *h
	bare.Depends, bare.DependsNames, bare.DependsGroups, bare.Scripts = nil, nil, nil, nil
	return c.Accepts(&bare)
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
	if f.Download > 0 {
		rows = append(rows, []string{"read", table.Bytes(f.Download)})
	}
	if s := f.Sizes; s != nil {
		rows = append(rows, []string{"written", fmt.Sprintf("%s by the engine, %s of manifests, up to %s for a time",
			table.Bytes(s.Engine), table.Bytes(s.Manifests), table.Bytes(s.Temp))})
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
	return rows
}
