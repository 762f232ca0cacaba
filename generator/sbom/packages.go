package sbom

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
)

// Package is one package of an image.
type Package struct {
	Type    string `json:"type"` // as in package URLs: deb, apk, golang, pypi, npm
	Name    string `json:"name"`
	Version string `json:"version"`
	Arch    string `json:"arch,omitempty"`
	License string `json:"license,omitempty"` // an SPDX expression or a free text; "" if not known
	URL     string `json:"purl"`              // package URL
	Found   string `json:"found"`             // the file that names it
}

// Bounds of what is parsed: far above real files.
const (
	maxDatabase = 64 << 20 // bytes of a package manager's database
	maxMetadata = 4 << 20  // bytes of a file about one package
)

// Packages lists the packages of the image, sorted, each once. warnings tell of
// databases that could not be read.
//
// The databases are read here, and not with a library: each is a text of names
// and values, and the libraries that know them (syft, trivy) bring hundreds of
// modules.
func (t *Tree) Packages(ctx context.Context) (list []Package, warnings []string, err error) {
	os := t.release()
	for _, p := range t.Paths() {
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		f := t.files[p]
		if f.Type != tar.TypeReg {
			continue
		}
		read, most := reader(p), int64(maxMetadata)
		switch read.(type) {
		case nil:
			found, err := goPackages(f)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %w", p, err)
			}
			list = append(list, found...)
			continue
		case database:
			most = maxDatabase
		}
		b, err := f.content(most)
		var found []Package
		if err == nil {
			found, err = read.packages(b, os)
		}
		if err != nil {
			warnings = append(warnings, fmt.Sprintf("%s: %v", p, err))
			continue
		}
		for i := range found {
			found[i].Found = p
		}
		list = append(list, found...)
	}
	slices.SortStableFunc(list, comparePackages)
	list = slices.CompactFunc(list, func(a, b Package) bool { return a.URL == b.URL })
	return list, warnings, nil
}

func comparePackages(a, b Package) int {
	return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version), cmp.Compare(a.URL, b.URL))
}

// parser reads packages from the content of a file.
type parser interface {
	packages(b []byte, os release) ([]Package, error)
}

type (
	database func(b []byte, os release) []Package
	metadata func(b []byte) (Package, error)
	unread   string // the name of a package manager whose database is not read
)

func (d database) packages(b []byte, os release) ([]Package, error) { return d(b, os), nil }

func (m metadata) packages(b []byte, _ release) ([]Package, error) {
	p, err := m(b)
	if err != nil || p.Name == "" {
		return nil, err
	}
	return []Package{p}, nil
}

func (u unread) packages([]byte, release) ([]Package, error) {
	return nil, fmt.Errorf("the packages of %s are not listed", string(u))
}

// nodePackage is the path of an installed npm package's own package.json.
var nodePackage = regexp.MustCompile(`(^|/)node_modules/(@[^/]+/)?[^/]+/package\.json$`)

// reader chooses the parser for a path; nil for any other file.
func reader(p string) parser {
	dir, name := path.Split(p)
	switch {
	case p == "var/lib/dpkg/status", dir == "var/lib/dpkg/status.d/" && !strings.HasSuffix(name, ".md5sums"):
		return database(debPackages)
	case p == "lib/apk/db/installed", p == "usr/lib/apk/db/installed":
		return database(apkPackages)
	case name == "METADATA" && strings.HasSuffix(dir, ".dist-info/"),
		name == "PKG-INFO" && strings.HasSuffix(dir, ".egg-info/"), strings.HasSuffix(name, ".egg-info"):
		return metadata(pythonPackage)
	case nodePackage.MatchString(p):
		return metadata(npmPackage)
	case (dir == "var/lib/rpm/" || dir == "usr/lib/sysimage/rpm/") && slices.Contains([]string{"rpmdb.sqlite", "Packages", "Packages.db"}, name):
		return unread("rpm")
	}
	return nil
}

// release is what os-release says of the distribution.
type release struct{ id, version string }

func (r release) distro() string {
	if r.version == "" {
		return r.id
	}
	return r.id + "-" + r.version
}

func (t *Tree) release() (r release) {
	for _, p := range []string{"etc/os-release", "usr/lib/os-release"} {
		f := t.files[p]
		if f == nil {
			continue
		}
		b, err := f.content(maxMetadata)
		if err != nil {
			continue // usually a link to the other one
		}
		for line := range strings.Lines(string(b)) {
			k, v, _ := strings.Cut(strings.TrimSpace(line), "=")
			switch v = strings.Trim(v, `"'`); k {
			case "ID":
				r.id = v
			case "VERSION_ID":
				r.version = v
			}
		}
		break
	}
	return r
}

// stanzas splits a text into blocks of fields that empty lines part. Lines that
// continue a field are left out.
func stanzas(b []byte, sep string) (list []map[string]string) {
	fields := map[string]string{}
	for line := range bytes.Lines(append(b, "\n\n"...)) {
		text := strings.TrimRight(string(line), "\r\n")
		if text == "" {
			if len(fields) > 0 {
				list = append(list, fields)
				fields = map[string]string{}
			}
			continue
		}
		if k, v, ok := strings.Cut(text, sep); ok && !strings.HasPrefix(text, " ") && !strings.HasPrefix(text, "\t") {
			if _, twice := fields[k]; !twice {
				fields[k] = strings.TrimSpace(v)
			}
		}
	}
	return list
}

// debPackages reads dpkg's status, see deb-control(5). Files in status.d, which
// distroless images have, have no Status.
func debPackages(b []byte, os release) (list []Package) {
	vendor := cmp.Or(os.id, "debian")
	for _, s := range stanzas(b, ":") {
		words := strings.Fields(s["Status"])
		if s["Package"] == "" || s["Version"] == "" || len(words) > 0 && words[len(words)-1] != "installed" {
			continue
		}
		p := Package{Type: "deb", Name: s["Package"], Version: s["Version"], Arch: s["Architecture"]}
		p.URL = packageURL("deb", vendor, p.Name, p.Version, "arch", p.Arch, "distro", os.distro())
		list = append(list, p)
	}
	return list
}

// apkPackages reads apk's database of installed packages.
func apkPackages(b []byte, os release) (list []Package) {
	for _, s := range stanzas(b, ":") {
		if s["P"] == "" || s["V"] == "" {
			continue
		}
		p := Package{Type: "apk", Name: s["P"], Version: s["V"], Arch: s["A"], License: s["L"]}
		p.URL = packageURL("apk", cmp.Or(os.id, "alpine"), p.Name, p.Version, "arch", p.Arch, "distro", os.distro())
		list = append(list, p)
	}
	return list
}

// pythonPackage reads the core metadata of an installed distribution.
func pythonPackage(b []byte) (Package, error) {
	head, _, _ := bytes.Cut(bytes.ReplaceAll(b, []byte("\r\n"), []byte("\n")), []byte("\n\n"))
	for _, s := range stanzas(head, ":") {
		p := Package{Type: "pypi", Name: s["Name"], Version: s["Version"], License: cmp.Or(s["License-Expression"], s["License"])}
		// the normalised name of PEP 503
		normal := strings.ToLower(regexp.MustCompile(`[-_.]+`).ReplaceAllString(p.Name, "-"))
		p.URL = packageURL("pypi", "", normal, p.Version)
		return p, nil
	}
	return Package{}, nil
}

func npmPackage(b []byte) (Package, error) {
	var j struct {
		Name    string `json:"name"`
		Version string `json:"version"`
		License any    `json:"license"`
	}
	if err := json.Unmarshal(b, &j); err != nil {
		return Package{}, err
	}
	if j.Version == "" {
		return Package{}, nil // part of another package
	}
	p := Package{Type: "npm", Name: j.Name, Version: j.Version}
	p.License, _ = j.License.(string)
	scope, name, scoped := strings.Cut(j.Name, "/")
	if !scoped {
		scope, name = "", j.Name
	}
	p.URL = packageURL("npm", scope, name, j.Version)
	return p, nil
}

// goPackages lists the modules that a Go program says it was built from.
func goPackages(f *File) ([]Package, error) {
	if f.Size < 1024 {
		return nil, nil
	}
	r, c, err := f.open()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	magic := make([]byte, 4)
	if _, err := r.ReadAt(magic, 0); err != nil || string(magic) != "\x7fELF" {
		return nil, nil
	}
	info, err := buildinfo.Read(r)
	if err != nil {
		return nil, nil // no Go program
	}
	module := func(name, version string) Package {
		p := Package{Type: "golang", Name: name, Version: version, Found: f.Path}
		p.URL = packageURL("golang", "", strings.ToLower(name), version)
		return p
	}
	list := []Package{module("stdlib", strings.TrimPrefix(strings.Fields(info.GoVersion + " ?")[0], "go"))}
	for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
		if m.Replace != nil {
			m = m.Replace
		}
		if m.Path != "" {
			list = append(list, module(m.Path, m.Version))
		}
	}
	return list, nil
}

// packageURL writes a package URL (github.com/package-url/purl-spec). Slashes in
// the name part its namespace. qualifiers are names and values; those without a
// value are left out.
func packageURL(kind, namespace, name, version string, qualifiers ...string) string {
	u := "pkg:" + kind + "/"
	if namespace != "" {
		u += escape(namespace) + "/"
	}
	u += strings.ReplaceAll(escape(name), "%2F", "/")
	if version != "" {
		u += "@" + escape(version)
	}
	sep := "?"
	for i := 0; i+1 < len(qualifiers); i += 2 {
		if qualifiers[i+1] != "" {
			u += sep + qualifiers[i] + "=" + escape(qualifiers[i+1])
			sep = "&"
		}
	}
	return u
}

// ImageURL is the package URL of an image in a registry.
func ImageURL(repository, manifest string) string {
	return packageURL("oci", "", strings.ToLower(path.Base(repository)), manifest, "repository_url", strings.ToLower(repository))
}

func escape(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte(".-_~:", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
