package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/mender-app/mender-app/testdata/bed"
)

// story runs the demo's steps on a device and keeps their results.
type story struct {
	device  *bed.Device
	client  client
	web     *bed.Watch
	out     io.Writer
	verbose bool
	rows    []row
}

// row is a line of the summary.
type row struct {
	step, sent, took, down, says, believed string
}

func newStory(device *bed.Device, programs string, verbose bool, out io.Writer) (*story, error) {
	s := &story{device: device, client: newClient(device), out: out, verbose: verbose}
	if err := device.Install(programs); err != nil {
		return nil, err
	}
	if err := device.StartEngine(); err != nil {
		return nil, err
	}
	r, err := device.Run("docker", "version", "--format", "{{.Server.Version}}")
	if err != nil {
		return nil, err
	}
	if s.web, err = device.Watch("http://127.0.0.1:8080/version"); err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "A device is started: Docker Engine %s, %s.\n", strings.TrimSpace(r.Stdout), s.client.name())
	return s, nil
}

func (s *story) close() { s.web.Stop() }

// tell runs the steps. A broken promise is an error.
func (s *story) tell(releases []release) error {
	one, two, three, four, five, six, seven := releases[0], releases[1], releases[2], releases[3], releases[4], releases[5], releases[6]

	err := s.step("install 1", "Release 1 is installed.", &one, func() error {
		return s.all(s.must("install", one), s.must("commit", one))
	}, expect{web: "web 1", believed: one})
	if err != nil {
		return err
	}
	if err := s.visit(1); err != nil {
		return err
	}

	err = s.step("update to 2", "Release 2 comes as a deep delta; stock did not change and is not touched.", &two, func() error {
		return s.all(s.must("install", two), s.must("commit", two))
	}, expect{web: "web 2", believed: two, sameStock: true})
	if err != nil {
		return err
	}

	err = s.step("override", "The operator gives the web service a label of their own, which stays from now on.", nil, s.override,
		expect{web: "web 2", believed: two, sameStock: true})
	if err != nil {
		return err
	}

	err = s.step("failing 3", "Release 3 never gets healthy: the device goes back to release 2 by itself.", &three, func() error {
		return s.fails("install", three)()
	}, expect{web: "web 2", believed: two, sameStock: true})
	if err != nil {
		return err
	}

	err = s.step("install 4", "Release 4 is good, and installed, with the operator's label…", &four, func() error {
		return s.all(s.must("install", four), s.overridden)
	}, expect{web: "web 4", sameStock: true})
	if err != nil {
		return err
	}
	err = s.step("undo 4", "…but before its commit the operator thinks better of it.", nil, func() error {
		return s.all(s.must("rollback", four), s.overridden)
	}, expect{web: "web 2", believed: two, sameStock: true})
	if err != nil {
		return err
	}

	err = s.step("refused 5", "Release 5 may only follow release 4: its policy refuses before anything is loaded.", nil, func() error {
		return s.fails("install", five)()
	}, expect{web: "web 2", believed: two, sameStock: true})
	if err != nil {
		return err
	}

	err = s.step("refused 6", "Release 6 asks a program that it ships, and that says no.", nil, func() error {
		return s.fails("install", six)()
	}, expect{web: "web 2", believed: two, sameStock: true})
	if err != nil {
		return err
	}

	err = s.step("install 7", "Release 7 migrates the visits that stock has counted: a thousand more.", &seven, func() error {
		return s.all(s.must("install", seven), func() error { return s.visit(1002) })
	}, expect{web: "web 7"})
	if err != nil {
		return err
	}
	err = s.step("undo 7", "Undone, it takes its data with it: the visits are those of before.", nil, func() error {
		return s.all(s.must("rollback", seven), func() error { return s.visit(2) })
	}, expect{web: "web 2", believed: two})
	if err != nil {
		return err
	}
	return s.history()
}

// visit visits the stock, which must then count the wanted number of visits.
func (s *story) visit(want int) error {
	const ask = "exec 3<>/dev/tcp/127.0.0.1/8081; printf 'GET /visits HTTP/1.0\\r\\n\\r\\n' >&3; tail -n 1 <&3"
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		r, err := s.device.Run("bash", "-c", ask)
		if err != nil {
			return err
		}
		if said := strings.TrimSpace(r.Stdout); said == strconv.Itoa(want) {
			fmt.Fprintf(s.out, "    visits    %s\n", said)
			return nil
		} else if said != "" || time.Now().After(end) {
			return fmt.Errorf("the stock counts %q visits, not %d %s", said, want, r.Stderr)
		}
	}
}

// override sets an override of the operator's.
func (s *story) override() error {
	const set = `mender-app overrides set shop - <<<'services: {web: {labels: {shelf: "7"}}}'`
	fmt.Fprintf(s.out, "    $ %s\n", set)
	r, err := s.device.Run("bash", "-c", set)
	if err == nil && r.Code != 0 {
		err = fmt.Errorf("exit %d\n%s", r.Code, indent(r.Output()))
	}
	return errors.Join(err, s.overridden())
}

// overridden shows the web service's label.
func (s *story) overridden() error {
	r, err := s.device.Run("docker", "ps", "--filter", "label=shelf=7", "--format", "{{.Image}}")
	if err != nil {
		return err
	}
	if !strings.HasPrefix(r.Stdout, "shop/web:") {
		return fmt.Errorf("the web service has lost the operator's label: %s", r.Output())
	}
	fmt.Fprintf(s.out, "    label     shelf=7 is on %s\n", strings.TrimSpace(r.Stdout))
	return nil
}

// history shows the device's own record of the steps.
func (s *story) history() error {
	fmt.Fprintf(s.out, "\n%d. The device remembers all of it.\n    $ mender-app history shop\n", len(s.rows)+1)
	result, err := s.device.Run("mender-app", "history", "shop")
	if err == nil && result.Code != 0 {
		err = fmt.Errorf("history: exit %d", result.Code)
	}
	fmt.Fprintln(s.out, indent(result.Output()))
	return err
}

// expect is what must hold after a step.
type expect struct {
	web       string
	believed  release // what the client says is installed; unset: do not ask
	sameStock bool    // the stock's container was neither recreated nor restarted
}

func (s *story) step(name, text string, sent *release, do func() error, want expect) error {
	fmt.Fprintf(s.out, "\n%d. %s\n", len(s.rows)+1, text)
	before, err := s.device.State()
	if err != nil {
		return err
	}
	start := time.Now()
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	took := time.Since(start)
	for end := time.Now().Add(5 * time.Second); s.web.Says() != want.web && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	if s.web.Says() != want.web {
		return fmt.Errorf("%s: the web service says %q, not %q", name, s.web.Says(), want.web)
	}
	down, _ := s.web.Down(start)

	r := row{step: name, sent: "–", took: seconds(took), down: fmt.Sprintf("%.2f s", down.Seconds()), says: want.web}
	if len(s.rows) == 0 {
		r.down = "–" // nothing ran before the first install
	}
	if sent != nil {
		r.sent = size(sent.sent)
		fmt.Fprintf(s.out, "    sent      %s (%s whole in gzip)\n", size(sent.sent), size(sent.whole))
	}
	fmt.Fprintf(s.out, "    took      %s\n", r.took)
	if r.down != "–" {
		fmt.Fprintf(s.out, "    downtime  %s of the web service, which now says %q\n", r.down, s.web.Says())
	}
	after, err := s.device.State()
	if err != nil {
		return err
	}
	if want.sameStock {
		old, now := before.Service("shop", "stock"), after.Service("shop", "stock")
		if old == nil || now == nil || old.ID != now.ID || old.Started != now.Started {
			return fmt.Errorf("%s: the unchanged service was touched: %+v, then %+v", name, old, now)
		}
		fmt.Fprintf(s.out, "    stock     untouched: container %.12s runs since before\n", now.ID)
	}
	believed, err := s.client.believes()
	if err != nil {
		return err
	}
	if want.believed.version != "" && !strings.HasPrefix(believed, "shop-"+want.believed.version+" ") {
		return fmt.Errorf("%s: %s says %q is installed, not shop-%s", name, s.client.name(), believed, want.believed.version)
	}
	if strings.Contains(believed, "INCONSISTENT") {
		return fmt.Errorf("%s: %s says %q", name, s.client.name(), believed)
	}
	fmt.Fprintf(s.out, "    installed %s, says %s\n", believed, s.client.name())
	r.believed, _, _ = strings.Cut(believed, " ")
	s.rows = append(s.rows, r)
	return nil
}

func (s *story) all(steps ...func() error) error {
	for _, do := range steps {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// must is a client command that must succeed.
func (s *story) must(verb string, r release) func() error {
	return func() error {
		result, err := s.run(verb, r)
		if err == nil && result.Code != 0 {
			err = fmt.Errorf("exit %d\n%s", result.Code, indent(result.Output()))
		}
		return err
	}
}

// fails is a client command that must fail and say why.
func (s *story) fails(verb string, r release) func() error {
	return func() error {
		result, err := s.run(verb, r)
		if err != nil {
			return err
		}
		if result.Code == 0 {
			return errors.New("it should have failed")
		}
		// The last error is the reason: earlier ones may be answers to questions, such as
		// whether the device has an older image.
		reason := ""
		for line := range strings.Lines(result.Output()) {
			if _, text, ok := strings.Cut(line, "error: "); ok {
				reason = strings.TrimSpace(text)
			}
		}
		if reason == "" {
			return fmt.Errorf("it does not say why it failed:\n%s", indent(result.Output()))
		}
		// The client quotes a line as Go does, its end included.
		if text, err := strconv.Unquote(`"` + strings.TrimSuffix(reason, `"`) + `"`); err == nil {
			reason = strings.TrimSpace(text)
		}
		fmt.Fprintf(s.out, "    failed    %s\n", reason)
		return nil
	}
}

func (s *story) run(verb string, r release) (bed.Result, error) {
	var args []string
	if verb == "install" {
		path := s.device.Share(filepath.Base(r.artifact))
		if err := os.Rename(r.artifact, path); err != nil {
			return bed.Result{}, err
		}
		args = append(args, path)
	}
	fmt.Fprintf(s.out, "    $ %s\n", strings.Join(append(s.client.command(verb), args...), " "))
	argv := append(s.client.command(verb), args...)
	result, err := s.device.Run(argv[0], argv[1:]...)
	if s.verbose {
		fmt.Fprintln(s.out, indent(result.Output()))
	}
	return result, err
}

func (s *story) summary() {
	fmt.Fprintln(s.out, "\nSummary")
	w := tabwriter.NewWriter(s.out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "    step\tsent\ttook\tdowntime\tservice\tinstalled")
	for _, r := range s.rows {
		fmt.Fprintf(w, "    %s\t%s\t%s\t%s\t%s\t%s\n", r.step, r.sent, r.took, r.down, r.says, r.believed)
	}
	_ = w.Flush()
}
