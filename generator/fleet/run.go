package fleet

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/scratch"
	"github.com/mender-app/mender-app/delta"
	"github.com/mender-app/mender-app/delta/encoder"
	"github.com/mender-app/mender-app/generator"
	"github.com/mender-app/mender-app/generator/bases"
	"github.com/mender-app/mender-app/generator/write"
)

// Event is what a run says: about one delta, or, of the type "end", about all.
type Event struct {
	Type     string `json:"type"` // "begin", "made", "there" or "end"
	Key      string `json:"key,omitempty"`
	Image    string `json:"image,omitempty"`
	Over     string `json:"over,omitempty"`
	Platform string `json:"platform,omitempty"`
	Bytes    int64  `json:"bytes,omitempty"`   // of the file that devices fetch
	Seconds  int64  `json:"seconds,omitempty"` // by the clock
	Done     int    `json:"done"`
	Of       int    `json:"of"`
}

// Run is one shard of the work.
type Run struct {
	Plan     *Plan
	Store    *Store
	Releases []string // directories
	Shard    int      // from 1
	Shards   int
	TempDir  string // "" is that for temporary files
	Tell     func(Event)
}

// Do makes the deltas of the shard that are not in the store. What was made before an error
// stays there. Every delta is decoded before it is in the store, and its bytes do not depend
// on the shard.
func (r *Run) Do(ctx context.Context) error {
	of, _ := shares(r.Plan.Deltas, r.Shards)
	w := &worker{Run: r, all: len(of[r.Shard-1])}
	defer w.close()
	for _, i := range of[r.Shard-1] {
		if err := w.delta(ctx, &r.Plan.Deltas[i]); err != nil {
			return err
		}
	}
	r.Tell(Event{Type: "end", Done: w.done, Of: w.all})
	return nil
}

// worker makes deltas one after the other.
type worker struct {
	*Run
	done, all int
	temp      string
	chain     *bases.Chain
	known     []*bases.Known
}

func (w *worker) close() {
	if w.chain != nil {
		w.chain.Builder.Close()
	}
	if w.temp != "" {
		scratch.Remove(w.temp)
	}
}

func (w *worker) delta(ctx context.Context, d *Delta) error {
	e := Event{Key: d.Key.Hex(), Image: d.Key.To.URL, Over: d.Key.From.URL, Platform: d.Key.Platform, Done: w.done, Of: w.all}
	made, err := w.Store.Find(ctx, d.Key)
	if err != nil {
		return err
	}
	if made != nil && w.Store.Verify(ctx, made) == nil {
		w.done++
		e.Type, e.Bytes, e.Done = "there", made.Variant.Content.Size, w.done
		w.Tell(e)
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	e.Type = "begin"
	w.Tell(e)
	began := time.Now()
	made, err = w.make(ctx, d)
	if err != nil {
		return fmt.Errorf("%s over %s: %w", d.Key.To.URL, d.Key.From.URL, err)
	}
	w.done++
	e.Type, e.Bytes, e.Seconds, e.Done = "made", made.Variant.Content.Size, int64(time.Since(began).Seconds()), w.done
	w.Tell(e)
	return nil
}

// open reads the headers of the releases, once.
func (w *worker) open(ctx context.Context) (err error) {
	if w.temp != "" {
		return nil
	}
	if w.temp, err = scratch.Dir(w.TempDir, scratch.HostPrefix); err != nil {
		return &write.Error{Err: err}
	}
	if w.chain, err = bases.NewChain(w.temp, func(string, string, int64, int64) {}); err != nil {
		return err
	}
	for _, dir := range w.Releases {
		known, err := bases.KnownIn(ctx, dir, func(string, error) {})
		if err != nil {
			return err
		}
		w.known = append(w.known, known...)
	}
	for _, k := range w.known {
		w.chain.Artifacts = append(w.chain.Artifacts, k.Path)
	}
	return nil
}

// image finds the content of an image in the releases.
func (w *worker) image(ctx context.Context, c Component, platform string) (*image.Image, error) {
	var failed error
	for _, k := range w.known {
		if k.Meta.Platform != platform || !slices.ContainsFunc(k.Meta.ImageComponents(), func(have artifact.Component) bool { return have.Digest == c.Digest }) {
			continue
		}
		img, err := w.chain.Image(ctx, k.Path, c.Digest)
		if err == nil {
			return img, nil
		}
		failed = errors.Join(failed, err)
	}
	if failed != nil {
		return nil, failed
	}
	return nil, &Error{Text: fmt.Sprintf("no release has %s (%s)", c.URL, c.Digest), Hint: "name the releases that the plan was made with"}
}

// make makes a delta and puts it into the store.
func (w *worker) make(ctx context.Context, d *Delta) (*Made, error) {
	if err := w.open(ctx); err != nil {
		return nil, err
	}
	k := d.Key
	to, err := w.image(ctx, k.To, k.Platform)
	if err != nil {
		return nil, err
	}
	var olds []delta.Image
	for _, c := range append([]Component{k.From}, k.With...) {
		img, err := w.image(ctx, c, k.Platform)
		if err != nil {
			return nil, err
		}
		olds = append(olds, bases.DeltaImage(c.URL, img))
	}
	path := filepath.Join(w.temp, "delta")
	report, err := encode(ctx, path, w.temp, olds, bases.DeltaImage(k.To.URL, to))
	defer os.Remove(path)
	if err != nil {
		return nil, err
	}
	made := &Made{Key: k, Variant: generator.DescribeDelta(report, int64(len(to.Config)))}
	made.Variant.Bases = []artifact.Base{{URL: k.From.URL, Digest: k.From.Digest}}
	file := filepath.Join(w.temp, "content")
	defer os.Remove(file)
	if made.Variant.Content, err = wrap(file, path, k.To, report.Size); err != nil {
		return nil, err
	}
	return made, w.Store.keep(ctx, made, file)
}

// encode makes a delta. The encoder decodes what it made, and compares it.
func encode(ctx context.Context, path, temp string, olds []delta.Image, next delta.Image) (*encoder.Report, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, &write.Error{Err: err}
	}
	report, err := encoder.Encode(ctx, f, olds, next, encoder.Options{TempDir: temp, Effort: encoder.Standard})
	if cerr := f.Close(); err == nil && cerr != nil {
		err = &write.Error{Err: cerr}
	}
	return report, err
}

// wrap makes the file that devices fetch of a delta.
func wrap(path, deltaPath string, to Component, size int64) (*artifact.Content, error) {
	d, err := os.Open(deltaPath)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	f, err := os.Create(path)
	if err != nil {
		return nil, &write.Error{Err: err}
	}
	defer f.Close()
	sum := sha256.New()
	w := artifact.NewImagesWriter(io.MultiWriter(f, sum))
	err = w.Add(artifact.ImageInfo{
		Digest: to.Digest, URLNew: to.URL, URLCurrent: to.URL, SumNew: to.Digest, SumCurrent: to.Digest, Kind: artifact.KindDelta, Variant: 1,
	}, size, d)
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return &artifact.Content{Digest: digest.OfHash(sum), Size: info.Size()}, nil
}

// Status is how much of a plan is in a store.
type Status struct {
	Deltas  int   `json:"deltas"` // to be made for the plan
	There   int   `json:"there"`
	Bytes   int64 `json:"bytes"`   // of those that are there
	CPULeft int64 `json:"cpu_ms"`  // about what the others take
	Devices int64 `json:"devices"` // whose delta is not there; each counts for each of its images
	// Lacking are those that are not there.
	Lacking []Delta `json:"lacking,omitempty"`
}

// Look finds out how much of a plan is in a store. It reads no delta.
func Look(ctx context.Context, p *Plan, s *Store) (*Status, error) {
	st := &Status{}
	for _, d := range p.Deltas {
		if d.There == "release" {
			continue
		}
		st.Deltas++
		m, err := s.Find(ctx, d.Key)
		if err != nil {
			return nil, err
		}
		if m == nil {
			st.CPULeft, st.Devices, st.Lacking = st.CPULeft+d.CPU, st.Devices+d.Devices, append(st.Lacking, d)
			continue
		}
		st.There, st.Bytes = st.There+1, st.Bytes+m.Variant.Content.Size
	}
	return st, nil
}

// Metrics writes a status in the text format of Prometheus.
func (s *Status) Metrics(w io.Writer, release string) error {
	_, err := fmt.Fprintf(w, `# HELP app_gen_fleet_deltas Deltas that the plan has.
# TYPE app_gen_fleet_deltas gauge
app_gen_fleet_deltas{release=%[1]q} %[2]d
# HELP app_gen_fleet_deltas_made Deltas that are in the store.
# TYPE app_gen_fleet_deltas_made gauge
app_gen_fleet_deltas_made{release=%[1]q} %[3]d
# HELP app_gen_fleet_bytes_made Bytes of the deltas that are in the store.
# TYPE app_gen_fleet_bytes_made gauge
app_gen_fleet_bytes_made{release=%[1]q} %[4]d
# HELP app_gen_fleet_cpu_seconds_left About the processor time that the other deltas take.
# TYPE app_gen_fleet_cpu_seconds_left gauge
app_gen_fleet_cpu_seconds_left{release=%[1]q} %[5]g
`, release, s.Deltas, s.There, s.Bytes, float64(s.CPULeft)/1000)
	return err
}
