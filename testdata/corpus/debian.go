package corpus

import (
	"archive/tar"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mender-app/mender-app/testdata/bed"
)

// suite names a state of Debian: the releases that apt installs from.
type suite string

const (
	stable  suite = "bookworm"          // the last point release
	patched suite = "bookworm+security" // with the security updates since
	next    suite = "trixie"            // the release after
	ported  suite = "bookworm+backports"
)

// systemPackages are the packages of the base system. Their dependencies are
// installed too.
const systemPackages = "base-files bash coreutils dpkg grep sed tar gzip findutils libc-bin mount login"

// debian is a pair of a base system and an application, made of Debian packages in
// two states.
type debian struct {
	name, about string
	arch        string
	platform    string
	app         string
	app2        string // of the second state, if not the same
	s1, s2      suite
}

var debians = []debian{
	{"debian-nginx-arm64", "nginx on arm64, security updates", "arm64", "linux/arm64", "nginx-light ca-certificates", "", stable, patched},
	{"debian-redis-amd64", "redis on amd64, security updates", "amd64", "linux/amd64", "redis-server openssl", "", stable, patched},
	{"debian-python-armhf", "Python on armhf, the next release of Debian", "armhf", "linux/arm/v7", "python3-minimal python3-yaml", "", stable, next},
}

func debianPairs() []Pair {
	var list []Pair
	for _, d := range debians {
		list = append(list, Pair{Name: d.name, About: d.about, platform: d.platform, build: func(b *builder) (old, new []layer, err error) {
			r1, err := d.release(b, d.s1, 0)
			if err != nil {
				return nil, nil, err
			}
			r2, err := d.release(b, d.s2, 1)
			if err != nil {
				return nil, nil, err
			}
			return b.pair([]tree{r1.base, r1.app}, []tree{r2.base, r2.app})
		}})
	}
	for _, s := range shapes {
		d := debians[1]
		list = append(list, Pair{Name: "debian-" + s.name, About: s.about + ", of Debian packages", platform: d.platform, build: func(b *builder) (old, new []layer, err error) {
			r1, err := d.release(b, d.s1, 0)
			if err != nil {
				return nil, nil, err
			}
			r2, err := d.release(b, d.s2, 1)
			if err != nil {
				return nil, nil, err
			}
			o, n := s.make(r1, r2)
			return b.pair(o, n)
		}})
	}
	return append(list, Pair{Name: "debian-compressed", About: "documentation and manual pages in gzip, and a tar.gz of them, the next release of Debian", platform: "linux/arm64", build: documents})
}

// release unpacks the packages of one state. Files that the installation creates
// (dpkg's files, directories) have the time of the build.
func (d debian) release(b *builder, s suite, n int) (release, error) {
	base, err := b.packages(d.arch, s, systemPackages)
	if err != nil {
		return release{}, err
	}
	all, err := b.packages(d.arch, s, systemPackages+" "+d.app)
	if err != nil {
		return release{}, err
	}
	when := time.Unix(1735000000+int64(n)*8000000, 0)
	var r release
	if r.base, err = b.install(base, when); err != nil {
		return r, err
	}
	whole, err := b.install(all, when.Add(time.Minute))
	if err != nil {
		return r, err
	}
	r.app = whole.without(r.base)
	for name := range r.app { // a layer has the directories above what changed
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			r.app[dir] = whole[dir]
		}
	}
	r.conf = tree{}
	r.conf.file("etc/app/app.conf", 0o640, when.Add(2*time.Minute), text(uint64(n+1), 800))
	return r, nil
}

// install unpacks packages as dpkg does, but runs no scripts.
func (b *builder) install(debs []string, when time.Time) (tree, error) {
	t := tree{}
	var status []string
	for _, deb := range debs {
		control := tree{}
		if err := b.unpack(control, "--ctrl-tarfile", deb); err != nil {
			return nil, err
		}
		files := tree{}
		if err := b.unpack(files, "--fsys-tarfile", deb); err != nil {
			return nil, err
		}
		about := string(control["control"].data)
		name, arch := field(about, "Package"), field(about, "Architecture")
		if field(about, "Multi-Arch") == "same" {
			name += ":" + arch
		}
		list := "/.\n"
		for _, n := range files.names() {
			list += "/" + n + "\n"
		}
		t.file("var/lib/dpkg/info/"+name+".list", 0o644, when, []byte(list))
		for n, m := range control {
			if n != "control" && m.Typeflag == tar.TypeReg {
				t.file("var/lib/dpkg/info/"+name+"."+n, m.Mode, when, m.data)
			}
		}
		first, rest, _ := strings.Cut(about, "\n")
		status = append(status, first+"\nStatus: install ok installed\n"+rest)
		for n, m := range files {
			if have := t[n]; have == nil || m.Typeflag != tar.TypeDir {
				t[n] = m
			}
		}
	}
	slices.Sort(status)
	t.file("var/lib/dpkg/status", 0o644, when, []byte(strings.Join(status, "\n")))
	return t, nil
}

// field is a field of one line of a control file (deb822).
func field(text, name string) string {
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(line, name+": "); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// unpack reads one of the two tars of a package.
func (b *builder) unpack(t tree, which, deb string) error {
	out, err := exec.CommandContext(b.ctx, "dpkg-deb", which, deb).Output()
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(deb), err)
	}
	r := tar.NewReader(bytes.NewReader(out))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(deb), err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(deb), err)
		}
		name := path.Clean(strings.TrimPrefix(h.Name, "./"))
		if name == "." {
			continue
		}
		m := &member{Header: tar.Header{Typeflag: h.Typeflag, Linkname: h.Linkname, Mode: h.Mode, Uid: h.Uid, Gid: h.Gid, Size: int64(len(data)), ModTime: h.ModTime}, data: data}
		if h.Typeflag == tar.TypeLink {
			m.Linkname = path.Clean(strings.TrimPrefix(h.Linkname, "./"))
		}
		t[name] = m
	}
}

// mirrorRefuses means that apt-get was tried again for minutes and failed in the end:
// it is not tried again for the next packages.
var mirrorRefuses bool

// packages downloads packages with all their dependencies and returns the names of
// their files, sorted. It records the versions: the next build takes the same ones
// from the cache. Those of public pairs are recorded once and for all.
func (b *builder) packages(arch string, s suite, names string) ([]string, error) {
	key := arch + " " + string(s) + " " + names
	if b.pins != nil && !b.pins.record {
		return b.pinned(key)
	}
	dir := filepath.Join(b.cache, "debian", arch+"-"+string(s))
	lock := filepath.Join(dir, strings.ReplaceAll(names, " ", ",")+".lock")
	debs := filepath.Join(b.cache, "debian", "debs")
	paths := func(list []byte) (all []string, err error) {
		for name := range strings.FieldsSeq(string(list)) {
			p := filepath.Join(debs, name)
			if _, err := os.Stat(p); err != nil {
				return nil, err
			}
			all = append(all, p)
		}
		return all, nil
	}
	if list, err := os.ReadFile(lock); err == nil && b.pins == nil {
		if all, err := paths(list); err == nil {
			return all, nil
		}
	}
	for _, d := range []string{filepath.Join(dir, "lists", "partial"), filepath.Join(debs, "partial")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, err
		}
	}
	apt := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(b.ctx, filepath.Join(bed.Repository(), "testdata/retry"), append([]string{"apt-get", "-q",
			"-o", "Dir::Etc::sourcelist=" + filepath.Join(dir, "sources.list"), "-o", "Dir::Etc::sourceparts=/dev/null",
			"-o", "Dir::Etc::preferences=/dev/null", "-o", "Dir::Etc::preferencesparts=/dev/null",
			"-o", "Dir::State::lists=" + filepath.Join(dir, "lists"), "-o", "Dir::State::status=" + filepath.Join(dir, "status"),
			"-o", "Dir::State::extended_states=" + filepath.Join(dir, "extended"),
			"-o", "Dir::Cache::archives=" + debs, "-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=",
			"-o", "APT::Architecture=" + arch, "-o", "APT::Architectures=" + arch, "-o", "Debug::NoLocking=1",
			"-o", "APT::Sandbox::User=root", "-o", "Acquire::Languages=none", "-o", "APT::Install-Recommends=false",
			"-o", "Binary::apt-get::APT::Keep-Downloaded-Packages=true", "-o", "DPkg::Pre-Install-Pkgs::="}, args...)...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
		if mirrorRefuses {
			cmd.Env = append(cmd.Env, "RETRY_WAITS=")
		}
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			mirrorRefuses = true
			return nil, fmt.Errorf("%w: apt-get %s: %w\n%s", ErrUnavailable, strings.Join(args, " "), err, stderr.Bytes())
		}
		return out, nil
	}
	if _, err := os.Stat(filepath.Join(dir, "sources.list")); err != nil {
		if err := b.sources(dir, s); err != nil {
			return nil, err
		}
		if _, err := apt("update"); err != nil {
			os.Remove(filepath.Join(dir, "sources.list"))
			return nil, err
		}
	}
	install := append([]string{"install", "-y", "--download-only"}, strings.Fields(names)...)
	out, err := apt(append(install, "--print-uris", "-qq", "-o", "Dir::Cache::archives=/nonexistent")...)
	if err != nil {
		return nil, err
	}
	var list []string
	address := map[string]string{}
	for line := range strings.Lines(string(out)) { // 'URI' file size hash
		if f := strings.Fields(line); len(f) >= 3 && strings.HasSuffix(f[1], ".deb") {
			list = append(list, f[1])
			address[f[1]] = strings.Trim(f[0], "'")
		}
	}
	slices.SortFunc(list, func(a, b string) int { return cmp.Compare(a, b) })
	if _, err := apt(install...); err != nil {
		return nil, err
	}
	text := strings.Join(list, "\n") + "\n"
	all, err := paths([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if b.pins != nil {
		var set []string
		for i, name := range list {
			added, err := b.pins.add(address[name], all[i])
			if err != nil {
				return nil, err
			}
			set = append(set, added)
		}
		b.pins.sets[key] = set
		return all, nil
	}
	return all, os.WriteFile(lock, []byte(text), 0o644)
}

// archives returns the addresses of the archives among this machine's apt sources, by their
// label.
func (b *builder) archives() (map[string]string, error) {
	out, err := exec.CommandContext(b.ctx, "apt-get", "indextargets", "--format", "$(LABEL) $(REPO_URI)", "Created-By: Packages").Output()
	if err != nil {
		return nil, fmt.Errorf("%w: no apt: %w", ErrUnavailable, err)
	}
	archive := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) == 2 && archive[f[0]] == "" {
			archive[f[0]] = f[1]
		}
	}
	return archive, nil
}

// sources writes the apt sources of a suite: this machine's archives with the given
// suite.
func (b *builder) sources(dir string, s suite) error {
	archive, err := b.archives()
	if err != nil {
		return err
	}
	if archive["Debian"] == "" || s == patched && archive["Debian-Security"] == "" {
		return fmt.Errorf("%w: no Debian archive among the sources of apt", ErrUnavailable)
	}
	line := func(uri, suite string) string {
		return "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] " + uri + " " + suite + " main\n"
	}
	var text string
	switch s {
	case ported:
		text = line(archive["Debian"], "bookworm") + line(archive["Debian"], "bookworm-backports")
	case patched:
		text = line(archive["Debian"], "bookworm") + line(archive["Debian-Security"], "bookworm-security")
	default:
		text = line(archive["Debian"], string(s))
	}
	if err := os.WriteFile(filepath.Join(dir, "status"), nil, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "sources.list"), []byte(text), 0o644)
}

// documents makes a pair of files that Debian compresses with GNU gzip.
func documents(b *builder) (old, new []layer, err error) {
	images := make([][]tree, 2)
	for i, s := range []suite{stable, next} {
		debs, err := b.packages("arm64", s, "manpages bsdutils coreutils findutils tar dpkg")
		if err != nil {
			return nil, nil, err
		}
		whole, err := b.install(debs, time.Unix(1735000000, 0))
		if err != nil {
			return nil, nil, err
		}
		docs, plain := tree{}, tree{}
		for n, m := range whole {
			if strings.HasSuffix(n, ".gz") || strings.HasPrefix(n, "usr/share/man/") {
				docs[n] = m
			}
			if strings.HasPrefix(n, "usr/share/doc/") || strings.HasPrefix(n, "etc/") || strings.HasPrefix(n, "var/lib/dpkg/info/") {
				plain[n] = m
			}
		}
		l, err := b.layer(plain)
		if err != nil {
			return nil, nil, err
		}
		bundle, err := exec.CommandContext(b.ctx, "gzip", "-9nc", l.path).Output()
		if err != nil {
			return nil, nil, fmt.Errorf("%w: gzip: %w", ErrUnavailable, err)
		}
		app := tree{}
		app.file("srv/bundle.tar.gz", 0o644, time.Unix(1736000000+int64(i), 0), bundle)
		images[i] = []tree{docs, app}
	}
	return b.pair(images[0], images[1])
}
