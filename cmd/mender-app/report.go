package main

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/mender-app/mender-app/artifact/output"
	"github.com/mender-app/mender-app/cmd/internal/version"
	"github.com/mender-app/mender-app/store"
	"github.com/mender-app/mender-app/submodules"
)

// The bounds of a report.
const (
	maxReportPart  = 2 << 20          // bytes of one file, uncompressed
	maxReport      = 32 << 20         // bytes of all files, uncompressed
	reportPatience = 20 * time.Second // with a program that is asked
	journalLines   = 3000
)

// journalUnits are the units whose journal is in a report. That of an engine is not:
// services may write theirs there.
var journalUnits = []string{
	"mender-app-resume", "mender-app-secrets", "mender-client", "mender-updated", "mender-authd",
}

func (p *program) reportCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Write a report for support into one file, without secrets",
		Long: `Writes an archive (.tar.gz, which only its owner can read) with the output of doctor,
status, releases and history, the versions, the configuration, and the journal of
mender-app and the Mender client. It has at most 32 MiB before compression. Of
applications it has no files, and of their logs only the last lines of failures.

Secrets are removed: settings that are not known to be harmless, environments of
releases, and, wherever they occur, the values of .env files and of names such as
PASSWORD and TOKEN in manifests, decrypted secrets, keys, credentials of registries, and
passwords of proxies and in URLs. Texts shorter than 4 characters stay. Look through the
report before you send it: no program can know every secret.`,
		Example: "  mender-app report\n  mender-app report -o /tmp/shop.tar.gz\n  mender-app report -o - | ssh support@example.com 'cat >report.tar.gz'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			now := time.Now().UTC()
			r := &report{p: p, secrets: &redactor{}, at: now}
			r.collect(cmd.Context())
			if err := cmd.Context().Err(); err != nil {
				return err
			}
			file = cmp.Or(file, "mender-app-report-"+now.Format("20060102-150405")+".tar.gz")
			if output.IsStandard(file) {
				return r.write(p.stdout)
			}
			if err := output.Write(cmd.Context(), file, 0o600, r.write); err != nil {
				return err
			}
			return p.printResult(map[string]string{"report": file}, "%s is written; look through it before you send it", file)
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "write to FILE (- is standard output)")
	return cmd
}

// report is the content of a report, in memory: it is bounded.
type report struct {
	p       *program
	secrets *redactor
	at      time.Time
	parts   []reportPart
	size    int
}

type reportPart struct{ name, text string }

// add adds a file. Of one that is too long the end stays, where the newest is.
func (r *report) add(name, text string) {
	if len(text) > maxReportPart {
		text = "(the beginning is left out)\n" + text[len(text)-maxReportPart:]
	}
	if r.size+len(text) > maxReport {
		text = "(left out: the report is full)\n"
	}
	r.size += len(text)
	r.parts = append(r.parts, reportPart{name, text})
}

// collect reads everything. What cannot be read says so in its place.
func (r *report) collect(ctx context.Context) {
	s := r.p.config.OpenStore()
	names, err := s.Apps()
	r.addSecrets(names)
	if err != nil {
		r.add("problem.txt", r.secrets.Text(err.Error())+"\n")
	}
	r.add("versions.txt", r.secrets.Text(r.versions(ctx)))
	c := &checkup{ctx: ctx, config: r.p.config}
	c.all(nil)
	r.addJSON("doctor.json", c.findings, nil)
	list, err := r.p.status(ctx, nil)
	r.addJSON("status.json", list, err)
	for _, name := range names {
		records, err := s.History(name)
		r.addJSON("history/"+name+".json", records, err)
		r.addReleases(s, name)
	}
	dir := filepath.Dir(r.p.config.File)
	r.addConfig(r.p.config.File, appSettings)
	for _, file := range []string{"mender-app-docker-compose.conf", "mender-app-k8s.conf"} {
		r.addConfig(filepath.Join(dir, file), moduleSettings)
	}
	r.addMenderConfig()
	args := []string{"--no-pager", "-o", "short-iso", "-n", fmt.Sprint(journalLines)}
	for _, unit := range journalUnits {
		args = append(args, "-u", unit)
	}
	r.add("journal.txt", r.secrets.Text(said(ctx, "journalctl", args...)))
}

// addReleases adds the releases of an application, without what the metadata sets in
// the sub-module's environment.
func (r *report) addReleases(s *store.Store, name string) {
	if s.Legacy(name) {
		return
	}
	a, err := s.App(name)
	if err != nil {
		r.addJSON("releases/"+name+".json", nil, err)
		return
	}
	ids, err := a.Releases()
	releases := []*store.Release{}
	for _, id := range ids {
		release, rerr := a.Release(id)
		if rerr != nil {
			err = errors.Join(err, rerr)
			continue
		}
		for key := range release.Env {
			release.Env[key] = removedSecret
		}
		releases = append(releases, release)
	}
	r.addJSON("releases/"+name+".json", releases, err)
}

// versions says what the machine is and which programs it has.
func (r *report) versions(ctx context.Context) string {
	var out strings.Builder
	fmt.Fprintf(&out, "mender-app %s, %s/%s\nreport of %s\n", version.String(), runtime.GOOS, runtime.GOARCH, r.at.Format(time.RFC3339))
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		fmt.Fprintf(&out, "kernel %s %s\n", unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Machine[:]))
	}
	text, _ := readSome(r.p.config.OSRelease)
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "PRETTY_NAME=") || strings.HasPrefix(line, "VERSION_ID=") {
			out.WriteString(line)
		}
	}
	for _, command := range [][]string{{"docker", "version"}, {"docker", "compose", "version"}, {"mender", "--version"}, {"mender-update", "--version"}} {
		if _, err := exec.LookPath(command[0]); err == nil {
			fmt.Fprintf(&out, "\n$ %s\n%s", strings.Join(command, " "), said(ctx, command[0], command[1:]...))
		}
	}
	return out.String()
}

// said is what a program prints, and why it failed.
func said(ctx context.Context, program string, args ...string) string {
	ctx, cancel := context.WithTimeout(ctx, reportPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.WaitDelay = time.Second
	out := &submodules.Capped{Max: maxReportPart}
	cmd.Stdout, cmd.Stderr = out, out
	failure := ""
	if err := cmd.Run(); err != nil {
		failure = fmt.Sprintf("(%s: %v)\n", program, err)
	}
	return string(out.Bytes()) + failure
}

// readSome reads the beginning of a file.
func readSome(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe does not hold it
	if err != nil {
		return "", err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return "", errors.Join(err, errors.New("it is not a file"))
	}
	data, err := io.ReadAll(io.LimitReader(f, maxReportPart))
	return string(data), err
}

// write writes the archive.
func (r *report) write(w io.Writer) error {
	zip := gzip.NewWriter(w)
	out := tar.NewWriter(zip)
	dir := "mender-app-report-" + r.at.Format("20060102-150405") + "/"
	slices.SortFunc(r.parts, func(a, b reportPart) int { return cmp.Compare(a.name, b.name) })
	for _, part := range r.parts {
		head := &tar.Header{Typeflag: tar.TypeReg, Name: dir + part.name, Mode: 0o600, Size: int64(len(part.text)), ModTime: r.at}
		if err := out.WriteHeader(head); err != nil {
			return err
		}
		if _, err := io.WriteString(out, part.text); err != nil {
			return err
		}
	}
	return errors.Join(out.Close(), zip.Close())
}
