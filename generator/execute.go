package generator

import (
	"context"
	"errors"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/generator/manifests"
)

// payload is the payload of the artifact, in temporary files, and what the metadata
// says of it.
type payload struct {
	images    string        // path; "" if no images are shipped
	manifests string        // path
	digest    digest.Digest // of the manifests
	// manifestsFile is the SHA-256 of the manifests payload.
	manifestsFile digest.Digest
	components    []artifact.Component
	sealed        bool     // there are encrypted secrets among the manifests
	recipients    []string // of those encrypted here
	sizes         artifact.Sizes
}

// execute encodes, packs and writes, in the order of the plan. It returns the size
// of each image in the artifact.
func (r *run) execute(ctx context.Context, p *plan, used *manifests.Found) (sent []Sent, err error) {
	out := &payload{}
	if len(p.images)+len(p.files) > 0 {
		made, err := r.encodeWithin(ctx, p, out)
		if err != nil {
			return nil, err
		}
		defer made.remove()
		if sent, err = r.packImages(ctx, p, made, out); err != nil {
			return nil, err
		}
	}
	if used == nil {
		used = &manifests.Found{}
	}
	if err := r.packManifests(used, out); err != nil {
		return nil, err
	}
	return sent, r.write(ctx, p, out)
}

// encodeWithin makes the deltas of the plan, as small as they can be within the budget
// for decoding, and describes them in out. Only deltas are made again with more thrift:
// nothing is packed before their sizes are settled.
func (r *run) encodeWithin(ctx context.Context, p *plan, out *payload) (*encoded, error) {
	for search := r.limit.search(); ; {
		made, err := r.encodePlan(ctx, p, search.thrift)
		if err != nil {
			return nil, err
		}
		if out.components, out.sizes, err = describe(p, made, r.Application.Platform); err != nil {
			made.remove()
			return nil, err
		}
		done, err := search.judge(decodingOf(&out.sizes, out.components))
		if done {
			p.coded(made)
			return made, nil
		}
		made.remove()
		var much *tooMuchError
		if errors.As(err, &much) {
			return nil, &UsageError{Text: "--decode-budget: " + err.Error(), Hint: "--decode-budget " + much.Enough() + " would do; what travels whole is not decoded: images without --base and CURRENT, with --fast"}
		}
	}
}
