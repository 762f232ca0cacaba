package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/cmd/internal/device"
	"github.com/mender-app/mender-app/modules/client"
	"github.com/mender-app/mender-app/modules/view"
	"github.com/mender-app/mender-app/store"
)

// inconsistent says what to do about a Mender client that believes that neither release is
// installed, because a rollback failed that has succeeded since; "" if it does not. The client
// learns it only by another artifact.
func inconsistent(ctx context.Context) string {
	managed, installed, err := device.MenderInstalled(ctx)
	if !managed || err != nil || !strings.HasSuffix(installed.ArtifactName, client.Inconsistent) {
		return ""
	}
	return fmt.Sprintf("the Mender client calls the device %s since a rollback failed: the next artifact that the client installs ends that", installed.ArtifactName)
}

// addInconsistent adds that to the problems of applications whose last update did not last.
func addInconsistent(ctx context.Context, list []*view.Overview) {
	failed := func(o *view.Overview) bool {
		return o.Last != nil && (o.Last.Status == store.StatusRolledBack || o.Last.Status == store.StatusFailed) && o.Problem == ""
	}
	if !slices.ContainsFunc(list, failed) {
		return
	}
	text := inconsistent(ctx)
	for _, o := range list {
		if failed(o) {
			o.Problem = text
		}
	}
}
