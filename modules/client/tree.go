package client

import (
	"encoding/json"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/modules"
	"github.com/mender-app/mender-app/store/durable"
)

// tree is the file tree of the module's calls.
func (c *Client) tree() string { return filepath.Join(c.Dir, "tree") }

// makeTree makes the file tree as the C++ client does: plain values end with a
// newline, and missing meta-data is the literal null.
func (c *Client) makeTree(r *Record, h *mender.Header) error {
	dir := c.tree()
	if err := durable.RemoveAll(dir); err != nil {
		return err
	}
	for _, sub := range []string{"", "header", "tmp", "streams"} {
		if err := durable.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return err
		}
	}
	meta := h.MetaData
	if len(meta) == 0 {
		meta = []byte("null")
	}
	for name, content := range map[string]string{
		"version":                "3\n",
		"current_artifact_name":  r.Installed.ArtifactName + "\n",
		"current_artifact_group": r.Installed.Provides["artifact_group"] + "\n",
		"current_device_type":    c.DeviceType + "\n",
		"header/artifact_name":   h.Name + "\n",
		"header/artifact_group":  h.Group + "\n",
		"header/payload_type":    h.PayloadType + "\n",
		"header/header-info":     string(h.HeaderInfo),
		"header/type-info":       string(h.TypeInfo),
		"header/meta-data":       string(meta),
		modules.DriverFile:       c.Driver + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	if c.Force {
		if err := os.WriteFile(filepath.Join(dir, modules.ForceFile), nil, 0o600); err != nil {
			return err
		}
	}
	if c.Reuse != (modules.Reuse{}) {
		data, err := json.Marshal(c.Reuse)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, modules.ReuseFile), data, 0o600); err != nil {
			return err
		}
	}
	if c.Automatic {
		if err := os.WriteFile(filepath.Join(dir, modules.AutomaticFile), []byte(c.Event), 0o600); err != nil {
			return err
		}
	}
	if c.Signer != "" {
		if err := os.WriteFile(filepath.Join(dir, modules.SignerFile), []byte(c.Signer), 0o600); err != nil {
			return err
		}
	}
	if err := unix.Mkfifo(filepath.Join(dir, "stream-next"), 0o600); err != nil {
		return &os.PathError{Op: "mkfifo", Path: filepath.Join(dir, "stream-next"), Err: err}
	}
	// Later calls need the tree, even after a power cut.
	return durable.SyncTree(dir)
}
