package fleet

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/generator/content"
)

// PlatformPlaceholder stands for the platform in the name of an output.
const PlatformPlaceholder = "{platform}"

// Publication says what to publish.
type Publication struct {
	Plan    *Plan
	Store   *Store
	Output  string   // with PlatformPlaceholder if the release has several platforms
	Sources []string // URLs below which devices find the store's files
	Signing mender.Options
	TempDir string
	// Wait is how often to look for deltas that are not there; 0 refuses at once.
	Wait time.Duration
	Tell func(*Status) // is called when that number changes, while waiting
}

// Published is an artifact that was written.
type Published struct {
	Path     string          `json:"path"`
	Platform string          `json:"platform"`
	Result   *content.Result `json:"result"`
	Deltas   int             `json:"deltas"` // of the plan
	// Unchanged: the file was there before, with the same bytes.
	Unchanged bool `json:"unchanged,omitempty"`
	// Uploaded is "new" or "there" if a Mender server has it: it is new there, or it was there
	// before.
	Uploaded string `json:"uploaded,omitempty"`
}

// Do writes the artifacts of the release, without their images, when every delta of the
// plan is in the store and is what its record says. The whole images come into the store.
func (p *Publication) Do(ctx context.Context) (list []Published, err error) {
	if len(p.Plan.Targets) > 1 && !strings.Contains(p.Output, PlatformPlaceholder) {
		return nil, &Error{Text: "the release has several platforms, and the output one name", Hint: "put " + PlatformPlaceholder + " into it"}
	}
	if err := p.wait(ctx); err != nil {
		return nil, err
	}
	deltas := map[string]map[image.Digest][]artifact.Variant{}
	counts := map[string]int{}
	for _, d := range p.Plan.Deltas {
		if d.There == "release" {
			continue
		}
		m, err := p.Store.Find(ctx, d.Key)
		if err == nil && m == nil {
			err = &Error{Text: "it was removed meanwhile"}
		}
		if err == nil {
			err = p.Store.Verify(ctx, m)
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			return nil, &Error{Text: fmt.Sprintf("the delta of %s over %s: %v", d.Key.To.URL, d.Key.From.URL, err), Hint: "app-gen fleet run makes it again"}
		}
		of := deltas[d.Key.Platform]
		if of == nil {
			of = map[image.Digest][]artifact.Variant{}
			deltas[d.Key.Platform] = of
		}
		of[d.Key.To.Digest] = append(of[d.Key.To.Digest], m.Variant)
		counts[d.Key.Platform]++
	}
	for _, t := range p.Plan.Targets {
		if have, err := digest.OfFile(t.File); err != nil {
			return nil, err
		} else if have != t.Digest {
			return nil, &Error{Text: t.File + " is not what it was when the plan was made", Hint: "make the plan again"}
		}
	}
	for _, t := range p.Plan.Targets {
		for _, of := range deltas[t.Platform] {
			slices.SortFunc(of, func(a, b artifact.Variant) int {
				return cmp.Or(cmp.Compare(a.Content.Size, b.Content.Size), cmp.Compare(a.Content.Digest, b.Content.Digest))
			})
		}
		o := content.Options{
			Artifact: t.File, Output: strings.ReplaceAll(p.Output, PlatformPlaceholder, strings.ReplaceAll(t.Platform, "/", "-")),
			Place: p.Store.Place(), Sources: p.Sources, Signing: p.Signing, TempDir: p.TempDir, Deltas: deltas[t.Platform],
		}
		before := contentOf(o.Output)
		r, err := content.Take(ctx, o)
		if err != nil {
			return list, err
		}
		list = append(list, Published{
			Path: o.Output, Platform: t.Platform, Result: r, Deltas: counts[t.Platform], Unchanged: before != "" && before == contentOf(o.Output),
		})
	}
	return list, nil
}

// contentOf is the digest of an output that is a regular file; "" if it is none.
func contentOf(path string) digest.Digest {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	d, err := digest.OfFile(path)
	if err != nil {
		return ""
	}
	return d
}

// wait returns when all deltas are there.
func (p *Publication) wait(ctx context.Context) error {
	said := -1
	for {
		st, err := Look(ctx, p.Plan, p.Store)
		if err != nil {
			return err
		}
		if len(st.Lacking) == 0 {
			return nil
		}
		if p.Wait == 0 {
			d := st.Lacking[0]
			return &Error{
				Text: fmt.Sprintf("the store lacks %d of %s, such as that of %s over %s", len(st.Lacking), metered.Count(st.Deltas, "delta"), d.Key.To.URL, d.Key.From.URL),
				Hint: "app-gen fleet run makes them; --wait waits until others have",
			}
		}
		if st.There != said {
			said = st.There
			p.Tell(st)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(p.Wait):
		}
	}
}
