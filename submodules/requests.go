package submodules

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/mender-app/mender-app/artifact/output"
)

// Request is what every verb may need to know: which release of which application a
// call is about, and how this device sets the release up. A verb that needs more has a
// request of its own, which embeds this one. Both sides use the same types.
type Request struct {
	App string // the application; empty for REQS, ENGINE and PROTOCOL
	// Dir holds the manifests of the release; EXPORT_MANIFEST writes them there. Verbs
	// that do not read manifests ignore it.
	Dir        string
	Components []Component       // the components of the release, if known
	Platform   string            // platform of the metadata, such as linux/arm/v7
	Env        map[string]string // from the metadata; names outside the allow-list are an error

	Disabled  []string          // services that are switched off (FeatureServices)
	Overrides []Override        // in the order in which they are applied (FeatureOverrides)
	Values    map[string]string // values the manifests may use (FeatureValues)
	CPUSet    *CPUSet           // the processors reserved for services (FeatureCPUSet)

	TempDir string // private temporary directory of this call

	// Stdout takes the reply while it is written. nil on the caller's side: the call
	// returns the reply. On the sub-module's side it is set.
	Stdout io.Writer `json:"-"`
	// Log takes one line without its newline. On the caller's side nil means
	// Config.Log; on the sub-module's side it is set and writes to stderr.
	// Several goroutines may call it at once.
	Log func(line string) `json:"-"`
}

// LoadRequest is the request of LOAD.
type LoadRequest struct {
	Request
	URL        string    // the component; may end in @sha256:<hex>
	Path       string    // file with the content; "-" is Stdin (FeatureStream)
	CurrentURL string    // the component a delta starts from, if known
	Stdin      io.Reader `json:"-"`

	Stage     bool // keep the component under the application's own reference only (FeatureStage)
	Delta     bool // the content is a mender-app delta
	DeepDelta bool // the content is a deep delta, the shell reference's or ours
	Distrust  bool // verify a component that is present, and load it again if it is not whole
}

// SaveRequest is the request of SAVE.
type SaveRequest struct {
	Request
	URL  string // the component; may end in @sha256:<hex>
	Path string // file to write; "-" is Stdout
}

// DeleteRequest is the request of DELETE.
type DeleteRequest struct {
	Request
	URL string // the component; may end in @sha256:<hex>
}

// RollbackRequest is the request of ROLLBACK: Dir is the release to go back to.
type RollbackRequest struct {
	Request
	FailedDir string // manifests of the release that failed, if known
}

// StopRequest is the request of STOP.
type StopRequest struct {
	Request
	Remove bool // also remove the containers, so that nothing restarts them (FeatureData)
}

// PurgeRequest is the request of PURGE. Dir, which may be empty or gone, helps to find
// the application.
type PurgeRequest struct {
	Request
	Data  bool // also remove the application's data
	First bool // also remove the volumes that the first ROLLOUT of the release made
}

// RepairRequest is the request of REPAIR.
type RepairRequest struct {
	Request
	Work   string // the repair's own directory; see Client.Repair
	Source string // directory with contents to repair from, if there is one
	Finish bool   // only finish a repair that has begun
}

// ReqsRequest is the request of REQS.
type ReqsRequest struct {
	Request
	Secrets    bool     // make sure that encrypted secrets can be decrypted (FeatureSecrets)
	Recipients []string // the age recipients of the secrets, if known
}

// LogsRequest is the request of LOGS.
type LogsRequest struct {
	Request
	Service string // only this service; "": all
	Lines   *int   // lines of each instance, at most MaxLogLines; nil: DefaultLogLines
	Follow  bool   // go on with the lines that are written from now on
}

// VolumesRequest is the request of VOLUMES.
type VolumesRequest struct {
	Request
	Make bool // make the volumes that do not exist yet
}

// RunRequest is the request of RUN.
type RunRequest struct {
	Request
	Service    string
	Words      []string // the command
	OldVersion string   // version of the release that wrote the data
	NewVersion string   // version of the release that runs the command
	Probe      bool     // only make sure that the command could be run
}

// statusRequest is the request of STATUS.
type statusRequest struct {
	Request
	more []string // further applications (FeatureStatuses)
}

// AnyRequest is a pointer to a request of any verb.
type AnyRequest interface {
	// Common returns the part that all requests have.
	Common() *Request
	fields() fields
}

// fields say how the fields of a request travel. The caller's side reads what the
// pointers point to, the sub-module's side writes it.
type fields struct {
	args    map[string]any   // by the word of verbSpec.args: *string, or *[]string for a word that repeats
	options map[string]*bool // by the word of OPTIONS
	env     map[string]any   // by the name of the variable: *bool ("1"), *string, *[]string (words) or **int
	stdin   *io.Reader
}

// Common implements AnyRequest.
func (r *Request) Common() *Request { return r }

func (r *Request) fields() fields {
	return fields{args: map[string]any{"app": &r.App, "dir": &r.Dir}}
}

func (r *LoadRequest) fields() fields {
	return fields{
		args:    map[string]any{"app": &r.App, "url": &r.URL, "path": &r.Path, "current_url": &r.CurrentURL},
		options: map[string]*bool{OptionStage: &r.Stage, OptionDelta: &r.Delta, OptionDeepDelta: &r.DeepDelta, OptionDistrust: &r.Distrust},
		stdin:   &r.Stdin,
	}
}

func (r *SaveRequest) fields() fields {
	return fields{args: map[string]any{"app": &r.App, "url": &r.URL, "path": &r.Path}}
}

func (r *DeleteRequest) fields() fields {
	return fields{args: map[string]any{"app": &r.App, "url": &r.URL}}
}

func (r *RollbackRequest) fields() fields {
	return fields{args: map[string]any{"app": &r.App, "dir": &r.Dir, "failed_dir": &r.FailedDir}}
}

func (r *StopRequest) fields() fields {
	f := r.Request.fields()
	f.options = map[string]*bool{OptionRemove: &r.Remove}
	return f
}

func (r *PurgeRequest) fields() fields {
	f := r.Request.fields()
	f.options = map[string]*bool{OptionFirst: &r.First}
	f.env = map[string]any{EnvPurgeData: &r.Data}
	return f
}

func (r *RepairRequest) fields() fields {
	return fields{
		args:    map[string]any{"app": &r.App, "dir": &r.Work, "source": &r.Source},
		options: map[string]*bool{OptionFinish: &r.Finish},
	}
}

func (r *ReqsRequest) fields() fields {
	return fields{
		options: map[string]*bool{OptionSecrets: &r.Secrets},
		env:     map[string]any{EnvRecipients: &r.Recipients},
	}
}

func (r *LogsRequest) fields() fields {
	return fields{
		args:    map[string]any{"app": &r.App, "service": &r.Service},
		options: map[string]*bool{OptionFollow: &r.Follow},
		env:     map[string]any{EnvLogLines: &r.Lines},
	}
}

func (r *VolumesRequest) fields() fields {
	f := r.Request.fields()
	f.options = map[string]*bool{OptionMake: &r.Make}
	return f
}

func (r *RunRequest) fields() fields {
	return fields{
		args:    map[string]any{"app": &r.App, "dir": &r.Dir, "service": &r.Service, "word": &r.Words, "word…": &r.Words},
		options: map[string]*bool{OptionProbe: &r.Probe},
		env:     map[string]any{EnvOldVersion: &r.OldVersion, EnvNewVersion: &r.NewVersion},
	}
}

func (r *statusRequest) fields() fields {
	return fields{args: map[string]any{"app": &r.App, "app…": &r.more}}
}

// variables returns the variables of the request's own fields.
func (f fields) variables() map[string]string {
	set := map[string]string{}
	for name, field := range f.env {
		var value string
		switch field := field.(type) {
		case *bool:
			if *field {
				value = "1"
			}
		case *[]string:
			value = strings.Join(*field, " ")
		case **int:
			if *field != nil {
				value = strconv.Itoa(**field)
			}
		case *string:
			if !strings.ContainsRune(*field, 0) {
				value = *field
			}
		}
		if value != "" {
			set[name] = value
		}
	}
	return set
}

// setVariables sets the request's own fields from the environment of a sub-module.
func (f fields) setVariables(getenv func(string) string) error {
	for name, field := range f.env {
		value := getenv(name)
		switch field := field.(type) {
		case *bool:
			*field = value == "1"
		case *[]string:
			*field = strings.Fields(value)
		case *string:
			*field = value
		case **int:
			if value == "" {
				continue
			}
			n, err := strconv.Atoi(value)
			if err != nil || n < 0 || n > MaxLogLines {
				return fmt.Errorf("%s=%q is not a number from 0 to %d", name, value, MaxLogLines)
			}
			*field = &n
		}
	}
	return nil
}

// Logf formats a line for Log; without Log it does nothing.
func (r *Request) Logf(format string, args ...any) {
	if r.Log != nil {
		r.Log(fmt.Sprintf(format, args...))
	}
}

// Component returns the release's component with exactly this URL. If there is none
// and url ends in @sha256:<hex>, it returns the component with the URL before the @.
func (r *Request) Component(url string) (Component, bool) {
	for _, c := range r.Components {
		if c.URL == url {
			return c, true
		}
	}
	ref, want := SplitURL(url)
	if want == "" {
		return Component{}, false
	}
	for _, c := range r.Components {
		if c.URL == ref && c.Digest == want {
			return c, true
		}
	}
	return Component{}, false
}

// SaveTo writes the content that save writes to Path, or to Stdout for "-". A regular
// file appears when it is whole, and only its owner can read it; see package output for
// what else Path may be.
func (r *SaveRequest) SaveTo(ctx context.Context, save func(io.Writer) error) error {
	if r.Path == "-" {
		return save(r.Stdout)
	}
	return output.Write(ctx, r.Path, 0o600, save)
}
