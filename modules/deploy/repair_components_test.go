package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/store/durable"
	"github.com/mender-app/mender-app/submodules"
)

// file is an artifact on the operator's disk.
type file struct {
	meta  []byte
	names []string
	data  map[string][]byte
}

func (r release) file(t tb) RepairSource {
	meta, err := r.meta().Encode()
	require.NoError(t, err)
	return &file{meta, []string{artifact.ImagesPayload, artifact.ManifestsPayload}, r.payload(t)}
}

func (f *file) MetaData() []byte { return f.meta }

func (f *file) Next() (string, io.Reader, error) {
	if len(f.names) == 0 {
		return "", nil, io.EOF
	}
	name := f.names[0]
	f.names = f.names[1:]
	return name, bytes.NewReader(f.data[name]), nil
}

// hurt is a device with v2 installed and v1 kept, and both have a damaged
// component in common.
func hurt(t *testing.T) *rig {
	t.Helper()
	g := newRig(t)
	c := newClient(g, false)
	for _, r := range []release{v1, v2} {
		require.NoError(t, c.install(g.newTree(t, r)))
		require.NoError(t, c.commit())
	}
	g.w.content[digestOf("shop", "side same")] = "hollow"
	return g
}

func TestRepair(t *testing.T) {
	g := hurt(t)
	e := g.engine()
	g.w.calls = nil
	problems, err := e.Verify(t.Context(), "shop")
	require.NoError(t, err)
	require.Len(t, problems, 1)
	require.Equal(t, Problem{"shop", "2-shop-2", "side:1", digestOf("shop", "side same"), "side:1 is not whole"}, problems[0])
	require.Equal(t, []string{"VERIFY shop", "VERIFY shop", "VERIFY shop"}, g.w.calls, "each component once")

	// Without a source nothing is changed.
	found, left, err := e.Repair(t.Context(), []string{"shop"}, nil)
	require.ErrorContains(t, err, "cannot be repaired")
	require.Equal(t, problems, found)
	require.Equal(t, problems, left)
	require.Equal(t, v2.digests(), g.w.running["shop"].digests)
	require.NoDirExists(t, e.Store.Meta("repair/shop"))

	// An artifact that is broken off is none.
	half := v4.file(t).(*file)
	half.data[artifact.ImagesPayload] = half.data[artifact.ImagesPayload][:len(half.data[artifact.ImagesPayload])/2]
	_, _, err = e.Repair(t.Context(), []string{"shop"}, half)
	require.ErrorContains(t, err, "the artifact")

	found, left, err = e.Repair(t.Context(), []string{"shop"}, v4.file(t))
	require.NoError(t, err)
	require.Equal(t, problems, found)
	require.Empty(t, left)
	g.runs(t, "shop", &v2)
	g.clean(t, "shop")
	require.NoDirExists(t, e.Store.Meta("repair/shop"))
	r, err := e.GoBack(t.Context(), "shop", "")
	require.NoError(t, err)
	require.Equal(t, "shop-1", r.ArtifactName)
	g.runs(t, "shop", &v1)

	found, left, err = e.Repair(t.Context(), []string{"shop"}, nil)
	require.NoError(t, err)
	require.Empty(t, found)
	require.Empty(t, left)
}

func TestRepairIsRefused(t *testing.T) {
	g := hurt(t)
	c := newClient(g, false)
	require.NoError(t, c.install(g.newTree(t, release{app: "other", name: "other-1", images: []string{"own x"}})))
	_, _, err := g.engine().Repair(t.Context(), []string{"shop"}, v2.file(t))
	require.ErrorIs(t, err, ErrOpen)
	require.NoError(t, c.commit())
	g.w.features = []string{submodules.FeatureStream, submodules.FeatureVerify, submodules.FeatureSync}
	_, _, err = g.engine().Repair(t.Context(), []string{"shop"}, v2.file(t))
	require.ErrorIs(t, err, submodules.ErrUsage, "a sub-module of before")
	require.NoDirExists(t, g.engine().Store.Meta("repair/shop"))
}

// TestRepairKilledAnywhere kills a repair at each point, and goes on with each
// of the calls that settle. What runs then is the release that ran before,
// whole; or nothing has been begun.
func TestRepairKilledAnywhere(t *testing.T) {
	sharedWhole(t)
	ends := map[string]func(g *rig) error{
		"resume": func(g *rig) error { _, err := g.engine().Resume(t.Context(), "", ""); return err },
		"repair": func(g *rig) error {
			_, _, err := g.engine().Repair(t.Context(), []string{"shop"}, v2.file(t))
			return err
		},
		"install": func(g *rig) error {
			c := newClient(g, false)
			if err := c.install(g.newTree(t, v2)); err != nil {
				return err
			}
			return c.commit()
		},
	}
	kills := 0
	for name, end := range ends {
		for n := 1; ; n++ {
			g := hurt(t)
			if !killedRepair(g, t, n) {
				g.remove()
				break
			}
			kills++
			where := tbAt{t, fmt.Sprintf("killed at point %d, then %s", n, name)}
			err := end(g)
			require.NoDirExists(where, g.engine().Store.Meta("repair/shop"))
			if g.w.content[digestOf("shop", "side same")] == "hollow" {
				require.NotEqual(where, "repair", name)
				require.Equal(where, v2.digests(), g.w.running["shop"].digests, "nothing was changed")
			} else {
				require.NoError(where, err)
				g.runs(where, "shop", &v2)
			}
			g.remove()
		}
	}
	t.Logf("%d kills", kills)
	require.Greater(t, kills, 30)
}

func killedRepair(g *rig, t *testing.T, n int) (killed bool) {
	points := 0
	restore := durable.Inject(func(string) error {
		if points++; points == n {
			panic(errKilled)
		}
		return nil
	})
	defer restore()
	defer func() {
		if p := recover(); p != nil {
			if p != errKilled {
				panic(p)
			}
			killed = true
		}
	}()
	_, _, err := g.engine().Repair(context.Background(), []string{"shop"}, v2.file(t))
	if err != nil && !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	return false
}

// A repair that cannot be completed leaves the application running as it was, and
// resume completes it.
func TestRepairFails(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		g := hurt(t)
		if stopped {
			require.NoError(t, g.engine().Stop(t.Context(), "shop"))
		}
		before := g.w.running["shop"]
		broken := errors.New("the engine is broken")
		restore := durable.Inject(func(name string) error {
			if name == "loaded.REPAIR" {
				return broken
			}
			return nil
		})
		_, _, err := g.engine().Repair(t.Context(), []string{"shop"}, v2.file(t))
		restore()
		require.ErrorIs(t, err, broken)
		require.Equal(t, before, g.w.running["shop"])
		require.DirExists(t, g.engine().Store.Meta("repair/shop"))
		_, err = g.engine().Resume(t.Context(), "", "")
		require.NoError(t, err)
		require.Equal(t, before, g.w.running["shop"])
		require.NoDirExists(t, g.engine().Store.Meta("repair/shop"))
		require.Equal(t, "whole", g.w.content[digestOf("shop", "side same")])
		g.remove()
	}
}

// No repair outlives its application, whether it can be completed or not.
func TestPurgeEndsRepair(t *testing.T) {
	g := hurt(t)
	broken := func(name string) error {
		if name == "removed.REPAIR" {
			return errors.New("the engine is broken")
		}
		return nil
	}
	restore := durable.Inject(broken)
	defer restore()
	_, _, err := g.engine().Repair(t.Context(), []string{"shop"}, v2.file(t))
	require.Error(t, err)
	record := g.engine().Store.Meta("repair/shop")
	require.DirExists(t, record)
	require.NoError(t, g.engine().Stop(t.Context(), "shop"))
	require.NoError(t, g.engine().Purge(t.Context(), "shop", true, false))
	require.NoDirExists(t, record)
	_, err = g.engine().Resume(t.Context(), "", "")
	require.NoError(t, err)

	// One that an earlier version left is dropped.
	require.NoError(t, (&repairRequest{Format: 1, Application: "shop", Release: "2-shop-2"}).Write(record))
	_, err = g.engine().Resume(t.Context(), "", "")
	require.NoError(t, err)
	require.NoDirExists(t, record)
}
