package deploy

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/store/durable"
)

// This file keeps the requests of repairs, so that an interrupted one can be
// resumed, and unpacks the artifacts that repairs take images from.

// RepairSource is an artifact that a repair takes images from. Its content is used
// only after all of it was read without an error.
type RepairSource interface {
	MetaData() []byte
	// Next returns the next file of the payload; io.EOF after the last.
	Next() (name string, r io.Reader, err error)
}

// repairDir has one directory for each open repair, named by its application; see
// store/FORMAT.md.
const repairDir = "repair"

const repairRequestFile = "request.json"

// repairRequest lets an interrupted repair resume.
type repairRequest struct {
	Format      int               `json:"format"`
	Application string            `json:"application"`
	Release     string            `json:"release"` // its sub-module and settings are used
	Components  []store.Component `json:"components"`
}

// Write writes the request to the directory of its repair.
func (q *repairRequest) Write(dir string) error {
	if err := durable.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	data, err := json.MarshalIndent(q, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(dir, repairRequestFile), data, 0o600)
}

// readRepair reads the request of a repair. fs.ErrNotExist: the repair was not begun.
func readRepair(dir string) (*repairRequest, error) {
	data, err := os.ReadFile(filepath.Join(dir, repairRequestFile))
	if err != nil {
		return nil, err
	}
	var q repairRequest
	if err := json.Unmarshal(data, &q); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", filepath.Join(dir, repairRequestFile), err)
	}
	if q.Format > store.Format {
		return nil, store.ErrNewer
	}
	return &q, nil
}
