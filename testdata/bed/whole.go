package bed

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
)

// ReadImages reads every byte of every image of the device's engine, as `docker
// save` writes it, and returns the digest of each image's config by its ID. The
// error names each image that differs from its digests. An engine lists and runs an
// image even when a power cut has emptied files of its layers: only this check finds
// it.
func (d *Device) ReadImages(ctx context.Context) (configs map[string]string, err error) {
	engine, err := d.Docker()
	if err != nil {
		return nil, err
	}
	defer engine.Close()
	list, err := engine.ImageList(ctx, image.ListOptions{})
	if err != nil {
		return nil, err
	}
	configs = map[string]string{}
	for _, i := range list {
		config, ierr := readImage(ctx, engine, i.ID)
		if ierr != nil {
			err = errors.Join(err, fmt.Errorf("image %s %v is not whole: %w", i.ID, i.RepoTags, ierr))
			continue
		}
		configs[i.ID] = config
	}
	return configs, err
}

// readImage compares the image's config with its ID, where the engine's IDs
// are digests of configs, and each layer with its diffID.
func readImage(ctx context.Context, engine *client.Client, id string) (configDigest string, err error) {
	full, err := engine.ImageInspect(ctx, id)
	if err != nil {
		return "", err
	}
	saved, err := engine.ImageSave(ctx, []string{id})
	if err != nil {
		return "", err
	}
	defer saved.Close()
	sums := map[string]string{} // by member: the digest of its content, unpacked
	files := map[string]map[string]string{}
	small := map[string][]byte{}
	for r := tar.NewReader(saved); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return "", fmt.Errorf("docker save: %w", err)
		}
		if h.Typeflag == tar.TypeSymlink { // 20.10: a layer that it wrote already
			continue
		}
		var head bytes.Buffer
		sums[h.Name], files[h.Name], err = digestUnpacked(io.TeeReader(r, &limited{&head, 1 << 16}))
		if err != nil {
			return "", fmt.Errorf("docker save: %s: %w", h.Name, err)
		}
		if h.Size <= 1<<16 {
			small[h.Name] = head.Bytes()
		}
	}
	var manifest []struct {
		Config string
		Layers []string
	}
	if err := json.Unmarshal(small["manifest.json"], &manifest); err != nil || len(manifest) != 1 {
		return "", fmt.Errorf("docker save: no manifest.json of one image: %v", err)
	}
	var config struct {
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		} `json:"rootfs"`
	}
	if err := json.Unmarshal(small[manifest[0].Config], &config); err != nil {
		return "", fmt.Errorf("docker save: config: %w", err)
	}
	if fmt.Sprint(config.RootFS.DiffIDs) != fmt.Sprint(full.RootFS.Layers) {
		return "", fmt.Errorf("its config names the layers %v, the engine %v", config.RootFS.DiffIDs, full.RootFS.Layers)
	}
	if full.GraphDriver.Name == "overlay2" && sums[manifest[0].Config] != id {
		return "", fmt.Errorf("its config is %s", sums[manifest[0].Config])
	}
	if len(manifest[0].Layers) != len(config.RootFS.DiffIDs) {
		return "", fmt.Errorf("%d layers were saved, not %d", len(manifest[0].Layers), len(config.RootFS.DiffIDs))
	}
	have := map[string]bool{}
	for _, sum := range sums {
		have[sum] = true
	}
	for n, want := range config.RootFS.DiffIDs {
		if got, ok := sums[manifest[0].Layers[n]]; ok && got != want || !have[want] {
			return "", fmt.Errorf("layer %d is %s, not %s", n, got, want)
		}
	}
	if full.GraphDriver.Name == "overlay2" {
		return sums[manifest[0].Config], nil // it was saved from the files that containers see
	}
	union := map[string]string{}
	for _, layer := range manifest[0].Layers {
		maps.Copy(union, files[layer])
	}
	return sums[manifest[0].Config], checkUnpacked(ctx, engine, id, union)
}

// checkUnpacked compares what a container of the image sees with the files of its
// layers, which have no whiteouts here. The containerd store saves an image from the
// blobs in which it came, but runs it from what it unpacked of them.
func checkUnpacked(ctx context.Context, engine *client.Client, id string, files map[string]string) error {
	made, err := engine.ContainerCreate(ctx, &container.Config{Image: id}, nil, nil, nil, "")
	if err != nil {
		return err
	}
	defer func() {
		_ = engine.ContainerRemove(context.WithoutCancel(ctx), made.ID, container.RemoveOptions{Force: true})
	}()
	exported, err := engine.ContainerExport(ctx, made.ID)
	if err != nil {
		return err
	}
	defer exported.Close()
	_, seen, err := digestUnpacked(exported)
	if err != nil {
		return err
	}
	for name, want := range files {
		if seen[name] != want {
			return fmt.Errorf("unpacked, %s is %q, not %s", name, seen[name], want)
		}
	}
	return nil
}

// digestUnpacked returns the digest of a stream's content, gunzipped if necessary
// (the containerd store saves layers as they were pulled). If the content is a tar,
// it also returns the digest of each regular file in it.
func digestUnpacked(r io.Reader) (sum string, files map[string]string, err error) {
	in := bufio.NewReader(r)
	content := io.Reader(in)
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		if content, err = gzip.NewReader(in); err != nil {
			return "", nil, err
		}
	}
	h := sha256.New()
	content = io.TeeReader(content, h)
	files = map[string]string{}
	for members := tar.NewReader(content); ; {
		m, err := members.Next()
		if err != nil {
			break // at its end, or it is not a tar
		}
		if m.Typeflag == tar.TypeReg {
			f := sha256.New()
			if _, err := io.Copy(f, members); err != nil {
				return "", nil, err
			}
			files[m.Name] = fmt.Sprintf("%x", f.Sum(nil))
		}
	}
	if _, err := io.Copy(io.Discard, content); err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("sha256:%x", h.Sum(nil)), files, nil
}

// limited keeps the first bytes that are written to it.
type limited struct {
	to   *bytes.Buffer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	n := min(len(p), l.left)
	l.left -= n
	l.to.Write(p[:n])
	return len(p), nil
}
