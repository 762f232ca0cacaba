package devicetest

import (
	"bytes"
	"crypto"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/digest"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/artifact/statement"
	"github.com/mender-app/mender-app/cmd/internal/updatemodule"
	"github.com/mender-app/mender-app/modules/policy"
	_ "github.com/mender-app/mender-app/store/durable/faults" // tests kill the programs that the test binary is
)

// Main is a test's main function: the test binary acts as app, fake and the given
// programs.
func Main(m *testing.M, programs map[string]func()) {
	all := map[string]func(){
		"app":  func() { os.Exit(updatemodule.Run(os.Args[1:], os.Stdout, os.Stderr)) },
		"fake": Fake,
	}
	maps.Copy(all, programs)
	testscript.Main(m, all)
}

// Run runs the scripts in dir, each on a device of its own: $WORK/store,
// $WORK/app.conf, and the sub-module fake with its files in $WORK/fake. The
// command "artifact FILE NAME APP COMPOSE URL=CONTENT..." makes an artifact;
// "tree DIR FILE" unpacks one into a module's file tree.
func Run(t *testing.T, dir string) {
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               setup,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"artifact": makeArtifact,
			"tree":     makeTree,
			"damage":   damage,
		},
	})
}

func setup(env *testscript.Env) error {
	work := env.WorkDir
	for _, dir := range []string{"fake", "sub", "tmp"} {
		if err := os.MkdirAll(filepath.Join(work, dir), 0o755); err != nil {
			return err
		}
	}
	fake, err := lookPath(env, "fake")
	if err != nil {
		return err
	}
	app, err := lookPath(env, "app")
	if err != nil {
		return err
	}
	if err := os.Symlink(fake, filepath.Join(work, "sub", "fake")); err != nil {
		return err
	}
	for name, content := range map[string]string{
		"device_type": "device_type=board\n",
		"app.conf": fmt.Sprintf("persistent_store = %q\napp_modules_dir = %q\nupdate_module = %q\ndevice_type_file = %q\nmender_conf = %q\nplatform = \"linux/amd64\"\ndata_root = \"/\"\nallow_unsigned = true\nos_release_file = %q\nartifact_info_file = %q\n",
			filepath.Join(work, "store"), filepath.Join(work, "sub"), app, filepath.Join(work, "device_type"), filepath.Join(work, "mender.conf"),
			filepath.Join(work, "os-release"), filepath.Join(work, "artifact_info")),
	} {
		if err := os.WriteFile(filepath.Join(work, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	env.Setenv("MENDER_APP_CONFIG", filepath.Join(work, "app.conf"))
	env.Setenv("MENDER_APP_CONFIG_DIR", filepath.Join(work, "fake"))
	env.Setenv("TMPDIR", filepath.Join(work, "tmp"))
	// The device has no Mender client, even if this machine has one: only these
	// tools are on its PATH.
	bin := filepath.Join(work, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		return err
	}
	for _, tool := range []string{"sh", "sed", "grep", "cut", "cat"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			return err
		}
		if err := os.Symlink(path, filepath.Join(bin, tool)); err != nil {
			return err
		}
	}
	env.Setenv("PATH", filepath.Dir(app)+":"+bin)
	return nil
}

func lookPath(env *testscript.Env, name string) (string, error) {
	for _, dir := range filepath.SplitList(env.Getenv("PATH")) {
		if path := filepath.Join(dir, name); isExecutable(path) {
			return path, nil
		}
	}
	return "", &exec.Error{Name: name, Err: exec.ErrNotFound}
}

func isExecutable(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0
}

// Artifact describes an artifact of these tests.
type Artifact struct {
	Name, App, Compose string
	Images             []string // URL=CONTENT
	Orchestrator       string   // default fake
	Platform           string   // default linux/amd64
	DeviceType         string   // default board
	Depends            map[string][]string
	Reboot             bool
	Key                crypto.Signer // signs it, and a statement; nil leaves it unsigned
	Policy             string        // app.toml
	Type               string        // of the components; "": images
}

// Write makes the artifact.
func (a Artifact) Write(path string) error {
	orchestrator, platform, deviceType := "fake", "linux/amd64", "board"
	for _, f := range []struct{ to, from *string }{{&orchestrator, &a.Orchestrator}, {&platform, &a.Platform}, {&deviceType, &a.DeviceType}} {
		if *f.from != "" {
			*f.to = *f.from
		}
	}
	m := &artifact.Metadata{
		Version: artifact.VersionCurrent, ApplicationName: a.App, Orchestrator: orchestrator, Platform: platform,
		Reboot:             a.Reboot,
		ApplicationVersion: strings.TrimPrefix(a.Name, a.App+"-"), Sizes: &artifact.Sizes{Engine: 1 << 10, Temp: 1 << 10},
	}
	if a.Policy != "" {
		p, err := policy.ParseTOML([]byte(a.Policy), a.App)
		if err != nil {
			return err
		}
		if m.Policy, err = p.Encode(); err != nil {
			return err
		}
		m.Requires = append(m.Requires, artifact.FeaturePolicy)
	}
	if a.Type != "" {
		m.Requires = append(m.Requires, artifact.FeatureFiles)
	}
	var images, manifests bytes.Buffer
	iw := artifact.NewImagesWriter(&images)
	for _, spec := range a.Images {
		url, content, _ := strings.Cut(spec, "=")
		d := digest.Of([]byte(content))
		if !slices.Contains(m.Images, d.Hex()) {
			m.Images = append(m.Images, d.Hex())
		}
		m.Components = append(m.Components, artifact.Component{
			URL: url, Type: artifact.ComponentImage, Digest: d, Platform: platform, ConfigSize: 10,
			Format: artifact.FormatFull, PayloadBytes: int64(len(content)),
			Layers: []artifact.Layer{{DiffID: d, Size: 10, Encoding: artifact.EncodingVerbatim, Bytes: 10}},
		})
		if a.Type != "" {
			c := &m.Components[len(m.Components)-1]
			c.Type, c.Size, c.ConfigSize, c.Layers = a.Type, int64(len(content)), 0, nil
		}
		info := artifact.ImageInfo{
			Digest: d, URLNew: url, URLCurrent: url, SumNew: d, SumCurrent: d, Kind: artifact.KindFull, Size: int64(len(content)),
		}
		if err := iw.Add(info, int64(len(content)), strings.NewReader(content)); err != nil {
			return err
		}
	}
	if err := iw.Close(); err != nil {
		return err
	}
	size, err := artifact.WriteManifests(&manifests, fstest.MapFS{"compose.yaml": {Data: []byte(a.Compose + "\n")}})
	if err != nil {
		return err
	}
	m.Sizes.ImagesPayload, m.Sizes.ManifestsPayload, m.Sizes.Manifests = iw.UnpackedSize(), size.Payload, size.Files
	slices.Sort(m.Images)
	key := "data-partition." + a.App
	open := func(b []byte) func() (io.ReadCloser, error) {
		return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }
	}
	spec := mender.Spec{
		Name: a.Name, DeviceTypes: []string{deviceType}, PayloadType: mender.PayloadTypeApp,
		Provides:       map[string]string{key + ".version": strings.TrimPrefix(a.Name, a.App+"-")},
		ClearsProvides: []string{key + ".*"}, Depends: a.Depends,
		Files: []mender.File{
			{Name: artifact.ImagesPayload, Size: int64(images.Len()), Open: open(images.Bytes())},
			{Name: artifact.ManifestsPayload, Size: int64(manifests.Len()), Open: open(manifests.Bytes())},
		},
	}
	if a.Key != nil {
		m.Requires = append(m.Requires, artifact.FeatureReach)
	}
	about := statement.Of(m, size.Digest)
	about.Reach = statement.ReachToWrite(&spec)
	if m.Statement, err = statement.Sign(about, mender.Options{Key: a.Key}); err != nil {
		return err
	}
	if spec.MetaData, err = m.Encode(); err != nil {
		return err
	}
	var out bytes.Buffer
	if err := mender.Write(&out, spec, mender.Options{Key: a.Key}); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}

// makeArtifact: artifact [-orchestrator=O] [-platform=P] [-device=D]
// [-depends=K:V] [-policy=FILE] [-type=T] [-reboot] FILE NAME APP COMPOSE URL=CONTENT...
func makeArtifact(ts *testscript.TestScript, neg bool, args []string) {
	var a Artifact
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		key, value, _ := strings.Cut(args[0], "=")
		switch key {
		case "-orchestrator":
			a.Orchestrator = value
		case "-platform":
			a.Platform = value
		case "-device":
			a.DeviceType = value
		case "-policy":
			a.Policy = ts.ReadFile(value)
		case "-type":
			a.Type = value
		case "-reboot":
			a.Reboot = true
		case "-depends":
			k, v, _ := strings.Cut(value, ":")
			a.Depends = map[string][]string{k: {v}}
		default:
			ts.Fatalf("artifact: unknown option %s", key)
		}
		args = args[1:]
	}
	if neg || len(args) < 4 {
		ts.Fatalf("usage: artifact [options] FILE NAME APP COMPOSE URL=CONTENT...")
	}
	a.Name, a.App, a.Compose, a.Images = args[1], args[2], args[3], args[4:]
	ts.Check(a.Write(ts.MkAbs(args[0])))
}

// makeTree: tree DIR FILE makes the file tree of an artifact. The payload is
// stored in files/, as a client does if the module does not read the stream.
func makeTree(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: tree DIR FILE")
	}
	ts.Check(WriteTree(ts.MkAbs(args[0]), ts.MkAbs(args[1])))
}

// WriteTree makes the file tree of an artifact in a file as makeTree does.
func WriteTree(dir, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := mender.NewReader(f, mender.ReadOptions{})
	if err != nil {
		return err
	}
	h := r.Header()
	for name, content := range map[string]string{
		"version": "3", "current_artifact_name": "", "current_device_type": "board",
		"header/artifact_name": h.Name, "header/payload_type": h.PayloadType,
		"header/meta-data": string(h.MetaData), "tmp/.keep": "", "files/.keep": "",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			return err
		}
		if filepath.Base(name) == ".keep" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	for {
		info, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		data, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "files", info.Name), data, 0o644); err != nil {
			return err
		}
	}
}

// damage: damage FILE truncate|flip|header changes a file in its middle, or the header
// of the second member if it is a tar of a short first one.
func damage(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: damage FILE truncate|flip|header")
	}
	path := ts.MkAbs(args[0])
	data, err := os.ReadFile(path)
	ts.Check(err)
	middle := len(data) - 2500
	switch args[1] {
	case "truncate":
		data = data[:middle]
	case "flip":
		data[middle] ^= 1
	case "header":
		data[2*512+16] ^= 1
	default:
		ts.Fatalf("damage: no %s", args[1])
	}
	ts.Check(os.WriteFile(path, data, 0o644))
}

// Device is a device for tests that are not scripts.
type Device struct {
	Dir string
	env []string
}

// NewDevice makes a device in dir, or adapts a device that was copied there to
// its new place.
func NewDevice(dir string) (*Device, error) {
	for _, path := range []string{"app.conf", "device_type", "sub", "bin"} {
		if err := os.RemoveAll(filepath.Join(dir, path)); err != nil {
			return nil, err
		}
	}
	env := &testscript.Env{WorkDir: dir, Vars: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}}
	if err := setup(env); err != nil {
		return nil, err
	}
	return &Device{Dir: dir, env: env.Vars}, nil
}

// Run runs a program on the device and returns what it printed.
func (d *Device) Run(env []string, name string, args ...string) (stdout, stderr string, err error) {
	cmd := d.Command(name, args...)
	cmd.Env = append(cmd.Env, env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// Command is a program on the device that has not been started.
func (d *Device) Command(name string, args ...string) *exec.Cmd {
	path := name
	for _, kv := range d.env {
		if list, ok := strings.CutPrefix(kv, "PATH="); ok {
			for _, dir := range filepath.SplitList(list) {
				if p := filepath.Join(dir, name); isExecutable(p) {
					path = p
					break
				}
			}
		}
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = d.Dir
	cmd.Env = slices.Clone(d.env)
	return cmd
}

// Running returns what the fake orchestrator runs for an application: the first
// line of its compose file, or "" if nothing runs.
func (d *Device) Running(app string) string {
	data, err := os.ReadFile(filepath.Join(d.Dir, "fake", "running", app))
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return line
}
