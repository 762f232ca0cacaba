package compose

import (
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/require"
)

func TestRunsAs(t *testing.T) {
	c := func(project string, created int64, state string) container.Summary {
		return container.Summary{Labels: map[string]string{labelProject: project}, Created: created, State: state}
	}
	for name, test := range map[string]struct {
		existing []container.Summary
		want     string
	}{
		"none":                       {nil, ""},
		"a failed release, not up":   {[]container.Summary{c("failed", 2, "created"), c("old", 1, "running")}, "old"},
		"a failed release, half up":  {[]container.Summary{c("failed", 3, "running"), c("failed", 3, "created"), c("old", 1, "running")}, "old"},
		"all stopped":                {[]container.Summary{c("failed", 2, "exited"), c("old", 1, "exited")}, "old"},
		"an older one does not run":  {[]container.Summary{c("now", 2, "running"), c("left", 1, "exited")}, "now"},
		"only the one that is there": {[]container.Summary{c("now", 2, "exited")}, "now"},
	} {
		require.Equal(t, test.want, runsAs(test.existing), name)
	}
}
