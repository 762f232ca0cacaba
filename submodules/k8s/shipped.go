package k8s

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mender-app/mender-app/submodules"
	"github.com/mender-app/mender-app/submodules/k8s/cluster"
	"github.com/mender-app/mender-app/submodules/k8s/manifest"
	"github.com/mender-app/mender-app/submodules/k8s/marks"
)

// The manifests of the installed release are kept in the cluster, in a Secret beside
// the inventory, because they may contain secrets. EXPORT_MANIFEST returns them byte
// for byte.

const (
	shippedKey = "manifests.tar.gz"
	// maxShipped is what fits into a Secret with some room to spare, in bytes.
	// Larger manifests work, but cannot be exported.
	maxShipped = 900 << 10
)

func shippedID(app, ns string) cluster.ID {
	return cluster.ID{Kind: "Secret", Namespace: ns, Name: marks.InventoryName(app)}
}

// archiveDir makes a tar.gz of the files of a directory; nil if they are too large.
func archiveDir(dir string) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	var b bytes.Buffer
	zw := gzip.NewWriter(&b)
	tw := tar.NewWriter(zw)
	var total int64
	err = fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		f, err := root.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		fi, err := f.Stat()
		if err != nil {
			return err
		}
		if total += fi.Size(); total > manifest.MaxTotal || b.Len() > maxShipped {
			return errTooLarge
		}
		if err := tw.WriteHeader(&tar.Header{Name: name, Mode: int64(fi.Mode().Perm()), Size: fi.Size(), Typeflag: tar.TypeReg}); err != nil {
			return err
		}
		_, err = io.Copy(tw, f)
		return err
	})
	if err == nil {
		err = errors.Join(tw.Close(), zw.Close())
	}
	if errors.Is(err, errTooLarge) || err == nil && b.Len() > maxShipped {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("pack the manifests: %w", err)
	}
	return b.Bytes(), nil
}

var errTooLarge = errors.New("too large")

func (s *session) saveShipped(ctx context.Context, app, ns string, archive []byte) error {
	i := shippedID(app, ns)
	if archive == nil {
		s.log("warning: the manifests are too large to be kept for EXPORT_MANIFEST")
		return s.c.Remove(ctx, i, "")
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": marks.Manifests,
		"metadata": map[string]any{"name": i.Name, "namespace": i.Namespace, "labels": map[string]string{marks.Inventory: marks.Value(app), marks.App: marks.Value(app)}},
		"data":     map[string][]byte{shippedKey: archive},
	})
	if err != nil {
		return err
	}
	m, err := s.c.Mapping(ctx, "", "Secret", "v1")
	if err != nil {
		return err
	}
	if _, err := s.c.Apply(ctx, m, i, body); err != nil {
		return fmt.Errorf("keep the manifests in %s: %w", i, err)
	}
	return nil
}

// export writes the manifests of the installed release to dir.
func (s *session) export(ctx context.Context, app, dir string) error {
	inv, err := loadInventory(ctx, s.c, app, s.namespace())
	if err != nil {
		return err
	}
	for _, ns := range inv.Places {
		o, err := s.c.Get(ctx, shippedID(app, ns))
		if err != nil {
			return err
		}
		if o == nil || !ours(o, app) {
			continue
		}
		text, _, err := unstructured.NestedString(o.Object, "data", shippedKey)
		if err != nil {
			return err
		}
		archive, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return err
		}
		return extractDir(archive, dir)
	}
	return submodules.Mark(fmt.Errorf("no manifests of %s are kept in this cluster", app), submodules.ErrNotFound)
}

func extractDir(archive []byte, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	zr, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return err
	}
	tr := tar.NewReader(io.LimitReader(zr, 2*manifest.MaxTotal))
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := root.MkdirAll(path.Dir(h.Name), 0o755); err != nil {
			return err
		}
		f, err := root.OpenFile(h.Name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, fs.FileMode(h.Mode).Perm())
		if err != nil {
			return err
		}
		_, err = io.Copy(f, tr)
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return err
		}
	}
}
