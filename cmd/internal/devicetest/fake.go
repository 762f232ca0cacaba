// Package devicetest lets a test binary act as the programs of a device: app,
// mender-app, and a sub-module "fake" that follows instructions in a file. Only tests
// may import it.
package devicetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/submodules"
)

// Fake is the main function of the sub-module. It keeps its files in the
// directory that MENDER_APP_CONFIG_DIR names:
//
//	behave       lines "VERB fail|kill|kill-caller|hang|term-caller|stubborn|unhealthy|nospace": what a verb does instead
//	calls        the verbs called, one a line, with their arguments
//	stubborn     the number of a process that ignores TERM
//	features     the features it announces, if not the usual ones
//	engine       the version of the engine; 20.10.24 without the file
//	services     what STATUS says of the services, a JSON list; one service without the file
//	logs         what LOGS prints, lines of JSON; with the option follow what is added too
//	volumes      the volumes of each application, one a line; their content is in data/APP-NAME
//	images/      the components that are loaded, APP-DIGEST
//	running/     APP: what runs, the compose file and the components' digests
func Fake() {
	f := fake{dir: os.Getenv(submodules.EnvConfigDir)}
	if f.dir == "" {
		fmt.Fprintln(os.Stderr, "error: MENDER_APP_CONFIG_DIR is not set")
		os.Exit(1)
	}
	args := os.Args[1:]
	f.record(args)
	if code := f.behave(args); code >= 0 {
		os.Exit(code)
	}
	os.Exit(submodules.Main(f, "fake", "1", args))
}

type fake struct{ dir string }

func (f fake) record(args []string) {
	out, err := os.OpenFile(filepath.Join(f.dir, "calls"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return
	}
	defer out.Close()
	_, _ = io.WriteString(out, strings.Join(args, " ")+"\n")
}

// behave does what the test asked for; -1 means to do the verb's usual work.
func (f fake) behave(args []string) int {
	data, err := os.ReadFile(filepath.Join(f.dir, "behave"))
	if err != nil || len(args) == 0 {
		return -1
	}
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != args[0] {
			continue
		}
		switch words[1] {
		case "fail":
			fmt.Fprintln(os.Stderr, "error: told to fail")
			return submodules.CodeFailed
		case "unhealthy":
			fmt.Fprintln(os.Stderr, "error: service web exited with 3")
			return submodules.CodeUnhealthy
		case "nospace":
			fmt.Fprintln(os.Stderr, "error: no space left on device")
			return submodules.CodeSpace
		case "kill":
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		case "kill-caller":
			_ = syscall.Kill(os.Getppid(), syscall.SIGKILL)
			return 0
		case "stubborn":
			signal.Ignore(syscall.SIGTERM)
			_ = os.WriteFile(filepath.Join(f.dir, "stubborn"), fmt.Append(nil, os.Getpid()), 0o644)
			_ = syscall.Kill(os.Getppid(), syscall.SIGTERM)
			time.Sleep(time.Hour)
		case "term-caller":
			_ = syscall.Kill(os.Getppid(), syscall.SIGTERM)
			time.Sleep(time.Hour)
		case "hang":
			time.Sleep(time.Hour)
		}
	}
	return -1
}

func (f fake) Features() []string {
	if data, err := os.ReadFile(filepath.Join(f.dir, "features")); err == nil {
		return strings.Fields(string(data))
	}
	return []string{
		submodules.FeatureStream, submodules.FeatureStage, submodules.FeatureComponents,
		submodules.FeatureVerify, submodules.FeatureSync, submodules.FeatureRepair, submodules.FeatureEngine, submodules.FeatureSecrets, submodules.FeatureStatus,
		submodules.FeatureLogs, submodules.FeatureCheck, submodules.FeatureServices, submodules.FeatureDowntime, submodules.FeatureOverrides, submodules.FeatureValues,
	}
}

func (f fake) Open(_ context.Context, _ string, r submodules.Request) (submodules.Session, error) {
	return call{f, r}, nil
}

// call is one call of the sub-module.
type call struct {
	fake
	req submodules.Request
}

func (call) Close() error { return nil }

func (f call) Engine(_ context.Context, _ submodules.Request) (submodules.Engine, error) {
	version := "20.10.24"
	if data, err := os.ReadFile(filepath.Join(f.dir, "engine")); err == nil {
		version = strings.TrimSpace(string(data))
	}
	return submodules.Engine{Name: "fake-engine", Version: version, Compose: "2.26.1-4"}, nil
}

func (f fake) image(app string, d digest.Digest) string {
	return filepath.Join(f.dir, "images", app+"-"+d.Hex())
}

func (f call) Load(_ context.Context, r submodules.LoadRequest) error {
	var content []byte
	var err error
	if r.Path == "-" {
		content, err = io.ReadAll(r.Stdin)
	} else {
		content, err = os.ReadFile(r.Path)
	}
	if err != nil {
		return err
	}
	if c, ok := f.req.Component(r.URL); ok && r.Path == os.DevNull {
		_, err := os.Stat(f.image(f.req.App, c.Digest)) // another name for the same image
		return err
	}
	got := digest.Of(content)
	if c, ok := f.req.Component(r.URL); ok && c.Digest != "" && c.Digest != got {
		return submodules.Mark(fmt.Errorf("%s is %s, not %s", r.URL, got, c.Digest), submodules.ErrContent)
	}
	if err := os.MkdirAll(filepath.Join(f.dir, "images"), 0o755); err != nil {
		return err
	}
	return os.WriteFile(f.image(f.req.App, got), content, 0o644)
}

func (f call) List(_ context.Context, _ submodules.Request) (list []submodules.Component, err error) {
	files, err := filepath.Glob(f.image(f.req.App, "*"))
	for _, file := range files {
		d, err := digest.FromHex(strings.TrimPrefix(filepath.Base(file), f.req.App+"-"))
		if err != nil {
			continue // it belongs to an application whose name begins with this one's
		}
		list = append(list, submodules.Component{Type: "image", Digest: d})
	}
	return list, err
}

func (f call) Delete(_ context.Context, r submodules.DeleteRequest) error {
	if len(f.req.Components) != 1 {
		return nil // other names still need it
	}
	if err := os.Remove(f.image(f.req.App, f.req.Components[0].Digest)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func (f fake) running(app string) string { return filepath.Join(f.dir, "running", app) }

// expanded is the text of a compose file with the values in it, as $NAME.
func expanded(compose []byte, r submodules.Request) string {
	text := strings.TrimSpace(string(compose)) + "\n"
	for name, v := range r.Values {
		text = strings.ReplaceAll(text, "$"+name, v)
	}
	return text
}

func (f fake) up(r submodules.Request) error {
	compose, err := os.ReadFile(filepath.Join(r.Dir, "compose.yaml"))
	if err != nil {
		return err
	}
	if err := f.makeVolumes(r.App); err != nil {
		return err
	}
	text := expanded(compose, r)
	var digests []string
	for _, c := range r.Components {
		if _, err := os.Stat(f.image(r.App, c.Digest)); err != nil {
			return submodules.Mark(fmt.Errorf("image %s is not there", c.URL), submodules.ErrNotFound)
		}
		digests = append(digests, c.URL+" "+c.Digest.String()+"\n")
	}
	slices.Sort(digests)
	if err := os.MkdirAll(filepath.Join(f.dir, "running"), 0o755); err != nil {
		return err
	}
	if len(r.Disabled) > 0 {
		digests = append(digests, "off "+strings.Join(r.Disabled, " ")+"\n")
	}
	for _, o := range r.Overrides {
		if strings.Contains(o.Text, "unfit") {
			return submodules.Mark(fmt.Errorf("override %s does not fit", o.Name), submodules.ErrContent)
		}
		text += o.Text + "\n"
	}
	if err := os.WriteFile(f.running(r.App), []byte(text+strings.Join(digests, "")), 0o644); err != nil {
		return err
	}
	r.Logf("service web is up")
	if strings.Contains(text, "sick") && !slices.Contains(r.Disabled, "web") {
		return submodules.Mark(errors.New("service web is unhealthy"), submodules.ErrUnhealthy)
	}
	return nil
}

func (f call) Rollout(_ context.Context, _ submodules.Request) error          { return f.up(f.req) }
func (f call) Rollback(_ context.Context, _ submodules.RollbackRequest) error { return f.up(f.req) }

// Downtimes are in the file downtimes.
func (f call) Downtimes(context.Context, bool) (list []submodules.Downtime) {
	if data, err := os.ReadFile(filepath.Join(f.dir, "downtimes")); err == nil {
		_ = json.Unmarshal(data, &list)
	}
	return list
}

func (f call) Purge(_ context.Context, r submodules.PurgeRequest) error {
	if err := os.Remove(f.running(f.req.App)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	files, err := filepath.Glob(f.image(f.req.App, "*"))
	for _, file := range files {
		err = errors.Join(err, os.Remove(file))
	}
	return err
}

func (f call) Alive(_ context.Context, _ submodules.Request) (bool, error) {
	_, err := os.Stat(f.running(f.req.App))
	return err == nil, nil
}

func (f call) Healthy(_ context.Context, _ submodules.Request) (bool, error) {
	text, err := os.ReadFile(f.running(f.req.App))
	return err == nil && !strings.Contains(string(text), "sick"), nil
}

func (f call) Status(ctx context.Context, _ submodules.Request) (st submodules.Status, err error) {
	st.Alive, _ = f.Alive(ctx, f.req)
	if st.Healthy, _ = f.Healthy(ctx, f.req); !st.Alive {
		return st, nil
	}
	data, err := os.ReadFile(filepath.Join(f.dir, "services"))
	if err == nil {
		return st, json.Unmarshal(data, &st.Services)
	}
	web := submodules.Service{Name: "web", Instance: f.req.App + "-web-1", Health: submodules.Healthy}
	if !st.Healthy {
		web.Health, web.Failure = submodules.Unhealthy, "is sick"
	}
	st.Services = []submodules.Service{web}
	return st, nil
}

func (f call) Logs(ctx context.Context, r submodules.LogsRequest, each func(submodules.LogLine) error) error {
	for done := 0; ; time.Sleep(20 * time.Millisecond) {
		data, err := os.ReadFile(filepath.Join(f.dir, "logs"))
		if err != nil {
			return submodules.Mark(errors.New("nothing is there"), submodules.ErrNotFound)
		}
		for line := range strings.Lines(string(data[done:])) {
			var l submodules.LogLine
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				return err
			}
			if err := each(l); err != nil {
				return err
			}
		}
		if done = len(data); !r.Follow || ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// Check refuses a compose file with the word "invalid". Its one service is web.
func (f call) Check(_ context.Context, _ submodules.Request) (c submodules.Changes, err error) {
	compose, err := os.ReadFile(filepath.Join(f.req.Dir, "compose.yaml"))
	if err != nil {
		return c, err
	}
	if strings.Contains(string(compose), "invalid") {
		return c, submodules.Mark(errors.New("compose.yaml is not valid"), submodules.ErrContent)
	}
	for _, o := range f.req.Overrides {
		if strings.Contains(o.Text, "unfit") || strings.Contains(o.Text, "one") && !strings.Contains(string(compose), "one") {
			return c, submodules.Mark(fmt.Errorf("override %s does not fit", o.Name), submodules.ErrContent)
		}
	}
	switch runs, err := os.ReadFile(f.running(f.req.App)); {
	case err != nil:
		c.Starts = []string{"web"}
	case strings.HasPrefix(string(runs), expanded(compose, f.req)):
		c.Keeps = []string{"web"}
	default:
		c.Restarts = []string{"web"}
	}
	return c, nil
}

// Render prints the compose file and the overrides, one after the other.
func (f call) Render(_ context.Context, _ submodules.Request) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(f.req.Dir, "compose.yaml"))
	for _, o := range f.req.Overrides {
		text = append(append(text, '\n'), o.Text...)
	}
	return text, err
}

func (f call) Verify(_ context.Context, _ submodules.Request) (problems []string, err error) {
	for _, c := range f.req.Components {
		content, err := os.ReadFile(f.image(f.req.App, c.Digest))
		if err != nil || digest.Of(content) != c.Digest {
			problems = append(problems, c.URL+" is not whole")
		}
	}
	return problems, nil
}

func (f call) Reqs(_ context.Context, r submodules.ReqsRequest) ([]submodules.Requirement, error) {
	var list []submodules.Requirement
	if data, err := os.ReadFile(filepath.Join(f.dir, "reqs")); err == nil {
		for _, word := range strings.Fields(string(data)) {
			list = append(list, submodules.Requirement{Command: word})
		}
	}
	return list, nil
}

// Repair takes undamaged components from r.Source, as a sub-module does.
func (f call) Repair(_ context.Context, r submodules.RepairRequest) (apps []string, err error) {
	sources := map[digest.Digest][]byte{}
	if r.Source != "" {
		files, err := filepath.Glob(filepath.Join(r.Source, "*"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			sources[digest.Of(content)] = content
		}
	}
	for _, c := range f.req.Components {
		content, err := os.ReadFile(f.image(f.req.App, c.Digest))
		if err == nil && digest.Of(content) == c.Digest {
			continue
		}
		if sources[c.Digest] == nil {
			return nil, submodules.Mark(fmt.Errorf("%s cannot be repaired", c.URL), submodules.ErrContent)
		}
		if err := os.WriteFile(f.image(f.req.App, c.Digest), sources[c.Digest], 0o644); err != nil {
			return nil, err
		}
		apps = []string{f.req.App}
	}
	return apps, nil
}

// Restore records that it was called.
func (f call) Restore(_ context.Context, _ submodules.Request) error {
	return os.WriteFile(filepath.Join(f.dir, "restored-"+f.req.App), nil, 0o644)
}

func (f call) Storage(_ context.Context, _ submodules.Request) ([]string, error) {
	return []string{f.dir}, nil
}

func (f call) Sync(_ context.Context, _ submodules.Request) error { return nil }
func (f call) Stop(_ context.Context, r submodules.StopRequest) error {
	if err := os.Remove(f.running(f.req.App)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
func (f call) Start(_ context.Context, _ submodules.Request) error { return f.up(f.req) }

func (f call) Save(_ context.Context, r submodules.SaveRequest) error {
	content, err := os.ReadFile(f.image(f.req.App, f.req.Components[0].Digest))
	if err != nil {
		return submodules.Mark(err, submodules.ErrNotFound)
	}
	return os.WriteFile(r.Path, content, 0o600)
}

// Volumes are made by ROLLOUT, START, or with the option make.
func (f call) Volumes(_ context.Context, r submodules.VolumesRequest) (list []submodules.Volume, err error) {
	if r.Make {
		if err := f.makeVolumes(f.req.App); err != nil {
			return nil, err
		}
	}
	for _, name := range f.volumes() {
		v := submodules.Volume{Name: name, Dir: f.volume(f.req.App, name)}
		if _, err := os.Stat(v.Dir); err != nil {
			v.Dir = ""
		}
		list = append(list, v)
	}
	return list, nil
}

func (f fake) volumes() []string {
	data, _ := os.ReadFile(filepath.Join(f.dir, "volumes"))
	return strings.Fields(string(data))
}

func (f fake) volume(app, name string) string { return filepath.Join(f.dir, "data", app+"-"+name) }

func (f fake) makeVolumes(app string) error {
	for _, name := range f.volumes() {
		if err := os.MkdirAll(f.volume(app, name), 0o755); err != nil {
			return err
		}
	}
	return nil
}

func (f call) ExportManifest(_ context.Context, _ submodules.Request) error {
	return errors.New("not here")
}
