package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/mender-app/mender-app/artifact/clip"
	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/modules/view"
)

func (p *program) eventsCommand() *cobra.Command {
	var follow bool
	var tail int
	cmd := &cobra.Command{
		Use:   "events [APP]",
		Short: "Print the events of deployments, as lines of JSON",
		Long: `Prints one JSON document a line for each phase that a deployment entered and for its
end, in the order of time. They come from the store: the open deployments and the
history, also of removed applications. With -f, new events follow, such as for a display
on the device; a phase that takes less than half a second may come together with the
next one. A phase comes again with data when the data of the application is copied
("copy"), migrated ("migrate") or brought back ("restore"), and without it when that is
done.

Each line has at, application, event ("phase" or "ended"), deployment,
artifact_name, from, to and driver; a phase has phase, and data while data is handled;
an end has status and error.`,
		Example:           "  mender-app events shop\n  mender-app events -f --tail 0 | while read -r line; do show \"$line\"; done",
		ValidArgsFunction: completeApps,
		RunE: func(cmd *cobra.Command, names []string) error {
			if tail < 0 {
				return fmt.Errorf("%w: --tail %d is negative", device.ErrUsage, tail)
			}
			err := p.events(cmd.Context(), names, tail, follow)
			if follow && cmd.Context().Err() != nil { // Ctrl-C is how -f ends
				return nil
			}
			return err
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "continue with new events, until Ctrl-C")
	cmd.Flags().IntVar(&tail, "tail", 100, "print the newest N past events")
	return cmd
}

func (p *program) events(ctx context.Context, names []string, tail int, follow bool) error {
	follower := &view.Follower{Store: p.config.OpenStore()}
	look := func() ([]view.Event, error) {
		list, err := follower.Next()
		if len(names) > 0 {
			list = slices.DeleteFunc(list, func(e view.Event) bool { return e.Application != names[0] })
		}
		return list, err
	}
	fresh, err := look()
	if err != nil {
		return err
	}
	if len(names) > 0 && len(fresh) == 0 && !follow {
		if _, err := view.Read(follower.Store, names[0]); err != nil {
			return err
		}
	}
	fresh = fresh[max(0, len(fresh)-tail):]
	enc := json.NewEncoder(clip.JSONWriter(p.stdout))
	enc.SetEscapeHTML(false)
	for {
		for _, e := range fresh {
			if err := enc.Encode(e); err != nil {
				return err
			}
		}
		if !follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(view.Pause):
		}
		if fresh, err = look(); err != nil {
			return err
		}
	}
}
