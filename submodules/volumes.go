package submodules

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
)

// Volume is a volume that an application's manifests declare and that belongs to it.
type Volume struct {
	Name string `json:"volume"`        // as the manifests name it
	Dir  string `json:"dir,omitempty"` // of this machine; "": the volume is not made yet
}

// VolumeLister is a Session with the feature data/1.
type VolumeLister interface {
	// Volumes lists the volumes of the manifests in the directory of the request.
	Volumes(ctx context.Context) ([]Volume, error)
}

// volumes prints the volumes as one JSON array.
func volumes(ctx context.Context, c *call) error {
	l, ok := c.session.(VolumeLister)
	if !ok {
		return Mark(errors.New("this sub-module cannot name volumes"), ErrUsage)
	}
	list, err := l.Volumes(ctx)
	if err != nil {
		return err
	}
	if list == nil {
		list = []Volume{}
	}
	return json.NewEncoder(c.out).Encode(list)
}

// Volumes lists the volumes of the manifests in r.Dir, and the directories of this
// machine that they are in (feature data/1). Any directory of manifests will do.
func (m *Module) Volumes(ctx context.Context, r Request) (list []Volume, err error) {
	var out bytes.Buffer
	if err := m.run(ctx, r, &out, VerbVolumes, r.App, r.Dir); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(out.Bytes(), &list); err != nil {
		return nil, fmt.Errorf("%s %s: reply: %w", m.Name, VerbVolumes, err)
	}
	for _, v := range list {
		if v.Name == "" || v.Dir != "" && (!filepath.IsAbs(v.Dir) || filepath.Clean(v.Dir) != v.Dir) {
			return nil, fmt.Errorf("%s %s: reply: %q is not the absolute path of a directory", m.Name, VerbVolumes, v.Dir)
		}
	}
	return list, nil
}
