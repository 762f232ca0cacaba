package device

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/artifact/statement"
	"github.com/mender-app/mender-app/modules/client"
	"github.com/mender-app/mender-app/modules/hold"
	"github.com/mender-app/mender-app/store"
)

// This file is about what a device learns from signed texts: what time it is at least, and
// which keys and statements no longer count.

func (s Signatures) learnt() (store.Trust, error) {
	if s.Learnt == nil {
		return store.Trust{}, nil
	}
	t, err := s.Learnt()
	var corrupt *store.CorruptError
	if errors.As(err, &corrupt) {
		err = fmt.Errorf("%w; revoked keys and releases are not known: remove the file to continue without it", err)
	}
	return t, err
}

// revocations is the list that counts; an empty one if there is none.
func (s Signatures) revocations() (statement.Revocations, error) {
	t, err := s.learnt()
	if err != nil || t.Revocations == nil {
		return statement.Revocations{}, err
	}
	r, err := statement.ParseRevocations(t.Revocations)
	if err != nil {
		return statement.Revocations{}, err
	}
	return r.Revocations, nil
}

// Read is ReadKeys, and marks the keys that are revoked.
func (s Signatures) Read(keys []Key) ([]Trusted, error) {
	list, err := ReadKeys(keys)
	if err != nil {
		return nil, err
	}
	return s.mark(list)
}

func (s Signatures) mark(list []Trusted) ([]Trusted, error) {
	r, err := s.revocations()
	if err != nil || len(r.Keys) == 0 {
		return list, err
	}
	for i := range list {
		print, err := mender.Fingerprint(list[i].Public)
		if err != nil {
			return nil, err
		}
		list[i].Revoked = slices.Contains(r.Keys, digest.Digest(print))
	}
	return list, nil
}

// counts returns a client.ErrRefused for a statement that is revoked.
func (s Signatures) counts(st *statement.Signed) error {
	r, err := s.revocations()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	if slices.Contains(r.Statements, st.Digest()) {
		return fmt.Errorf("%w: the release is revoked (revocations %d): install a newer one", client.ErrRefused, r.Version)
	}
	return nil
}

// MayGoBack returns a client.ErrRefused for a kept release that is revoked: its statement, or
// keys that signed it, without enough others. Nothing else of it is checked again.
func (s Signatures) MayGoBack(r *store.Release) error {
	if r.Statement == nil {
		return nil
	}
	st, err := statement.Parse(r.Statement)
	if err != nil {
		return nil // mender-app verify says so; it was accepted when it came
	}
	if err := s.counts(st); err != nil {
		return err
	}
	keys, err := s.Read(s.Keys)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	if slices.ContainsFunc(keys, func(k Trusted) bool { return k.Revoked && st.SignedBy(k.Public) }) {
		_, err = StatementKey(keys, r.Application, st)
	}
	return err
}

// now is the time that it is at least: that of the clock, or of the newest statement that
// counts for the application. learnt says that it is the latter.
func (s Signatures) now(application string) (now time.Time, learnt bool, err error) {
	now = s.clock()
	t, err := s.learnt()
	for _, scope := range []string{"", application} {
		if seen := t.Times[scope]; seen.After(now) {
			now, learnt = seen, true
		}
	}
	return now.UTC(), learnt, err
}

// unexpired returns a client.ErrRefused for a release that has expired, if the device asks
// for it.
func (s Signatures) unexpired(application string, st *statement.Signed) error {
	if !s.RequireUnexpired {
		return nil
	}
	if st == nil || st.Expires.IsZero() {
		return fmt.Errorf("%w: the artifact does not expire, but require_unexpired is set: make it with app-gen --key and --expires", client.ErrRefused)
	}
	now, learnt, err := s.now(application)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	if !now.After(st.Expires) {
		return nil
	}
	whose := "by this device's clock; if the clock is right"
	if learnt {
		whose = "at least, by a statement that this device has seen"
	}
	return fmt.Errorf("%w: the release expired at %s, and it is %s %s, install one that app-gen made since then",
		client.ErrRefused, st.Expires.UTC().Format(time.RFC3339), now.Format(time.RFC3339), whose)
}

// ahead is how far before a clock that is set the time of a statement may be.
const ahead = 24 * time.Hour

// LearnTime keeps the time of a statement that Trust has accepted, durably, if it is the
// newest: for the application that it is about, or for all if keys for all signed it. So
// nobody with the key of one application decides what expires for others. The caller has the
// store's lock.
func (s Signatures) LearnTime(st *store.Store, application string, from *statement.Signed, log *slog.Logger) error {
	if from == nil || from.Issued.IsZero() {
		return nil
	}
	keys, err := s.Read(s.Keys)
	if err != nil || s.Err != nil {
		return nil // where it matters, Trust has refused
	}
	scope := application
	if enough(keys, from.SignedBy, func(k Trusted) bool { return rules(keys, k) }) != nil {
		scope = ""
	} else if _, err := StatementKey(keys, application, from); err != nil {
		return nil // without a key that counts it says nothing
	}
	set := s.ClockSet
	if set == nil {
		set = hold.ClockSet
	}
	if now := s.clock(); set() && from.Issued.After(now.Add(ahead)) {
		log.Warn("a statement was issued in the future; its time is not kept", "app", application, "issued", from.Issued)
		return nil
	}
	t, err := st.Trust()
	if err != nil || !from.Issued.After(t.Times[scope]) {
		return err
	}
	if t.Times == nil {
		t.Times = map[string]time.Time{}
	}
	t.Times[scope] = from.Issued.UTC()
	return st.PutTrust(t)
}

func (s Signatures) clock() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}

// LearnRevocations keeps the list of an artifact, durably, if it is newer than the one that
// counts and keys for all applications signed it, as many as their threshold says. Whoever
// brings a list does not matter: it counts by its own signatures. The caller has the store's
// lock.
func (s Signatures) LearnRevocations(st *store.Store, m *artifact.Metadata, log *slog.Logger) error {
	if m.Revocations == nil {
		return nil
	}
	ignored := func(why error) error {
		log.Warn("the artifact's list of revocations is not used", "error", why)
		return nil
	}
	list, err := statement.ParseRevocations(m.Revocations)
	if err != nil {
		return ignored(err)
	}
	t, err := st.Trust()
	if err != nil {
		return err
	}
	have, err := s.revocations()
	if err != nil || list.Version <= have.Version {
		return err
	}
	keys, err := s.Read(s.Keys)
	if err = cmp.Or(s.Err, err); err != nil {
		return ignored(err)
	}
	if enough(keys, list.SignedBy, func(k Trusted) bool { return rules(keys, k) }) == nil {
		return ignored(errors.New("keys for all applications have to sign it"))
	}
	t.Revocations = m.Revocations
	if err := st.PutTrust(t); err != nil {
		return err
	}
	log.Info("keys or releases are revoked", "version", list.Version)
	return nil
}

// rules reports whether a key may say what holds for all applications: one bound to "*", or
// any where none is bound.
func rules(keys []Trusted, k Trusted) bool {
	return slices.Contains(k.Applications, "*") || !slices.ContainsFunc(keys, func(k Trusted) bool { return len(k.Applications) > 0 })
}

// learning is deploy.Learner.
type learning struct {
	signatures Signatures
	store      *store.Store
	log        *slog.Logger
}

func (l *learning) Revocations(m *artifact.Metadata) error {
	return l.signatures.LearnRevocations(l.store, m, l.log)
}

func (l *learning) Time(application string, s *statement.Signed) error {
	return l.signatures.LearnTime(l.store, application, s, l.log)
}
