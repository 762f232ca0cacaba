package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/mender-app/mender-app/generator/gentest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"app-gen": main})
}

func TestScripts(t *testing.T) { runScripts(t, "testdata/script") }

// A newcomer's trial: the commands of a document, and what they print.
func TestNewcomer(t *testing.T) { runScripts(t, "../../testdata/newcomer") }

func runScripts(t *testing.T, dir string) {
	testscript.Run(t, testscript.Params{
		Dir: dir,
		Setup: func(e *testscript.Env) error {
			e.Values["images"] = map[string]v1.Image{}
			e.Setenv("DOCKER_CONFIG", e.WorkDir+"/docker")
			cache, err := os.MkdirTemp("", "app-gen-cache-")
			if err != nil {
				return err
			}
			e.Defer(func() { os.RemoveAll(cache) })
			e.Setenv("XDG_CACHE_HOME", cache)
			e.Setenv("DOCKER_HOST", "unix://"+e.WorkDir+"/none.sock")
			docs, err := filepath.Abs("../../docs")
			if err != nil {
				return err
			}
			e.Setenv("DOCS", docs)
			// Most scripts make one release many times, and --replace lets them.
			e.Setenv("BASE", "--replace --application-name shop --artifact-name shop-1 --device-type box --platform linux/amd64 --orchestrator docker-compose")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"image":    cmdImage,
			"archive":  cmdArchive,
			"layout":   cmdLayout,
			"registry": cmdRegistry,
			"push":     cmdPush,
			"need":     cmdNeed,
			"gen":      cmdGen,
			"fails":    cmdFails,
			"full":     cmdFull,
			"smaller":  cmdSmaller,
			"noise":    cmdNoise,
			"stopped":  cmdStopped,
			"pages":    cmdPages,
			"document": cmdDocument,
		},
	})
}

func images(ts *testscript.TestScript) map[string]v1.Image {
	return ts.Value("images").(map[string]v1.Image)
}

func tb(ts *testscript.TestScript) testing.TB { return scriptTB{ts: ts} }

// scriptTB lets gentest fail a script.
type scriptTB struct {
	testing.TB
	ts *testscript.TestScript
}

func (s scriptTB) Helper()                   {}
func (s scriptTB) Fatal(args ...any)         { s.ts.Fatalf("%v", args) }
func (s scriptTB) Fatalf(f string, a ...any) { s.ts.Fatalf(f, a...) }
func (s scriptTB) Cleanup(f func())          { s.ts.Defer(f) }

// image NAME PLATFORM LAYER…: a LAYER is FILE=CONTENT[,FILE=CONTENT]; content
// NxSEED is N bytes of text made from the seed, @FILE is that of the file.
func cmdImage(ts *testscript.TestScript, _ bool, args []string) {
	var layers []gentest.Files
	for _, l := range args[2:] {
		files := gentest.Files{}
		for _, f := range strings.Split(l, ",") {
			name, content, _ := strings.Cut(f, "=")
			if file, ok := strings.CutPrefix(content, "@"); ok {
				content = ts.ReadFile(file)
			} else if m := regexp.MustCompile(`^(\d+)x(.*)$`).FindStringSubmatch(content); m != nil {
				n := 0
				for _, c := range m[1] {
					n = n*10 + int(c-'0')
				}
				content = gentest.Text(m[2], n)
			}
			files[name] = content
		}
		layers = append(layers, files)
	}
	images(ts)[args[0]] = gentest.Image(tb(ts), args[1], layers...)
}

// archive FILE REF NAME [REF NAME]…
func cmdArchive(ts *testscript.TestScript, _ bool, args []string) {
	m := map[string]v1.Image{}
	for i := 1; i+1 < len(args); i += 2 {
		m[args[i]] = images(ts)[args[i+1]]
	}
	gentest.DockerArchive(tb(ts), ts.MkAbs(args[0]), m)
}

// layout DIR TAG NAME…
func cmdLayout(ts *testscript.TestScript, _ bool, args []string) {
	var list []v1.Image
	for _, n := range args[2:] {
		list = append(list, images(ts)[n])
	}
	gentest.Layout(tb(ts), ts.MkAbs(args[0]), args[1], gentest.Index(tb(ts), list...))
}

// registry VAR [USER PASSWORD]: VAR becomes its host:port.
func cmdRegistry(ts *testscript.TestScript, _ bool, args []string) {
	user, password := "", ""
	if len(args) == 3 {
		user, password = args[1], args[2]
	}
	ts.Setenv(args[0], gentest.Registry(tb(ts), user, password))
}

// push REF NAME…
func cmdPush(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) == 2 {
		gentest.Push(tb(ts), args[0], images(ts)[args[1]], "", "")
		return
	}
	var list []v1.Image
	for _, n := range args[1:] {
		list = append(list, images(ts)[n])
	}
	gentest.Push(tb(ts), args[0], gentest.Index(tb(ts), list...), "", "")
}

// need COMMAND: in CI, where nothing may skip, it must be there. Elsewhere the
// next line of the script skips.
func cmdNeed(ts *testscript.TestScript, _ bool, args []string) {
	if _, err := exec.LookPath(args[0]); err != nil && os.Getenv("CI") == "true" {
		ts.Fatalf("missing in CI: %s", args[0])
	}
}

// words replaces each argument @NAME by the words of the variable NAME.
func words(ts *testscript.TestScript, args []string) []string {
	var list []string
	for _, arg := range args {
		if name, ok := strings.CutPrefix(arg, "@"); ok {
			list = append(list, strings.Fields(ts.Getenv(name))...)
			continue
		}
		list = append(list, arg)
	}
	return list
}

// gen ARG…: app-gen with the usual options (BASE) and these; it must succeed.
func cmdGen(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("use fails")
	}
	ts.Check(ts.Exec("app-gen", words(ts, append([]string{"@BASE"}, args...))...))
}

// fails CODE ARG…: app-gen with these arguments exits with the code, says one
// line and perhaps a hint, nothing on stdout, and leaves no file.
func cmdFails(ts *testscript.TestScript, _ bool, args []string) {
	before := listing(ts)
	err := ts.Exec("app-gen", words(ts, args[1:])...)
	code := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if fmt.Sprint(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
	text := ts.ReadFile("stderr")
	if lines := strings.Split(strings.TrimSpace(text), "\n"); len(lines) > 2 || len(lines) == 2 && !strings.HasPrefix(lines[1], "  hint: ") {
		ts.Fatalf("more than an error and a hint:\n%s", text)
	}
	if out := ts.ReadFile("stdout"); out != "" {
		ts.Fatalf("stdout on an error:\n%s", out)
	}
	if after := listing(ts); after != before {
		ts.Fatalf("files left behind:\n%s\nbefore:\n%s", after, before)
	}
}

// full CODE ARG…: app-gen with these arguments on a disk where no file gets over
// 50 KiB exits with the code and says what to do.
func cmdFull(ts *testscript.TestScript, _ bool, args []string) {
	script := `trap "" XFSZ; ulimit -f 100; app-gen "$@"; code=$?; [ $code = ` + args[0] + ` ] || { echo "exit code $code" >&2; exit 1; }`
	ts.Check(ts.Exec("sh", append([]string{"-c", script, "sh"}, words(ts, args[1:])...)...))
	for _, want := range []string{": file too large", "\n  hint: temporary files need room"} {
		if text := ts.ReadFile("stderr"); !strings.Contains(text, want) {
			ts.Fatalf("stderr lacks %q:\n%s", want, text)
		}
	}
}

// noise FILE BYTES: content that takes time to encode.
func cmdNoise(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(len(args[0]))}).Read(b)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), b, 0o644))
}

// stopped PATTERN ARG…: app-gen with these arguments is interrupted as soon as a
// file of that pattern is there. It exits with 130 and leaves no file.
func cmdStopped(ts *testscript.TestScript, _ bool, args []string) {
	before := listing(ts)
	program := ""
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if p := filepath.Join(dir, "app-gen"); program == "" {
			if _, err := os.Stat(p); err == nil {
				program = p
			}
		}
	}
	cmd := exec.Command(program, args[1:]...)
	cmd.Dir = ts.Getenv("WORK")
	cmd.Env = append(os.Environ(), "PATH="+ts.Getenv("PATH"), "DOCKER_CONFIG="+ts.Getenv("DOCKER_CONFIG"))
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	ts.Check(cmd.Start())
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		if found, _ := filepath.Glob(filepath.Join(cmd.Dir, args[0])); len(found) > 0 {
			break
		}
		select {
		case err := <-done:
			ts.Fatalf("it ended before it could be interrupted: %v\n%s", err, out.String())
		case <-time.After(time.Millisecond):
		}
	}
	ts.Check(cmd.Process.Signal(os.Interrupt))
	<-done
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		ts.Fatalf("exit code %d\n%s", code, out.String())
	}
	if after := listing(ts); after != before {
		ts.Fatalf("files left behind:\n%s\nbefore:\n%s", after, before)
	}
}

// smaller FILE PERCENT FILE…: the file has at most that part of the bytes of the
// others together.
func cmdSmaller(ts *testscript.TestScript, _ bool, args []string) {
	percent, err := strconv.Atoi(args[1])
	ts.Check(err)
	have, others := len(ts.ReadFile(args[0])), 0
	for _, f := range args[2:] {
		others += len(ts.ReadFile(f))
	}
	if have*100 > others*percent {
		ts.Fatalf("%s has %d bytes, more than %d %% of %d", args[0], have, percent, others)
	}
}

func listing(ts *testscript.TestScript) string {
	out, err := exec.Command("find", ts.Getenv("WORK")).Output()
	ts.Check(err)
	return string(out)
}
