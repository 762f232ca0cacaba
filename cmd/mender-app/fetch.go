package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/artifact/input"
	"github.com/mender-app/mender-app/artifact/strictjson"
	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/modules/content"
	"github.com/mender-app/mender-app/modules/diskspace"
)

// maxFetchRequest bounds what fetchCommand reads, in bytes.
const maxFetchRequest = 64 << 10

// fetchCommand fetches one image that an artifact does not carry, for the update module.
func (p *program) fetchCommand() *cobra.Command {
	return &cobra.Command{
		Use: device.FetchCommand, Hidden: true, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := input.Bounded(p.stdin, "the request", maxFetchRequest)
			if err != nil {
				return err
			}
			var r device.FetchRequest
			if err := errors.Join(strictjson.Unmarshal(text, &r), r.Content.Digest.Check()); err != nil {
				return fmt.Errorf("%w: %w", device.ErrUsage, err)
			}
			s := p.config.OpenStore()
			if err := s.Protect(); err != nil {
				return err
			}
			where := p.config.Content
			transport, err := content.Transport(where.CAFile, where.TokenFile, where.Mirrors)
			if err != nil {
				return fmt.Errorf("%w: %w", device.ErrUsage, err)
			}
			f := &content.Fetcher{
				Dir: p.config.ContentDir(), Mirrors: where.Mirrors, Sources: r.Sources, Transport: transport, MaxRate: p.config.MaxRate,
				Room: func(bytes int64) error {
					return diskspace.Check([]diskspace.Need{{Dir: p.config.ContentDir(), Bytes: bytes}}, diskspace.Free)
				},
				Log: func(line string) { p.log.Warn(line) },
			}
			path, err := f.Fetch(cmd.Context(), r.Content.Digest, r.Content.Size)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(p.stdout, path)
			return err
		},
	}
}
