package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	dimage "github.com/docker/docker/api/types/image"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/imagestore"
)

// Distrust implements imagestore.Store.
func (t target) Distrust(ctx context.Context, s imagestore.LoadRequest) error {
	e := t.e
	if s.Want.Config != "" {
		img, err := e.Find(ctx, s.App, s.Want, s.URL)
		if err == nil {
			if err := e.deleteDamaged(ctx, s, img); err != nil {
				return err
			}
		} else if !errors.Is(err, submodules.ErrNotFound) {
			return err
		}
	}
	if ctd, err := e.containerd(ctx); err != nil {
		return err
	} else if ctd {
		return e.dropSnapshots(ctx, s.Want.DiffIDs, s.Distrust)
	}
	return e.dropUnused(ctx, s.Want.DiffIDs)
}

// dropSnapshots removes those snapshots of diffIDs in the containerd store that
// belong to no image, the uppermost first. If a power cut ended a load, its lease
// keeps such snapshots for a day, and every load in that time takes them for
// present. A snapshot that others build on stays. After an unclean boot,
// containerd may also have a record of a snapshot that its snapshotter has lost.
// Only containerd's garbage collection removes that, so the leases are ended
// first.
func (e *Engine) dropSnapshots(ctx context.Context, diffIDs []image.Digest, uncleanBoot bool) error {
	at, err := e.openSnapshots(ctx)
	if err != nil || at == nil {
		return err
	}
	defer at.Close()
	if uncleanBoot {
		n, err := at.endLeases(ctx)
		if n > 0 {
			e.log("ended " + metered.Count(n, "lease") + " of interrupted loads")
		}
		if err != nil {
			e.log(fmt.Sprintf("could not end the leases of interrupted loads: %v", err))
		}
	}
	all, err := e.all(ctx)
	if err != nil {
		return err
	}
	chains := image.ChainIDs(diffIDs)
	for i := len(chains) - 1; i >= longestChain(all, diffIDs); i-- {
		switch gone, err := at.remove(ctx, chains[i]); {
		case err != nil:
			e.log(fmt.Sprintf("could not remove a layer that an interrupted load may have left: %v", err))
		case gone:
			e.log("removed a layer that an interrupted load left: " + diffIDs[i].String())
		}
	}
	return nil
}

// deleteDamaged deletes the image if it is damaged. It is an error if something else
// uses the image: then it cannot be loaded again.
func (e *Engine) deleteDamaged(ctx context.Context, s imagestore.LoadRequest, img Image) error {
	damages, err := e.Damages(ctx, img)
	if err != nil || len(damages) == 0 {
		return err
	}
	e.log(fmt.Sprintf("image %s is damaged (%s): loading it again", img.Config, damages[0]))
	ref, _ := submodules.SplitURL(s.URL)
	if err := e.Delete(ctx, s.App, img, ref); err != nil {
		return err
	}
	if _, err := e.Find(ctx, s.App, imagestore.Identity{Config: img.Config}, ""); !errors.Is(err, submodules.ErrNotFound) {
		if err != nil {
			return err
		}
		return submodules.Mark(fmt.Errorf("it is damaged in the engine (%s), and in use: run mender-app verify --repair", damages[0]), submodules.ErrContent)
	}
	return nil
}

// dropUnused removes the lowest layers of diffIDs that the classic store has
// without an image. They remain if the engine is killed, or the machine loses
// power, during a load. The engine then treats them as present, whatever they
// contain, and has no call to remove them. So dropUnused makes an image of them, and
// removes the image.
func (e *Engine) dropUnused(ctx context.Context, diffIDs []image.Digest) error {
	o, err := e.openOverlay(ctx)
	if err != nil || o == nil {
		return err
	}
	all, err := e.all(ctx)
	if err != nil {
		return err
	}
	used := longestChain(all, diffIDs)
	n := 0
	for i, chain := range image.ChainIDs(diffIDs) {
		_, err := os.Stat(filepath.Join(o.root, "image", "overlay2", "layerdb", "sha256", chain.Hex()))
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return err
		}
		n = i + 1
	}
	if n <= used {
		return nil
	}
	e.log("removing " + metered.Count(n-used, "layer") + " that an interrupted load left")
	config, err := json.Marshal(map[string]any{
		"architecture": "amd64", "os": "linux", // any values: nothing runs this image
		"config": map[string]any{"Labels": map[string]string{"mender-app.dropped": "layers of an interrupted load"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": diffIDs[:n]},
	})
	if err != nil {
		return err
	}
	id := digest.Of(config)
	if err := (target{e: e}).Load(ctx, bytes.NewReader(namesOnly(id, config, diffIDs[:n]))); err != nil {
		// The engine does not know these layers: only their directories exist.
		e.log(fmt.Sprintf("could not remove them: %v", err))
		return nil
	}
	if _, err := e.cli.ImageRemove(ctx, id.String(), dimage.RemoveOptions{Force: true, PruneChildren: true}); err != nil && !IsNotFound(err) {
		return fmt.Errorf("drop layers: %w", err)
	}
	return nil
}

// namesOnly is a docker-archive of an image all of whose layers are left out.
func namesOnly(id image.Digest, config []byte, diffIDs []image.Digest) []byte {
	names := make([]string, len(diffIDs))
	for i, d := range diffIDs {
		names[i] = d.Hex() + "/layer.tar"
	}
	// A list of strings always has a JSON form.
	manifest, _ := json.Marshal([]any{map[string]any{"Config": id.Hex() + ".json", "RepoTags": nil, "Layers": names}})
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, m := range []struct {
		name string
		data []byte
	}{{id.Hex() + ".json", config}, {"manifest.json", manifest}} {
		_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: m.name, Mode: 0o644, Size: int64(len(m.data))})
		_, _ = io.Copy(w, bytes.NewReader(m.data))
	}
	_ = w.Close()
	return buf.Bytes()
}
