package submodules

import (
	"context"
)

// Volume is a volume that an application's manifests declare and that belongs to it.
type Volume struct {
	Name string `json:"volume"`        // as the manifests name it
	Dir  string `json:"dir,omitempty"` // on this machine; "" if the volume does not exist yet
}

// VolumeLister is a Session with the feature data/1.
type VolumeLister interface {
	// Volumes lists the volumes of the manifests in the directory of the request.
	Volumes(ctx context.Context) ([]Volume, error)
}

// volumes returns the volumes, never nil.
func volumes(l VolumeLister, ctx context.Context) ([]Volume, error) {
	list, err := l.Volumes(ctx)
	if list == nil {
		list = []Volume{}
	}
	return list, err
}
