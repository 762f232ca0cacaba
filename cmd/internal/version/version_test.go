package version

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOf(t *testing.T) {
	const commit = "0123456789abcdef0123456789abcdef01234567"
	stamped := []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: commit}}
	for _, c := range []struct {
		module   string
		settings []debug.BuildSetting
		want     string
	}{
		{"v" + Number, stamped, Number},
		{"v" + Number, nil, Number},
		{"v" + Number + "+dirty", stamped, Number + "+0123456789ab"},
		{"v0.0.0-20261128001500-0123456789ab", stamped, Number + "+0123456789ab"},
		{"(devel)", stamped, Number + "+0123456789ab"},
		{"(devel)", nil, Number + "+devel"},
		{"", nil, Number + "+devel"},
		{"v2.3.4", nil, "2.3.4"},
	} {
		got := of(&debug.BuildInfo{Main: debug.Module{Version: c.module}, Settings: c.settings})
		require.Equal(t, c.want, got, c.module)
	}
}
