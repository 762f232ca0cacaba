package device

import (
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/artifact/statement"
	"github.com/mender-app/mender-app/modules"
	"github.com/mender-app/mender-app/modules/client"
	"github.com/mender-app/mender-app/modules/deploy"
	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/modules/staging"
)

// stagedArtifacts are the staged artifacts, for policies that need one installed first.
type stagedArtifacts struct {
	c   *Config
	log *slog.Logger
}

// List lists the artifacts with a readable policy.
func (s *stagedArtifacts) List() (out []policy.Staged, err error) {
	list, err := Readable(s.c, s.log)
	for _, a := range list {
		out = append(out, policy.Staged{App: a.App(), At: a.Record.Staged})
	}
	return out, err
}

// StagedRelease is a staged artifact with readable metadata.
type StagedRelease struct {
	staging.Artifact
	Policy *policy.Policy // nil: it has none
	Reboot bool           // it needs a restart of the machine
	Signed bool           // keys of the device signed its statement
}

// App describes it to policies.
func (r StagedRelease) App() policy.App {
	return policy.App{Name: r.Application, Version: r.Version, Release: r.ArtifactName, Policy: r.Policy}
}

// Readable lists the staged artifacts, the newest of each application first. Damaged ones
// are left out.
func Readable(c *Config, log *slog.Logger) (out []StagedRelease, err error) {
	list, err := c.StagingArea().List()
	if err != nil {
		return nil, err
	}
	for _, a := range list {
		if a.Problem != "" {
			continue
		}
		f, r, err := a.Open(mender.ReadOptions{})
		if err != nil {
			log.Warn("a staged artifact cannot be read", "artifact", a.ArtifactName, "error", err)
			continue
		}
		meta, rules, err := staging.ReadMetadata(r.Header())
		_ = f.Close() // it was only read
		if err != nil {
			log.Warn("the policy of a staged artifact cannot be read", "artifact", a.ArtifactName, "error", err)
			continue
		}
		signed := false
		if meta.Statement != nil {
			st, err := statement.Parse(meta.Statement)
			signed = err == nil && c.Signatures.Verified(a.Application, st)
		}
		out = append(out, StagedRelease{a, rules, meta.Reboot, signed})
	}
	return out, nil
}

// Open opens a staged artifact to install first. Nothing else checks it: if there are keys,
// a key that may sign for its application must have signed it. Without keys, it is trusted
// as when it was staged.
func (s *stagedArtifacts) Open(application, artifactName string) (*deploy.StagedArtifact, error) {
	list, err := s.c.StagingArea().List()
	if err != nil {
		return nil, err
	}
	a, err := staging.Find(list, application, artifactName)
	if err != nil {
		return nil, err
	}
	keys, err := s.c.Signatures.Read(s.c.Signatures.Keys)
	if err = errors.Join(s.c.Signatures.Err, err); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUsage, err)
	}
	x, err := s.open(a, keys)
	if err != nil {
		return nil, err
	}
	switch {
	case x.Meta.Reboot:
		err = fmt.Errorf("%w: it needs a restart of the machine: install it separately first", client.ErrRefused)
	case x.scripts:
		err = fmt.Errorf("%w: it has state scripts, which only the Mender client runs: install it separately first", client.ErrRefused)
	}
	if err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return &x.StagedArtifact, nil
}

// OpenStaged opens a staged artifact to load. Without keys its signature is not checked.
func (c *Config) OpenStaged(a *staging.Artifact, keys []Trusted) (*deploy.StagedArtifact, error) {
	x, err := (&stagedArtifacts{c: c}).open(a, keys)
	if err != nil {
		return nil, err
	}
	return &x.StagedArtifact, nil
}

// openedArtifact is an open staged artifact.
type openedArtifact struct {
	deploy.StagedArtifact
	scripts bool // it has state scripts
}

func (s *stagedArtifacts) open(a *staging.Artifact, keys []Trusted) (*openedArtifact, error) {
	var options mender.ReadOptions
	for _, k := range keys {
		options.PublicKeys = append(options.PublicKeys, k.Public)
	}
	f, r, err := a.Open(options)
	if err != nil {
		return nil, err
	}
	x, err := s.artifact(r, keys)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	x.Closer = f
	return x, nil
}

func (s *stagedArtifacts) artifact(r *mender.Reader, keys []Trusted) (*openedArtifact, error) {
	h := r.Header()
	meta, _, err := staging.ReadMetadata(h)
	if err != nil {
		return nil, err
	}
	signer := ""
	if len(keys) > 0 {
		if err := MayInstall(keys, h, meta.ApplicationName); err != nil {
			return nil, err
		}
		if signer, err = mender.EncodePublicKey(h.SignedBy); err != nil {
			return nil, err
		}
	}
	return &openedArtifact{deploy.StagedArtifact{Meta: meta, Provides: h.Provides, Payload: stagedPayload{r}, Trust: s.c.Signatures.TrustWithin(signer, ReachOf(h))}, len(h.Scripts) > 0}, nil
}

// stagedPayload gives the files of an artifact's payload.
type stagedPayload struct{ r *mender.Reader }

func (p stagedPayload) Next() (*modules.Stream, error) {
	info, err := p.r.Next()
	if err != nil {
		return nil, err
	}
	return &modules.Stream{Name: info.Name, ReadCloser: io.NopCloser(p.r)}, nil
}
