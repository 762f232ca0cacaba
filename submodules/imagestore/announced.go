package imagestore

import (
	"bytes"
	"errors"
	"fmt"
	"math"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/submodules"
)

// The payload's checksum is known only when all of it has been read. The metadata
// is verified before that. So the metadata decides which content is accepted, and
// how much work and disk space it may cost.

// errNotAnnounced marks content that is not what the metadata announces.
var errNotAnnounced = errors.New("the content is not what the artifact's metadata announces")

func notAnnounced(format string, args ...any) error {
	return submodules.Mark(fmt.Errorf("%w: %s", errNotAnnounced, fmt.Sprintf(format, args...)), submodules.ErrContent)
}

// archiveOverhead is what an image archive may have beside its layers, in bytes:
// manifests, configs, and the tar's own headers.
const archiveOverhead = 64 << 20

// announcement is what the metadata announces about the image; nil if it announces
// nothing.
type announcement struct {
	*submodules.Announced
	diffIDs []image.Digest // of its layers
}

// newAnnouncement returns nil if nothing is announced. It fails if the number of
// layers differs from the number of diffIDs.
func newAnnouncement(a *submodules.Announced, id Identity) (*announcement, error) {
	if a == nil {
		return nil, nil
	}
	if len(a.Layers) > 0 && len(a.Layers) != len(id.DiffIDs) {
		return nil, submodules.Mark(fmt.Errorf("announced: %s, and %s", metered.Count(len(a.Layers), "layer"), metered.Count(len(id.DiffIDs), "diffID")), submodules.ErrUsage)
	}
	for _, l := range a.Layers {
		if l.Size < 0 || l.Unpacked < 0 {
			return nil, submodules.Mark(errors.New("a layer of negative size is announced"), submodules.ErrUsage)
		}
	}
	return &announcement{a, id.DiffIDs}, nil
}

// The values of Announced.Format.
const (
	formatFull  = "full"
	formatDelta = "delta"
)

// checkKind compares the first bytes of the content with the announced format.
func (a *announcement) checkKind(head []byte, deep bool) error {
	if a == nil {
		return nil
	}
	isDelta := bytes.HasPrefix(head, deltaMagic)
	switch {
	case a.Format == formatFull && (isDelta || deep || bytes.HasPrefix(head, vcdiffMagic)):
		return notAnnounced("it is a delta, and a full image is announced")
	case a.Format == formatDelta && !isDelta:
		return notAnnounced("it is not a delta, and a delta is announced")
	}
	return nil
}

// checkDelta compares the header of a delta with what is announced. The config is
// announced by its size alone: its digest is the image's identity.
func (a *announcement) checkDelta(h delta.Header) error {
	if a == nil || len(a.Layers) == 0 {
		return nil
	}
	config := h.Objects[0]
	config.Size = a.ConfigSize
	announced := []delta.ObjectInfo{config}
	for i, l := range a.Layers {
		announced = append(announced, delta.ObjectInfo{
			Digest: a.diffIDs[i], Size: l.Size, Kind: delta.Tar, Encoding: delta.Encoding(l.Encoding),
		})
	}
	if err := h.CheckAnnounced(announced); err != nil {
		return notAnnounced("%v", err)
	}
	return nil
}

// checkTemp compares the temporary files that decoding takes with the announced
// temporary bytes. shared is the size of the shared content, which is one of them.
func (a *announcement) checkTemp(h delta.Header, shared int64) error {
	if a != nil && (shared > a.Temp || h.Temp > a.Temp-shared) {
		return notAnnounced("it takes %d temporary bytes for shared content and %d for decoding, and %d temporary bytes are announced", shared, h.Temp, a.Temp)
	}
	return nil
}

// layer returns the highest number of bytes of a layer and of its unpacked files;
// known is false if that is not announced.
func (a *announcement) layer(d image.Digest) (size int64, known bool) {
	if a == nil {
		return 0, false
	}
	for i, l := range a.Layers {
		if a.diffIDs[i] == d {
			return max(l.Size, l.Unpacked), true
		}
	}
	return 0, false
}

// total is the highest number of bytes of all layers together.
func (a *announcement) total() int64 {
	if a == nil {
		return math.MaxInt64
	}
	if len(a.Layers) == 0 {
		if a.Engine > 0 {
			return a.Engine
		}
		return math.MaxInt64
	}
	var sum int64
	for _, l := range a.Layers {
		sum += min(max(l.Size, l.Unpacked), math.MaxInt64-sum)
	}
	return sum
}

// limits bound the reading of an archive.
func (a *announcement) limits() image.Limits {
	total := a.total()
	if total > math.MaxInt64-archiveOverhead {
		return image.Limits{}
	}
	limits := image.Limits{MaxBytes: total + archiveOverhead, MaxLayer: total}
	if a.Layers != nil {
		limits.MaxLayer = 0
		for _, l := range a.Layers {
			limits.MaxLayer = max(limits.MaxLayer, l.Size)
		}
	}
	limits.MaxLayer = max(limits.MaxLayer, image.MaxConfig) // configs and manifests are blobs too
	return limits
}
