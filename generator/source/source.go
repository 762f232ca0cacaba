// Package source finds container images on the build host, wherever they are:
// a registry, a Docker daemon, an archive, an OCI layout or an older .mender.
// The content of the images it returns is on local disk, so that planning and
// writing can read layers several times. It also keeps what is slow to fetch or to
// make for the next run ([Cache]).
//
// It knows nothing of manifests, deltas or how an artifact is written.
package source

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/mender-app/mender-app/artifact"
	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/similar"
	"github.com/mender-app/mender-app/generator/write"
)

// Kind is where an image comes from.
type Kind string

// The kinds of sources.
const (
	Registry      Kind = "registry"
	Daemon        Kind = "docker-daemon"
	DockerArchive Kind = "docker-archive"
	OCI           Kind = "oci"
	Artifact      Kind = "mender"
)

// Spec names one image: SOURCE or SOURCE=URL.
type Spec struct {
	Kind Kind
	Path string // of the archive, layout or artifact
	Ref  string // in the registry, the daemon or the archive; may be empty for a file
	URL  string // the name it gets, if one is given
	// Own: the source is for the platform of this run alone, also if there are several.
	Own bool
}

// String is the source without the name, as Parse reads it.
func (s Spec) String() string {
	switch {
	case s.Kind == Registry:
		return s.Ref
	case s.Kind == Daemon:
		return string(s.Kind) + ":" + s.Ref
	case s.Ref == "":
		return string(s.Kind) + ":" + s.Path
	case s.Kind == Artifact:
		return string(s.Kind) + ":" + s.Path + "#" + s.Ref
	}
	return string(s.Kind) + ":" + s.Path + ":" + s.Ref
}

// Parse reads SOURCE[=URL], where SOURCE is a reference in a registry,
// docker-daemon:REF, docker-archive:FILE[:REF], oci:DIR-or-FILE[:REF] (also
// oci-archive:) or mender:FILE[#REF]. If a file of the whole name
// exists, a colon, # or = is part of that name.
func Parse(s string) (Spec, error) {
	kind, rest, ok := cutKind(s)
	if !ok {
		if word, file, found := strings.Cut(s, ":"); found && !strings.ContainsAny(word, "/.") && !strings.HasPrefix(file, "//") && (isPath(file) || exists(file) || ofOthers[word] != "") {
			e := &Error{Text: fmt.Sprintf("%q: there is no kind of source %s:", s, word), Hint: kindsHint}
			if how := ofOthers[word]; how != "" {
				file, _, _ = strings.Cut(file, "=")
				e.Hint = strings.ReplaceAll(how, "FILE", file)
			}
			return Spec{}, e
		}
		ref, url, _ := strings.Cut(s, "=")
		spec := Spec{Kind: Registry, Ref: strings.TrimPrefix(ref, "docker://"), URL: url}
		if _, err := name.ParseReference(spec.Ref); err != nil || ref == "" || isPath(ref) {
			e := &Error{Text: fmt.Sprintf("%q is not an image reference", ref)}
			if isPath(ref) || exists(ref) {
				e.Hint = "a file needs its kind before it: docker-archive:" + ref + ", oci:" + ref + " or mender:" + ref
			}
			return Spec{}, e
		}
		return spec, spec.checkURL(strings.Contains(s, "="))
	}
	spec := Spec{Kind: kind}
	named := false
	if !exists(rest) {
		if i := strings.LastIndexByte(rest, '='); i >= 0 {
			rest, spec.URL, named = rest[:i], rest[i+1:], true
		}
	}
	switch {
	case kind == Daemon:
		spec.Ref = rest
		if _, err := name.ParseReference(rest); err != nil && !isID(rest) {
			return Spec{}, &Error{Text: fmt.Sprintf("%q is not an image reference", rest)}
		}
		return spec, spec.checkURL(named)
	case exists(rest):
		spec.Path = rest
	case kind == Artifact:
		spec.Path, spec.Ref, _ = strings.Cut(rest, "#")
	default:
		spec.Path, spec.Ref, _ = strings.Cut(rest, ":")
	}
	if spec.Path == "" {
		return Spec{}, &Error{Text: fmt.Sprintf("%q names no file", s)}
	}
	return spec, spec.checkURL(named)
}

func (s Spec) checkURL(named bool) error {
	if !named {
		return nil
	}
	return CheckURL(s.URL)
}

// OwnDomain is the registry of the names that the device's sub-modules give to
// the images of an application, to keep them. No image may come under one.
const OwnDomain = image.OwnDomain

// Own reports whether an image's name is in OwnDomain.
func Own(url string) bool { return image.InOwnDomain(url) }

// CheckURL returns an error if an image cannot have this name on a device: a repository
// with a tag, or with none, which means latest.
func CheckURL(url string) error {
	ref, err := name.ParseReference(url)
	if err != nil || strings.ContainsFunc(url, unicode.IsSpace) {
		return &Error{Text: fmt.Sprintf("%q is not a name for an image", url), Hint: "expected NAME[:TAG], as the manifests write it"}
	}
	if Own(url) {
		return &Error{Text: fmt.Sprintf("%q is a name that devices assign themselves", url), Hint: "images of " + OwnDomain + " belong to an application that is installed: give the image another name, SOURCE=NAME:TAG"}
	}
	if _, ok := ref.(name.Digest); ok && withoutDigest(url) == url {
		return &Error{Text: fmt.Sprintf("%q names an image by its digest alone", url), Hint: "a device knows loaded images by tag: give it a name, SOURCE=NAME:TAG"}
	}
	return nil
}

func cutKind(s string) (Kind, string, bool) {
	for prefix, kind := range map[string]Kind{
		"docker-daemon:":  Daemon,
		"docker-archive:": DockerArchive,
		"oci:":            OCI,
		"oci-archive:":    OCI,
		"mender:":         Artifact,
	} {
		if rest, ok := strings.CutPrefix(s, prefix); ok {
			return kind, rest, true
		}
	}
	return "", "", false
}

// ofOthers says what to write for the kinds of other tools. None of them is the name of a
// well-known image.
var ofOthers = map[string]string{
	"dir":                "make an OCI layout of it (skopeo copy dir:FILE oci:NEW), and give oci:NEW",
	"tarball":            "write docker-archive:FILE for what docker save wrote, and oci:FILE for an OCI layout in a tar; docker import makes an image of a root file system",
	"docker-tar":         "write docker-archive:FILE",
	"tar":                "write docker-archive:FILE for what docker save wrote, and oci:FILE for an OCI layout in a tar",
	"oci-layout":         "write oci:FILE",
	"oci-dir":            "write oci:FILE",
	"ocidir":             "write oci:FILE",
	"docker-dir":         "make an OCI layout of it (skopeo copy dir:FILE oci:NEW), and give oci:NEW",
	"containers-storage": "make an OCI layout of it (skopeo copy containers-storage:FILE oci:NEW), and give oci:NEW",
	"ostree":             "make an OCI layout of it with skopeo copy, and give oci:DIR",
}

// kindsHint names the kinds to whoever wrote that of another tool, such as dir: or tarball:.
const kindsHint = "there are docker-archive:FILE, oci:DIR-or-FILE, mender:FILE and docker-daemon:REF; a reference in a registry has none"

func exists(path string) bool {
	_, err := os.Stat(path)
	return path != "" && err == nil
}

// isPath reports whether s is the name of a file and not a reference.
func isPath(s string) bool { return strings.HasPrefix(s, ".") || strings.HasPrefix(s, "/") }

func isID(s string) bool {
	h := strings.TrimPrefix(s, "sha256:")
	return len(h) >= 12 && len(h) <= 64 && strings.Trim(h, "0123456789abcdef") == ""
}

// Normal writes an image's name in full, so that web, web:latest and
// docker.io/library/web:latest are equal. It returns what is not a name unchanged.
func Normal(url string) string {
	ref, err := name.ParseReference(withoutDigest(url))
	if err != nil {
		return url
	}
	return ref.Name()
}

// Repository is Normal without the tag.
func Repository(url string) string {
	ref, err := name.ParseReference(url)
	if err != nil {
		return url
	}
	return ref.Context().Name()
}

// Found is an image that was found.
type Found struct {
	Image *image.Image
	URL   string // its name on the device
	From  Spec
	// Provides of the older artifact that the image comes from; nil otherwise.
	Provides map[string]string
	// Artifact is the older artifact that the image comes from; zero otherwise.
	Artifact artifact.MadeOver
	// Manifest is the digest of the manifest in the registry that the image comes
	// from, and Repository that registry's repository; "" for other sources.
	Manifest   image.Digest
	Repository string
	// Attestations are the in-toto statements with an SPDX document that lie beside
	// the image in its registry or OCI layout, if Opener.Attestations asks for them.
	Attestations [][]byte
	Warnings     []string
}

// Error says why a source cannot be used, and what to do about it.
type Error struct {
	Text     string
	Hint     string
	NotFound bool // the source was asked and has no such image
	Err      error
}

func (e *Error) Error() string {
	if e.Err != nil {
		return e.Text + ": " + e.Err.Error()
	}
	return e.Text
}

func (e *Error) Unwrap() error { return e.Err }

// Advice is the hint.
func (e *Error) Advice() string { return e.Hint }

// Event reports the progress of a piece of work.
type Event struct {
	Stage string // "fetch", "read", "encode", "write", "apply", "push"
	What  string
	Where string // which part of the work it is, such as image 2 of 5, layer 1 of 3
	Done  int64
	Total int64 // -1: unknown
}

// Progress is called with the number of bytes fetched so far. total is -1 if it
// is not known. Several goroutines may call it.
type Progress func(what string, done, total int64)

// Opener opens images and keeps what they need (files, connections) until it
// is closed. It is not safe for concurrent use.
type Opener struct {
	Platform image.Platform // the wanted one; the zero Platform accepts any
	// Several: Platform is one of several for which the same images are opened. It does not
	// decide what an image is for whose config does not say it.
	Several  bool
	TempDir  string   // for what is fetched; required, the caller removes it
	Config   Config   // of Docker and containers; the zero value has none
	Progress Progress // may be nil
	Cache    *Cache   // of the blobs of registries; may be nil
	// Attestations asks registries and layouts for the bills of materials of images.
	Attestations bool
	// Rebuild makes an image of which an artifact has a delta only, by the digest
	// of its config; nil: such an image is an error.
	Rebuild func(ctx context.Context, path string, digest image.Digest) (*image.Image, error)

	imageLimit time.Duration // 0: the constant

	late sync.Mutex // what Later has put off is opened one at a time

	archives  map[string]*image.Archive
	artifacts map[string]*older
	blobs     map[image.Digest]string // registry blobs fetched: digest → file
}

// Open finds the image. On success its content is on local disk (layers are
// compressed where they were) and its platform suits; diffIDs are not verified
// yet. If the spec does not say which image of an older artifact is meant, the one
// with the same repository as near is taken; near may be empty.
func (o *Opener) Open(ctx context.Context, s Spec, near string) (*Found, error) {
	f, err := o.open(ctx, s, near)
	if err != nil {
		var full *write.Error
		if errors.As(err, &full) {
			return nil, full // the source is not at fault
		}
		var e *Error
		var p *image.PlatformError
		if !errors.As(err, &e) && !errors.As(err, &p) {
			return nil, &Error{Text: s.String(), Err: err}
		}
		if e == nil {
			return nil, notFor(s, p)
		}
		return nil, err
	}
	f.From = s
	if err := o.complete(f); err != nil {
		return nil, err
	}
	if s.URL != "" {
		f.URL = s.URL
	}
	if f.URL == "" {
		return nil, &Error{Text: s.String() + " has no name", Hint: fmt.Sprintf("give it the one the manifests use: %s=NAME:TAG", s)}
	}
	if err := CheckURL(f.URL); err != nil {
		return nil, err
	}
	switch fit := o.fit(f.Image.Platform); {
	case fit == image.NoFit:
		return nil, notFor(s, &image.PlatformError{Want: o.Platform, Have: []image.Platform{f.Image.Platform}})
	case fit.Fallback():
		f.Warnings = append(f.Warnings, fmt.Sprintf("%s: there is no image for %s, taking %s, which runs there", s, o.Platform, f.Image.Platform))
	}
	return f, nil
}

// complete writes the platform into the config of an image that lacks it: devices refuse
// the image otherwise, and Docker does not run it where a platform is asked for.
func (o *Opener) complete(f *Found) error {
	if _, err := image.ParseConfig(f.Image.Config); !errors.Is(err, image.ErrNoPlatform) {
		return nil
	}
	by := "its index"
	if !f.Image.Platform.Complete() {
		by = "--platform"
	}
	p, err := o.supposed(f.From, f.Image.Platform)
	if err != nil {
		return err
	}
	if f.Image, err = image.WithPlatform(f.Image, p); err != nil {
		return &Error{Text: f.From.String(), Err: err}
	}
	f.Warnings = append(f.Warnings, fmt.Sprintf("%s: the image's config does not name os and architecture: it gets %s from %s, and so another digest", f.From, p, by))
	return nil
}

// supposed is the platform of an image for which config and index name p.
func (o *Opener) supposed(s Spec, p image.Platform) (image.Platform, error) {
	e := &Error{Text: s.String(), Err: image.ErrNoPlatform}
	const build = "build it with one (docker build --platform linux/arm64), or add it (crane mutate --set-platform linux/arm64 IMAGE)"
	switch {
	case s.Kind == Artifact:
		e.Hint = "devices have it as it is in the artifact: take the image from elsewhere, and " + build
	case p.Complete():
		return p, nil
	case o.Platform == image.Platform{}:
		e.Hint = "the tool that built it left the platform out: give --platform, " + build
	case o.Several && !s.Own:
		e.Hint = "with several --platform app-gen cannot tell which one it is for: name an image for each, such as docker-archive:web-{platform}.tar; or " + build
	default:
		return p.Or(o.Platform), nil
	}
	return p, e
}

// notFor says that a source has no image for the platform. It advises another platform
// only if that one was probably meant. A newer variant, as linux/amd64/v4 in place of
// linux/amd64, is none: devices may not run it.
func notFor(s Spec, p *image.PlatformError) error {
	e := &Error{Text: s.String(), Err: p, Hint: fmt.Sprintf("build it for %s too, as docker buildx build --platform %[1]s does", p.Want)}
	if p.Want.Known() {
		return e
	}
	var have []string
	for _, h := range p.Have {
		have = append(have, h.Arch)
	}
	if meant := similar.Word(p.Want.Arch, have); meant != "" {
		e.Hint = fmt.Sprintf("did you mean --platform %s/%s?", p.Want.OS, meant)
	}
	return e
}

// fit says how well an image for p suits. Without a wanted platform any suits.
func (o *Opener) fit(p image.Platform) image.Fit {
	if o.Platform == (image.Platform{}) {
		return image.ExactFit
	}
	return o.Platform.Suit(p)
}

func (o *Opener) open(ctx context.Context, s Spec, near string) (*Found, error) {
	switch s.Kind {
	case Registry:
		return o.fromRegistry(ctx, s)
	case Daemon:
		return o.fromDaemon(ctx, s)
	case DockerArchive, OCI:
		return o.fromArchive(s)
	case Artifact:
		return o.fromArtifact(ctx, s, near)
	}
	return nil, fmt.Errorf("unknown kind of source %q", s.Kind)
}

// Close closes the files of all images. They cannot be read afterwards.
func (o *Opener) Close() error {
	var errs []error
	for _, a := range o.archives {
		errs = append(errs, a.Close())
	}
	o.archives, o.artifacts = nil, nil
	return errors.Join(errs...)
}

func (o *Opener) tell(what string, done, total int64) {
	if o.Progress != nil {
		o.Progress(what, done, total)
	}
}
