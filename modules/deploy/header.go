package deploy

import (
	"fmt"
	"log/slog"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/composemodule"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/statement"
	"github.com/mender-app/mender-app/modules"
	"github.com/mender-app/mender-app/store"
)

// This file reads what an artifact says of itself in its header, before any of
// its payload is read. It asks neither the device nor the store.

// header is the artifact's name and metadata. The client has verified both.
type header struct {
	Artifact string                            // its name
	Provides map[string]string                 // what the client records when it commits
	Meta     *artifact.Metadata                // in a resolved header no component has variants
	Members  map[image.Digest][]string         // in a resolved header: of the variants chosen, in the images payload
	Content  map[image.Digest]artifact.Content // in a resolved header: of the variants chosen, outside of the payload
	// Statement is what the maker of the application signed, nil if the
	// artifact has none. CheckStatement sets it.
	Statement *statement.Signed
	Project   bool // the artifact is one of mender-container-modules
}

// Reply answers a state that asks a question; asks is false for other states. If
// the application asks for a restart, the answer is Automatic: the client
// restarts the machine once for all updates. If the tree cannot be read, there
// is not a restart.
func Reply(state modules.State, tree *modules.Tree) (answer string, asks bool) {
	answer, asks = modules.Reply(state)
	if state != modules.NeedsArtifactReboot || tree == nil {
		return answer, asks
	}
	raw, err := tree.MetaData()
	if err != nil || raw == nil {
		return answer, asks
	}
	if meta, _, err := artifact.ParseMetadata(raw); err == nil && meta.Reboot {
		return modules.Automatic, true
	}
	return answer, asks
}

// readHeader reads the artifact's name and the metadata from the tree.
func readHeader(tree *modules.Tree, platforms []image.Platform, log *slog.Logger) (*header, error) {
	name, err := tree.ArtifactName()
	if err != nil {
		return nil, err
	}
	raw, err := tree.MetaData()
	if err != nil {
		return nil, err
	}
	if raw == nil {
		return nil, fmt.Errorf("%w: the artifact has none; make it with app-gen", artifact.ErrMetadata)
	}
	typ, err := tree.PayloadType()
	if err != nil {
		return nil, err
	}
	parse := artifact.ParseMetadata
	if typ == composemodule.PayloadType {
		parse = composemodule.Parser(platforms)
	}
	meta, warnings, err := parse(raw)
	if err != nil {
		return nil, err
	}
	for _, w := range warnings {
		log.Warn(w)
	}
	return &header{Artifact: name, Provides: tree.Provides(), Meta: meta, Project: typ == composemodule.PayloadType}, nil
}

// CheckStatement refuses an artifact that differs from its statement. No payload has
// been read then.
func (h *header) CheckStatement() error {
	h.Statement = nil
	if h.Meta.Statement == nil {
		return nil
	}
	s, err := statement.Parse(h.Meta.Statement)
	if err == nil {
		err = s.Check(h.Meta)
	}
	if err == nil {
		h.Statement = s
	}
	return err
}

// ManifestLimits are the bounds that the metadata announces for the manifests.
func (h *header) ManifestLimits() (limits artifact.ManifestLimits) {
	if s := h.Meta.Sizes; s != nil {
		limits.MaxBytes = s.ManifestsPayload
	}
	return limits
}

// CheckManifests returns an error if the manifests are not those of the statement.
func (h *header) CheckManifests(manifests digest.Digest) error {
	if h.Statement == nil || h.Statement.Manifests == manifests {
		return nil
	}
	return fmt.Errorf("%w: the manifests are not those that the artifact's statement is about: their digest is %s, and it says %s",
		artifact.ErrPayload, manifests, h.Statement.Manifests)
}

// Release makes a release from the artifact's metadata, without components.
func (h *header) Release() *store.Release {
	return &store.Release{
		ArtifactName: h.Artifact, Version: h.Meta.ApplicationVersion, Policy: h.Meta.Policy, Orchestrator: h.Meta.Orchestrator,
		Platform: h.Meta.Platform, Env: h.Meta.Env, Statement: h.Meta.Statement, Provides: h.Provides,
	}
}

// releaseComponents are those of the metadata, for the store. It is nil for no components.
func releaseComponents(list []artifact.Component) (out []store.Component) {
	for _, c := range list {
		out = append(out, releaseComponent(c))
	}
	return out
}

// releaseComponent is one component of the metadata, for the store.
func releaseComponent(c artifact.Component) store.Component {
	out := store.Component{Type: c.Type, URL: c.URL, Digest: c.Digest}
	for _, l := range c.Layers {
		out.DiffIDs = append(out.DiffIDs, l.DiffID)
	}
	return out
}
