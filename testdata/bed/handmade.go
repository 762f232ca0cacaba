package bed

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Handmade is an artifact put together by hand: the payloads, member by member, in
// the layout of the shell app-update-module, wrapped by the real mender-artifact. A
// test can make any part of it wrong.
type Handmade struct {
	Name      string // artifact name
	Software  string // --software-name; the provides are rootfs-image.SOFTWARE.version=NAME
	Metadata  string // meta-data as text; "" leaves it out
	Images    []Member
	Manifests []Member
}

// Member is a member of a payload's tar, exactly as it is written.
type Member struct {
	Name string
	Type byte // a regular file when 0
	Link string
	Data []byte
	// Zeros is the size of a regular file of zeros, which replaces Data.
	Zeros int64
}

// Reference is a valid full artifact of images. Its members are in an order that the
// shell generator's tar may give: image.img before the texts.
func Reference(app, artifactName, compose string, images ...Image) (Handmade, error) {
	h := Handmade{Name: artifactName, Software: app}
	var digests []string
	for _, i := range images {
		members, digest, err := ReferenceImage(i)
		if err != nil {
			return h, err
		}
		h.Images = append(h.Images, members...)
		digests = append(digests, digest)
	}
	slices.Sort(digests)
	metadata, err := json.Marshal(map[string]any{
		"version": "1.0", "application_name": app, "orchestrator": "docker-compose",
		"platform": Platform(), "images": digests,
	})
	h.Metadata = string(metadata)
	h.Images = append([]Member{{Name: "images/", Type: tar.TypeDir}}, h.Images...)
	h.Manifests = []Member{
		{Name: "manifests/", Type: tar.TypeDir},
		{Name: "manifests/docker-compose.yml", Data: []byte(compose)},
	}
	return h, err
}

// ReferenceImage is one full image as the shell generator packs it, and the
// hex digest that names it.
func ReferenceImage(i Image) ([]Member, string, error) {
	img, err := i.Build()
	if err != nil {
		return nil, "", err
	}
	config, err := img.ConfigName()
	if err != nil {
		return nil, "", err
	}
	archive, err := os.CreateTemp("", "mender-app-image-")
	if err != nil {
		return nil, "", err
	}
	archive.Close()
	defer os.Remove(archive.Name())
	if err := WriteArchive(archive.Name(), i); err != nil {
		return nil, "", err
	}
	data, err := os.ReadFile(archive.Name())
	if err != nil {
		return nil, "", err
	}
	dir := "images/" + config.Hex
	return []Member{
		{Name: dir + "/", Type: tar.TypeDir},
		{Name: dir + "/image.img", Data: data},
		{Name: dir + "/sums-current.txt", Data: []byte(config.Hex + "\n")},
		{Name: dir + "/url-new.txt", Data: []byte(i.Ref + "\n")},
		{Name: dir + "/sums-new.txt", Data: []byte(config.Hex + "\n")},
		{Name: dir + "/url-current.txt", Data: []byte(i.Ref + "\n")},
	}, config.Hex, nil
}

// Write writes the artifact to path with the real mender-artifact.
func (h Handmade) Write(path string) error {
	dir, err := os.MkdirTemp("", "mender-app-handmade-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	args := []string{"write", "module-image", "-T", "app", "-t", Type, "-n", h.Name, "-o", path, "--software-name", h.Software}
	if h.Metadata != "" {
		file := filepath.Join(dir, "metadata.json")
		if err := os.WriteFile(file, []byte(h.Metadata), 0o644); err != nil {
			return err
		}
		args = append(args, "--meta-data", file)
	}
	for name, members := range map[string][]Member{"images.tar.gz": h.Images, "manifests.tar.gz": h.Manifests} {
		if members == nil {
			continue
		}
		if err := writePayload(filepath.Join(dir, name), members); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for _, name := range []string{"images.tar.gz", "manifests.tar.gz"} {
		if file := filepath.Join(dir, name); exists(file) {
			args = append(args, "-f", file)
		}
	}
	r, err := run(exec.Command("mender-artifact", args...))
	if err == nil && r.Code != 0 {
		err = errors.New(r.Output())
	}
	if err != nil {
		return fmt.Errorf("mender-artifact write: %w", err)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func writePayload(path string, members []Member) error {
	var buf bytes.Buffer
	packed := gzip.NewWriter(&buf)
	w := tar.NewWriter(packed)
	for _, m := range members {
		h := &tar.Header{Name: m.Name, Typeflag: m.Type, Linkname: m.Link, Mode: 0o644, Size: max(int64(len(m.Data)), m.Zeros)}
		switch m.Type {
		case 0:
			h.Typeflag = tar.TypeReg
		case tar.TypeDir:
			h.Mode = 0o755
		}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		content := io.Reader(bytes.NewReader(m.Data))
		if m.Zeros > 0 {
			content = io.LimitReader(zeros{}, m.Zeros)
		}
		if _, err := io.Copy(w, content); err != nil {
			return err
		}
	}
	if err := errors.Join(w.Close(), packed.Close()); err != nil {
		return err
	}
	return os.WriteFile(path, buf.Bytes(), 0o644)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// Find returns the first of members whose name has the suffix, so that a test can
// change it.
func Find(members []Member, ending string) *Member {
	for i := range members {
		if strings.HasSuffix(members[i].Name, ending) {
			return &members[i]
		}
	}
	return nil
}
