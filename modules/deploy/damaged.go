package deploy

import (
	"errors"
	"log/slog"
	"slices"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/store"
)

// This file keeps the store's list of components that may be damaged in the
// engine: those of downloads that were interrupted before their barrier.
//
// Engines do not sync the files that they unpack. After a power cut, an engine may list an
// image whose files are empty, if no barrier had made it durable. Deleting the components
// of an interrupted download is not enough: the engine may keep a layer whose image was
// not made yet, and regard it as present when the next image has the same layer. So the
// layers are recorded as suspects (store.Suspect) until they have been verified once, or
// until a barrier of the same boot has made them durable.

// damagedList is the list of a store, in one boot of the machine.
type damagedList struct {
	Store  *store.Store
	BootID string
	Log    *slog.Logger
}

// Add records the components of a release that is discarded before its barrier.
func (l damagedList) Add(r *store.Release) error {
	boot := r.BootID
	if boot == "" {
		boot = "unknown" // an older version did not record it
	}
	s := store.Suspect{BootID: boot, Orchestrator: r.Orchestrator}
	for _, c := range r.Components {
		if c.Digest != "" && !slices.Contains(s.Digests, c.Digest) {
			s.Digests = append(s.Digests, c.Digest)
		}
		for _, l := range c.DiffIDs {
			if !slices.Contains(s.Layers, l) {
				s.Layers = append(s.Layers, l)
			}
		}
	}
	if len(s.Digests) == 0 {
		return nil
	}
	list, err := l.Store.Suspects()
	var corrupt *store.CorruptError
	if err != nil && !errors.As(err, &corrupt) {
		return err
	}
	list = slices.DeleteFunc(list, func(x store.Suspect) bool {
		return x.BootID == s.BootID && x.Orchestrator == s.Orchestrator && slices.Equal(x.Digests, s.Digests) && slices.Equal(x.Layers, s.Layers)
	})
	return l.Store.PutSuspects(append(list, s))
}

// DropDurable drops the suspects that a barrier of this boot has made durable. If
// the list cannot be written, they are verified once more than necessary.
func (l damagedList) DropDurable(orchestrator string) {
	l.drop(func(s *store.Suspect) {
		if s.Orchestrator == orchestrator && s.BootID == l.BootID {
			s.Digests, s.Layers = nil, nil
		}
	})
}

// DropVerified drops a component that was verified.
func (l damagedList) DropVerified(c store.Component) {
	l.drop(func(s *store.Suspect) {
		s.Digests = slices.DeleteFunc(s.Digests, func(d digest.Digest) bool { return d == c.Digest })
		s.Layers = slices.DeleteFunc(s.Layers, func(l digest.Digest) bool { return slices.Contains(c.DiffIDs, l) })
	})
}

// drop calls remove for each entry of the list of suspects, to remove digests
// and layers from it. It writes the list if anything was removed.
func (l damagedList) drop(remove func(*store.Suspect)) {
	list, err := l.Store.Suspects()
	if err != nil || len(list) == 0 {
		return
	}
	n := 0
	for i := range list {
		before := len(list[i].Digests) + len(list[i].Layers)
		remove(&list[i])
		n += before - len(list[i].Digests) - len(list[i].Layers)
	}
	if n == 0 {
		return
	}
	if err := l.Store.PutSuspects(list); err != nil {
		l.Log.Warn("the list of suspect components could not be written", "error", err)
	}
}

// Has reports whether a component has a digest or a layer that is a suspect
// of an earlier boot. If the component's layers are unknown, any suspect of its
// orchestrator counts.
func (l damagedList) Has(orchestrator string, c store.Component) bool {
	list, err := l.Store.Suspects()
	if err != nil {
		l.Log.Warn("the list of suspect components cannot be read: all are verified", "error", err)
		return true
	}
	return slices.ContainsFunc(list, func(s store.Suspect) bool {
		switch {
		case s.Orchestrator != orchestrator || s.BootID == l.BootID:
			return false // the barrier of this boot makes it durable
		case len(c.DiffIDs) == 0 && !isFile(c) || slices.Contains(s.Digests, c.Digest):
			return true
		}
		return slices.ContainsFunc(c.DiffIDs, func(l digest.Digest) bool { return slices.Contains(s.Layers, l) })
	})
}
