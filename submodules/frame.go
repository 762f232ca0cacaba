package submodules

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/artifact/scratch"
	"github.com/mender-app/mender-app/artifact/similar"
)

// Orchestrator is what a sub-module must implement.
type Orchestrator interface {
	// Features returns what PROTOCOL announces.
	Features() []string
	// Open prepares one call of a verb: it reads the configuration and connects to
	// what the verb needs. Nothing changes yet.
	Open(ctx context.Context, verb string, r Request) (Session, error)
}

// Session is one call of a sub-module. It has the verbs of protocol 1.0, one method
// each, of which one is called, once. Every method is idempotent, returns soon after
// its context ends, and leaves no process behind. Errors marked with Mark become the
// exit codes of PROTOCOL.md.
//
// A verb that belongs to a feature is an interface of its own, such as Verifier. A
// Session has those of the features that Orchestrator announces.
type Session interface {
	Content
	Lifecycle
	Health
	// Close ends the connections.
	Close() error
}

// Content are the verbs for the components of an application.
type Content interface {
	Save(ctx context.Context, r SaveRequest) error
	Load(ctx context.Context, r LoadRequest) error
	List(ctx context.Context, r Request) ([]Component, error)
	Delete(ctx context.Context, r DeleteRequest) error
}

// Lifecycle are the verbs for its releases.
type Lifecycle interface {
	ExportManifest(ctx context.Context, r Request) error
	Rollout(ctx context.Context, r Request) error
	Rollback(ctx context.Context, r RollbackRequest) error
	Purge(ctx context.Context, r PurgeRequest) error
	Stop(ctx context.Context, r StopRequest) error
	Start(ctx context.Context, r Request) error
}

// Health are the verbs that only ask.
type Health interface {
	Alive(ctx context.Context, r Request) (bool, error)
	Healthy(ctx context.Context, r Request) (bool, error)
	Reqs(ctx context.Context, r ReqsRequest) ([]Requirement, error)
}

// Verifier is a Session with the feature verify.
type Verifier interface {
	// Verify returns one line for each component that is missing or not whole.
	Verify(ctx context.Context, r Request) ([]string, error)
}

// Syncer is a Session with the feature sync.
type Syncer interface {
	// Sync returns when everything that was loaded is durable.
	Sync(ctx context.Context, r Request) error
}

// Repairer is a Session with the feature repair.
type Repairer interface {
	// Repair returns the applications that have to be rolled out again.
	Repair(ctx context.Context, r RepairRequest) ([]string, error)
}

// Storage is a Session with the feature storage.
type Storage interface {
	// Storage returns the directories of this machine that components are in.
	Storage(ctx context.Context, r Request) ([]string, error)
}

// EngineTeller is a Session with the feature engine.
type EngineTeller interface {
	// Engine describes the program that runs the containers.
	Engine(ctx context.Context, r Request) (Engine, error)
}

// Restorer is a Session with the feature secrets.
type Restorer interface {
	// Restore decrypts secrets again, which a restart of the machine removed. It asks
	// no engine.
	Restore(ctx context.Context, r Request) error
}

// verbSpec describes a verb: its arguments and its purpose. The caller's side needs no
// more of a verb, so what the frame does is apart, in actions.
type verbSpec struct {
	name  string
	args  string // words; those in [] are optional
	about string
}

// action is the work of a verb.
type action struct {
	request func() AnyRequest // a new request of the verb's type
	run     func(ctx context.Context, s Session, r AnyRequest, out io.Writer) error
}

// requestOf is a pointer to the request type R.
type requestOf[R any] interface {
	*R
	AnyRequest
}

// errLacks is the error of an action whose method a Session does not have.
var errLacks = errors.New("this sub-module does not have the verb")

// with makes an action of a function that needs a Session which is an S.
func with[S, R any, P requestOf[R]](run func(ctx context.Context, s S, r R, out io.Writer) error) action {
	return action{
		request: func() AnyRequest { return P(new(R)) },
		run: func(ctx context.Context, session Session, r AnyRequest, out io.Writer) error {
			s, ok := session.(S)
			if !ok {
				return errLacks
			}
			return run(ctx, s, *r.(P), out)
		},
	}
}

// lacks is an action that only some sub-modules have. what says what the others cannot
// do.
func lacks(what string, a action) action {
	run := a.run
	a.run = func(ctx context.Context, s Session, r AnyRequest, out io.Writer) error {
		err := run(ctx, s, r, out)
		if err == errLacks {
			err = Mark(errors.New("this sub-module "+what), ErrUsage)
		}
		return err
	}
	return a
}

// do runs a verb that has no reply.
func do[S, R any, P requestOf[R]](f func(S, context.Context, R) error) action {
	return with[S, R, P](func(ctx context.Context, s S, r R, _ io.Writer) error { return f(s, ctx, r) })
}

// ask runs a verb whose reply is true or false.
func ask(f func(Session, context.Context, Request) (bool, error)) action {
	return with(func(ctx context.Context, s Session, r Request, out io.Writer) error {
		ok, err := f(s, ctx, r)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, ok)
		if !ok {
			return errFalse
		}
		return nil
	})
}

// printLines runs a verb whose reply is a list of lines.
func printLines[S, R any, P requestOf[R]](f func(S, context.Context, R) ([]string, error)) action {
	return with[S, R, P](func(ctx context.Context, s S, r R, out io.Writer) error {
		lines, err := f(s, ctx, r)
		if err != nil {
			return err
		}
		for _, l := range lines {
			fmt.Fprintln(out, l)
		}
		return nil
	})
}

// printJSON runs a verb whose reply is JSON.
func printJSON[S, R, T any, P requestOf[R]](f func(context.Context, S, R) (T, error)) action {
	return with[S, R, P](func(ctx context.Context, s S, r R, out io.Writer) error {
		v, err := f(ctx, s, r)
		if err != nil {
			return err
		}
		return json.NewEncoder(out).Encode(v)
	})
}

// list returns the components, never nil: no components are printed as [].
func list(ctx context.Context, s Session, r Request) ([]Component, error) {
	l, err := s.List(ctx, r)
	if l == nil {
		l = []Component{}
	}
	return l, err
}

// engine describes what runs the containers.
func engine(ctx context.Context, s EngineTeller, r Request) (Engine, error) { return s.Engine(ctx, r) }

// reqs prints the known requirements, even if one is missing.
func reqs(ctx context.Context, s Session, r ReqsRequest, out io.Writer) error {
	l, err := s.Reqs(ctx, r)
	for _, q := range l {
		kind := "error"
		if q.Warning {
			kind = "warning"
		}
		fmt.Fprintf(out, "%s:%s\n", q.Command, kind)
	}
	return err
}

// verify prints one line for each damaged component, and fails if there is one.
func verify(ctx context.Context, s Verifier, r Request, out io.Writer) error {
	lines, err := s.Verify(ctx, r)
	for _, l := range lines {
		fmt.Fprintln(out, l)
	}
	if err == nil && len(lines) > 0 {
		return fmt.Errorf("not whole: %s", lines[0])
	}
	return err
}

func verbs() []verbSpec {
	return []verbSpec{
		{VerbExportManifest, "app dir", "write the manifests of the installed application to dir"},
		{VerbSave, "app url path", "write a component to the file path (- is standard output)"},
		{VerbLoad, "app url path [current_url]", "load a component from the file path (- is standard input)"},
		{VerbList, "app", "list the application's components on this device, as JSON"},
		{VerbLsComponents, "app", "the same as LIST"},
		{VerbDelete, "url app", "remove the application's component, unless something else uses it"},
		{VerbRollout, "app dir", "start the release whose manifests are in dir; returns when it is healthy"},
		{VerbRollback, "app dir [failed_dir]", "go back to the release whose manifests are in dir"},
		{VerbPurge, "app [dir]", "remove everything the application owns but its data"},
		{VerbStop, "app dir", "stop the application"},
		{VerbStart, "app dir", "start the stopped application"},
		{VerbAlive, "app", "print true if everything the application should run is running, else false"},
		{VerbHealthy, "app", "print true if the application runs, passes its health checks and does not restart, else false"},
		{VerbReqs, "", "print the commands that it needs, as cmd:error or cmd:warning"},
		{VerbProtocol, "", "print the protocol version and the features, as JSON"},
		{VerbVerify, "app", "check that the components of the release are present and undamaged"},
		{VerbSync, "app", "return when everything loaded is durable"},
		{VerbRepair, "app dir [source]", "repair damaged components; print the applications to be rolled out again"},
		{VerbStorage, "app", "print the directories of this machine that contain components"},
		{VerbEngine, "", "print the name and version of the container engine, as JSON"},
		{VerbRestore, "app dir", "decrypt the application's secrets again after a reboot; needs no engine"},
		{VerbStatus, "app [app…]", "print the state of the application and of each service, as JSON"},
		{VerbLogs, "app [service]", "print the services' output, as lines of JSON"},
		{VerbCheck, "app dir", "check the release in dir as ROLLOUT would, and print what would change, as JSON"},
		{VerbRender, "app dir", "print the manifests in dir with the overrides applied"},
		{VerbVolumes, "app dir", "print the volumes of the release in dir and their directories, as JSON"},
		{VerbRun, "app dir service word [word…]", "run a command once in a container of a service of the release in dir"},
	}
}

// actions are the work of each verb but PROTOCOL, which asks no Session.
func actions() map[string]action {
	return map[string]action{
		VerbExportManifest: do(Session.ExportManifest),
		VerbSave:           do(Session.Save),
		VerbLoad:           do(Session.Load),
		VerbList:           printJSON(list),
		VerbLsComponents:   printJSON(list),
		VerbDelete:         do(Session.Delete),
		VerbRollout:        timed(do(Session.Rollout)),
		VerbRollback:       timed(do(Session.Rollback)),
		VerbPurge:          do(Session.Purge),
		VerbStop:           do(Session.Stop),
		VerbStart:          do(Session.Start),
		VerbAlive:          ask(Session.Alive),
		VerbHealthy:        ask(Session.Healthy),
		VerbReqs:           with(reqs),
		VerbVerify:         lacks("cannot verify", with(verify)),
		VerbSync:           lacks("cannot sync", do(Syncer.Sync)),
		VerbRepair:         lacks("cannot repair", printLines(Repairer.Repair)),
		VerbStorage:        lacks("cannot name its directories", printLines(Storage.Storage)),
		VerbEngine:         lacks("cannot name its engine", printJSON(engine)),
		VerbRestore:        lacks("has no secrets", do(Restorer.Restore)),
		VerbStatus:         lacks("cannot tell", printJSON(statusOf)),
		VerbLogs:           lacks("has no logs", with(logs)),
		VerbCheck:          lacks("cannot check", printJSON(check)),
		VerbRender:         lacks("has no overrides", with(render)),
		VerbVolumes:        lacks("cannot name volumes", printJSON(volumes)),
		VerbRun:            lacks("cannot run commands", do(CommandRunner.Run)),
	}
}

// optional are the verbs that --help lists only for a sub-module with a feature, and
// its name.
var optional = map[string]string{VerbStatus: FeatureStatus, VerbLogs: FeatureLogs, VerbCheck: FeatureCheck, VerbRender: FeatureOverrides, VerbVolumes: FeatureData, VerbRun: FeatureRun}

// features returns the sub-module's features and those that this frame adds.
func (f frame) features() []string {
	list := append([]string{}, f.o.Features()...)
	if slices.Contains(list, FeatureStatus) {
		list = append(list, FeatureStatuses)
	}
	return list
}

// has reports whether the sub-module has a verb.
func (f frame) has(v verbSpec) bool {
	feature := optional[v.name]
	return feature == "" || slices.Contains(f.o.Features(), feature)
}

// errFalse is the answer false: exit code 1 and no error line.
var errFalse = errors.New("false")

// Main runs a sub-module: one verb, from the arguments without the program's
// name. It returns the exit code. TERM, INT and HUP end the verb's context; the
// verb then has to return within seconds.
func Main(o Orchestrator, name, version string, args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer stop()
	// When the caller is killed, a write to its pipes raises SIGPIPE. Unhandled,
	// the signal would end this process at once and leave its children behind;
	// handled, the write fails and the verb can still end them.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return frame{o: o, name: name, version: version, in: os.Stdin, out: os.Stdout, err: os.Stderr, getenv: os.Getenv}.main(ctx, args)
}

// frame is Main with its surroundings named.
type frame struct {
	o             Orchestrator
	name, version string
	in            io.Reader
	out, err      io.Writer
	getenv        func(string) string
}

func (f frame) main(ctx context.Context, args []string) int {
	err := f.dispatch(ctx, args)
	if err == nil {
		return CodeDone
	}
	if errors.Is(err, errFalse) {
		return CodeFailed
	}
	f.line("error: " + strings.Join(strings.Fields(strings.ReplaceAll(err.Error(), "\n", " ")), " "))
	return exitCode(ctx, err)
}

// exitCode is the one place where an error becomes an exit code.
func exitCode(ctx context.Context, err error) int {
	if errors.Is(err, ErrDeadline) {
		return CodeDeadline
	}
	if errors.Is(err, syscall.ENOSPC) {
		return CodeSpace
	}
	for _, c := range codes {
		if c.err != ErrFailed && errors.Is(err, c.err) {
			return c.code
		}
	}
	if ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return CodeDeadline
	}
	return CodeFailed
}

// line writes one whole line in one write: the Mender client 3.4.0 logs one
// entry a write.
func (f frame) line(s string) { _, _ = io.WriteString(f.err, s+"\n") }

func (f frame) dispatch(ctx context.Context, args []string) error {
	if len(args) == 0 {
		f.usage(f.err)
		return Mark(errors.New("a verb is missing"), ErrUsage)
	}
	switch args[0] {
	case "-h", "--help", "help":
		f.usage(f.out)
		return nil
	case "-V", "--version", "version":
		fmt.Fprintln(f.out, f.name, f.version) // PROTOCOL prints the protocol's version
		return nil
	case "completion":
		return f.completion()
	}
	var spec *verbSpec
	var known []string
	for _, v := range verbs() {
		known = append(known, v.name)
		if v.name == args[0] {
			spec = &v
			break
		}
	}
	if spec == nil {
		hint := "see " + f.name + " --help"
		if meant := similar.Meant(args[0], known); meant != "" {
			hint = meant
		}
		return Mark(fmt.Errorf("unknown verb %q; %s", args[0], hint), ErrUsage)
	}
	args = args[1:]
	for _, a := range args {
		if spec.name == VerbRun && len(args) > 3 { // it may belong to the command
			break
		}
		if a == "-h" || a == "--help" {
			f.verbUsage(*spec)
			return nil
		}
	}
	if spec.name == VerbProtocol {
		return json.NewEncoder(f.out).Encode(Info{Protocol: Protocol, Name: f.name, Version: f.version, Features: f.features()})
	}
	act := actions()[spec.name]
	req, err := f.request(spec, act.request(), args)
	if err == nil && !f.has(*spec) {
		err = fmt.Errorf("%s: %s does not have the feature %s", spec.name, f.name, optional[spec.name])
	}
	if err != nil {
		return Mark(err, ErrUsage)
	}
	if s := f.getenv(EnvDeadline); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return Mark(fmt.Errorf("%s=%q is not a number of seconds", EnvDeadline, s), ErrUsage)
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, time.Duration(n)*time.Second, ErrDeadline)
		defer cancel()
	}
	common := req.Common()
	if common.TempDir == "" {
		dir, err := scratch.Dir("", scratch.Prefix)
		if err != nil {
			return fmt.Errorf("temporary directory: %w", err)
		}
		defer func() { _ = scratch.Remove(dir) }()
		common.TempDir = dir
	}
	if r, ok := req.(*statusRequest); ok && len(r.more) > 0 {
		return f.statuses(ctx, *r)
	}
	session, err := f.o.Open(ctx, spec.name, *common)
	if err == nil {
		err = act.run(ctx, session, req, f.out)
		_ = session.Close()
	}
	if err != nil && !errors.Is(err, errFalse) && ctx.Err() != nil {
		// The call was ended from outside, whatever error the verb returned.
		return &marked{err: err, mark: ErrDeadline}
	}
	return err
}

// arguments are those of a call: each field of the request that the verb takes, and
// those that it may leave out if they are set.
func arguments(verb string, r AnyRequest) (args []string, err error) {
	specs := verbs()
	i := slices.IndexFunc(specs, func(s verbSpec) bool { return s.name == verb })
	if i < 0 {
		return nil, fmt.Errorf("unknown verb %q", verb)
	}
	fields := r.fields().args
	for _, word := range strings.Fields(specs[i].args) {
		name := strings.Trim(word, "[]")
		switch field := fields[name].(type) {
		case *[]string:
			if name == "word" {
				continue // the word that repeats it stands for all of them
			}
			args = append(args, *field...)
		case *string:
			if *field != "" || word[0] != '[' {
				args = append(args, *field)
			}
		default:
			return nil, fmt.Errorf("the request is not one of %s: it has no %s", verb, name)
		}
	}
	for _, a := range args {
		if strings.ContainsRune(a, 0) {
			return nil, fmt.Errorf("argument %q has a NUL byte", a)
		}
	}
	return args, nil
}

// request sets the fields of a verb's new request from arguments and environment.
func (f frame) request(spec *verbSpec, req AnyRequest, args []string) (AnyRequest, error) {
	r := req.Common()
	r.Stdout, r.Log = f.out, f.line
	words := strings.Fields(spec.args)
	least := 0
	for _, w := range words {
		if w[0] != '[' {
			least++
		}
	}
	most := len(words)
	if strings.HasSuffix(spec.args, "…]") {
		most = MaxApps
	}
	if len(args) < least || len(args) > most {
		return nil, fmt.Errorf("usage: %s", strings.TrimSpace(f.name+" "+spec.name+" "+spec.args))
	}
	fields := req.fields()
	for i, a := range args {
		word := words[min(i, len(words)-1)]
		optional := word[0] == '['
		word = strings.Trim(word, "[]")
		if a == "" && !optional && word != "word" {
			return nil, fmt.Errorf("%s: the argument %s is empty", spec.name, word)
		}
		if word == "app" || word == "app…" {
			if err := names.Check(a); err != nil {
				return nil, fmt.Errorf("application: %w", err)
			}
		}
		switch field := fields.args[word].(type) {
		case *[]string:
			*field = append(*field, a)
		case *string:
			*field = a
		}
	}
	options := strings.Fields(f.getenv(EnvOptions))
	for word, field := range fields.options {
		*field = slices.Contains(options, word)
	}
	if fields.stdin != nil {
		*fields.stdin = f.in
	}
	if err := fields.setVariables(f.getenv); err != nil {
		return nil, err
	}
	return req, f.common(r)
}

// common sets the fields that all requests have from the environment.
func (f frame) common(r *Request) (err error) {
	r.Platform = f.getenv(EnvPlatform)
	r.TempDir = f.getenv(EnvTempDir)
	r.Disabled = strings.Fields(f.getenv(EnvDisabled))
	if r.CPUSet, err = parseCPUSet(f.getenv(EnvCPUSet)); err != nil {
		return fmt.Errorf("%s: %w", EnvCPUSet, err)
	}
	if dir := f.getenv(EnvOverrides); dir != "" {
		if r.Overrides, err = readOverrides(dir); err != nil {
			return fmt.Errorf("%s: %w", EnvOverrides, err)
		}
	}
	if file := f.getenv(EnvValues); file != "" {
		if r.Values, err = ReadValues(file); err != nil {
			return fmt.Errorf("%s: %w", EnvValues, err)
		}
	}
	for _, n := range names.AlwaysEnv {
		if v := f.getenv(n); v != "" {
			if r.Env == nil {
				r.Env = map[string]string{}
			}
			r.Env[n] = v
		}
	}
	if name := f.getenv(EnvComponents); name != "" {
		if r.Components, err = readComponents(name); err != nil {
			return fmt.Errorf("%s: %w", EnvComponents, err)
		}
	}
	return nil
}

// maxComponents bounds the file MENDER_APP_COMPONENTS, in bytes.
const maxComponents = 16 << 20

func readComponents(name string) ([]Component, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxComponents+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxComponents {
		return nil, fmt.Errorf("%s is larger than %d bytes", name, maxComponents)
	}
	list := []Component{}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return list, nil
}
