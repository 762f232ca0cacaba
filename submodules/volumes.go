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
	Volumes(ctx context.Context, r VolumesRequest) ([]Volume, error)
}

// volumes returns the volumes, never nil.
func volumes(ctx context.Context, l VolumeLister, r VolumesRequest) ([]Volume, error) {
	list, err := l.Volumes(ctx, r)
	if list == nil {
		list = []Volume{}
	}
	return list, err
}
