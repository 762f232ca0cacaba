package statement

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/mender"
)

// sampleSpec is an artifact that uses all that a header can say.
func sampleSpec() *mender.Spec {
	return &mender.Spec{
		Provides: map[string]string{"data-partition.shop.version": "2"}, ClearsProvides: []string{"data-partition.shop.*", "a.*"}, Group: "beta",
		DeviceTypes: []string{"b", "a"}, Depends: map[string][]string{"rootfs-image.version": {"6", "5"}}, DependsNames: []string{"x", "y"}, DependsGroups: []string{"g"},
		Scripts: []mender.Script{{Name: "ArtifactInstall_Enter_00", Data: []byte("#!/bin/sh")}},
	}
}

// What an artifact does beside its payload is what its statement says: nothing is added,
// and nothing that a device has to have is left out.
func TestReachCovers(t *testing.T) {
	base := func() *mender.Header {
		s := sampleSpec()
		return &mender.Header{
			Provides: s.Provides, ClearsProvides: s.ClearsProvides, Group: s.Group, DeviceTypes: s.DeviceTypes, Depends: s.Depends,
			DependsNames: s.DependsNames, DependsGroups: s.DependsGroups, Scripts: []string{s.Scripts[0].Name},
			ScriptSums: map[string]digest.Digest{s.Scripts[0].Name: digest.Of(s.Scripts[0].Data)},
		}
	}
	said := ReachToWrite(sampleSpec())
	require.Equal(t, said, ReachOf(base()))
	require.NoError(t, said.Covers(ReachOf(base())))
	with := func(m map[string]string, key, value string) map[string]string {
		m = maps.Clone(m)
		m[key] = value
		return m
	}
	for name, c := range map[string]struct {
		change func(h *mender.Header)
		says   string // "" if it is covered
	}{
		"another application's version": {func(h *mender.Header) { h.Provides = with(h.Provides, "data-partition.kiosk.version", "9") }, `provides "data-partition.kiosk.version"`},
		"the system's version":          {func(h *mender.Header) { h.Provides = with(h.Provides, "rootfs-image.version", "9") }, `provides "rootfs-image.version"`},
		"another version":               {func(h *mender.Header) { h.Provides = with(h.Provides, "data-partition.shop.version", "3") }, `provides "data-partition.shop.version"`},
		"no provides":                   {func(h *mender.Header) { h.Provides = nil }, `provides "data-partition.shop.version"`},
		"clears more":                   {func(h *mender.Header) { h.ClearsProvides = append(h.ClearsProvides, "*") }, "clears"},
		"clears less":                   {func(h *mender.Header) { h.ClearsProvides = h.ClearsProvides[1:] }, "clears"},
		"clears, in another order":      {func(h *mender.Header) { h.ClearsProvides = []string{"a.*", "data-partition.shop.*"} }, ""},
		"another group":                 {func(h *mender.Header) { h.Group = "all" }, `group "`},
		"no group":                      {func(h *mender.Header) { h.Group = "" }, "group"},
		"more device types":             {func(h *mender.Header) { h.DeviceTypes = append(h.DeviceTypes, "c") }, "device types"},
		"fewer device types":            {func(h *mender.Header) { h.DeviceTypes = []string{"a"} }, ""},
		"depends on less":               {func(h *mender.Header) { h.Depends = nil }, `depends "rootfs-image.version"`},
		"depends on no value":           {func(h *mender.Header) { h.Depends = map[string][]string{"rootfs-image.version": nil} }, "depends"},
		"depends on another value":      {func(h *mender.Header) { h.Depends = map[string][]string{"rootfs-image.version": {"5", "7"}} }, "depends"},
		"depends on one of the values":  {func(h *mender.Header) { h.Depends = map[string][]string{"rootfs-image.version": {"5"}} }, ""},
		"depends on more": {func(h *mender.Header) {
			h.Depends = map[string][]string{"rootfs-image.version": {"5"}, "data-partition.shop.version": {"1"}}
		}, ""},
		"another name":      {func(h *mender.Header) { h.DependsNames = []string{"z"} }, "name to depend on"},
		"no name":           {func(h *mender.Header) { h.DependsNames = nil }, "name to depend on"},
		"no group to be in": {func(h *mender.Header) { h.DependsGroups = nil }, "group to depend on"},
		"another script":    {func(h *mender.Header) { h.ScriptSums = map[string]digest.Digest{h.Scripts[0]: sum("evil")} }, `script "ArtifactInstall_Enter_00"`},
		"one script more":   {func(h *mender.Header) { h.Scripts = append(h.Scripts, "ArtifactCommit_Enter_00") }, `script "ArtifactCommit_Enter_00"`},
		"no script":         {func(h *mender.Header) { h.Scripts = nil }, `script "ArtifactInstall_Enter_00"`},
	} {
		h := base()
		c.change(h)
		err := said.Covers(ReachOf(h))
		if c.says == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorIs(t, err, ErrStatement, name)
		require.ErrorContains(t, err, c.says, name)
		require.NotContains(t, err.Error(), "\n", name)
	}
	// A statement about nothing beside the payload allows nothing.
	require.Error(t, new(Reach).Covers(said))
}
