package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mender-app/mender-app/artifact/image"
	"github.com/mender-app/mender-app/artifact/mender"
	"github.com/mender-app/mender-app/artifact/names"
	"github.com/mender-app/mender-app/artifact/scratch"
	"github.com/mender-app/mender-app/cmd/internal/usage"
	"github.com/mender-app/mender-app/delta/budget"
	"github.com/mender-app/mender-app/generator"
	"github.com/mender-app/mender-app/generator/bases"
	"github.com/mender-app/mender-app/generator/manifests"
	"github.com/mender-app/mender-app/generator/places"
	"github.com/mender-app/mender-app/generator/source"
	"github.com/mender-app/mender-app/generator/write"
)

const about = `app-gen makes an App Artifact: the container images of an application and the
manifests that run them, in one file that Mender installs on devices.

Images (--image, repeatable) are [CURRENT,]NEW, each of them one of
  REF                        in a registry, with Docker's credentials
  docker-daemon:REF          in the Docker daemon here (DOCKER_HOST)
  docker-archive:FILE[:REF]  saved by docker save
  oci:DIR-or-FILE[:REF]      an OCI layout
  mender:FILE.mender[#REF]   in an older artifact
followed by =NAME:TAG if the manifests know the image by another name. With CURRENT
the image is sent as a deep delta over CURRENT, which must be on the device; if both are
the same image, no content is sent. NEW may be given again with another CURRENT: a
device takes the delta whose base it has. With --full-fallback, a device without a base
takes the whole image. --base FILE.mender names an older release instead: each image is
matched with the one it replaces there, by content, name or repository. Given several
times, or with a directory, the artifact is for devices with any of these releases.
Without --image, app-gen takes the images in the manifests from their registries.

Other components (--component, repeatable) are files, TYPE:FILE[,CURRENT…]=URL: URL is
the sub-module's name for the file, TYPE a word such as binary, deb-package or
python-package. With CURRENT the file is sent as a delta over CURRENT; with several, a
device takes the delta whose base it has.

With several --platform options, app-gen writes an artifact for each. If one fails, it
writes none. {platform} stands for the platform with - between its parts, such as
linux-arm-v7, in --output-path, --sbom, --provenance, --base, --bases-from, --content,
--image, --component, --artifact-name and --device-type. {name} in --output-path, --sbom
and --provenance is the artifact's name; with --split, {base} is the version of the older
release.

A file app-gen.toml in the working directory may have any of these options, as a line
OPTION = VALUE. The command line wins. app-gen init writes the file.

Options of mender-artifact may follow after --: those that app-gen also has, and
--artifact-name-depends, --depends-groups, --provides-group, --clears-provides,
--no-default-software-version and --no-default-clears-provides.

Registries: app-gen uses the mirrors and insecure-registries of
/etc/docker/daemon.json and registries.conf (prefix, location, mirror, insecure,
blocked). It uses plain http only with insecure registries and with loopback.`

const example = `  app-gen --application-name shop --artifact-name shop-2 --device-type gateway \
          --platform linux/arm/v7 --orchestrator docker-compose --manifests-dir shop/ \
          --base shop-1.mender --output-path shop-2.mender
  app-gen … --base shop-1.mender --decode-budget 10s@armv7`

// genFlags are the options of app-gen as given.
type genFlags struct {
	o           generator.Options
	platforms   []string
	images      []string
	given       []string // images, before the placeholder is replaced in them
	files       []string // components that are files
	provides    []string
	depends     []string
	scripts     []string
	ctrAddress  string
	namespace   string
	env         []string
	fromHost    []string // variables of the build host
	keyFile     string   // or the URI of a key in a token
	signCommand string
	publicKey   string
	revocations string // file
	compression string
	budgets     []string
	link        string
	device      string // class of devices
	smallest    bool
	fast        bool
	deepDelta   bool   // the former name of !fast
	fetched     string // directory for releases that are not here
	split       bool   // an artifact for each base
	noCache     bool
	cacheSize   int // MiB
	dry         bool
	quiet       bool
	json        bool
}

func generateCommand() *cobra.Command {
	f := &genFlags{compression: string(mender.None)}
	f.o.Artifact.Software.Filesystem = generator.DefaultFilesystem
	c := &cobra.Command{
		Use:     "app-gen [options] [-- mender-artifact options]",
		Short:   "make App Artifacts from container images and manifests",
		Long:    about + "\n\n" + exitText,
		Example: example,
		Args: func(c *cobra.Command, args []string) error {
			if n := c.ArgsLenAtDash(); n > 0 || n < 0 && len(args) > 0 {
				e := &usageError{text: fmt.Sprintf("unexpected argument %q", args[0]), hint: "see app-gen --help"}
				if hint := usage.MeantCommand(c, args[0]); hint != "" {
					e.hint = hint
				}
				return e
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	fl := c.Flags()
	fl.SortFlags = false
	fl.SetNormalizeFunc(alias)
	fl.StringVarP(&f.o.Application.Name, "application-name", "a", "", "name of the application on the device")
	fl.StringVar(&f.o.Application.Version, "application-version", "", "version of the application; a device with refuse_older compares it (default: the policy's, or none)")
	fl.StringVar(&f.o.Application.PolicyFile, "policy", "", "the application's policy (default: app.toml in the manifests directory)")
	fl.BoolVar(&f.o.Application.Reboot, "reboot", false, "ask for a reboot between installation and commit")
	fl.StringVarP(&f.o.Artifact.Name, "artifact-name", "n", "", "name of the artifact")
	fl.StringArrayVarP(&f.o.Artifact.DeviceTypes, "device-type", "t", nil, "device type (repeatable; --compatible-types and -c are the same)")
	fl.StringArrayVarP(&f.platforms, "platform", "p", nil, "platform of the images, such as linux/arm/v7 (repeatable: an artifact for each)")
	fl.StringVar(&f.o.Application.Orchestrator, "orchestrator", "", "docker-compose, k8s, or the name of your own sub-module")
	fl.StringVarP(&f.o.Application.ManifestsDir, "manifests-dir", "m", "", "directory with the orchestrator's manifests; files that they mount or include are shipped unchanged, except those in .menderappignore")
	fl.StringVar(&f.o.Build.Output, "output-path", "app-artifact.mender", "artifact to write; - is standard output; {name} becomes the artifact's name, {platform} the platform, such as linux-arm-v7")
	fl.StringArrayVarP(&f.images, "image", "i", nil, "[CURRENT,]NEW: image to ship (repeatable)")
	fl.StringArrayVar(&f.files, "component", nil, "TYPE:FILE[,CURRENT…]=URL: file to ship, of a type such as binary or deb-package (repeatable)")
	fl.StringArrayVar(&f.o.Images.Releases.Paths, "base", nil, "older artifact on the devices, or a directory of them: each image becomes a delta over the one it replaces (repeatable)")
	fl.StringArrayVar(&f.o.Images.Releases.Dirs, "bases-from", nil, "place of older artifacts: a directory, an https URL below which releases.txt names them, s3://BUCKET/PREFIX, or oci:HOST/REPOSITORY with a tag for each; --last says how many of them are bases (repeatable)")
	fl.BoolVar(&f.o.Images.RequireBase, "require-base", false, "fail without an older release to build on, when devices would get whole images")
	fl.IntVar(&f.o.Images.Releases.Last, "last", 0, "how many of the newest releases in --bases-from are bases (default: all)")
	fl.BoolVar(&f.split, "split", false, "make an artifact for each older release that depends on its version, instead of one for all; with --full-fallback also one with full images. {base} in --output-path becomes the version, or whole")
	fl.StringArrayVar(&f.o.Images.Content, "content", nil, "artifact, directory of artifacts, or image with content that an older artifact has only as a delta (repeatable; files beside the artifact and registries are always tried)")
	fl.BoolVar(&f.fast, "fast", false, "for trying things out: images without a base are sent in gzip, shared layers once; deltas take less time and are larger")
	fl.BoolVar(&f.o.Images.Best, "best", false, "search more for a smaller artifact, which takes more time here and on devices; implies --smallest")
	fl.StringVar(&f.link, linkOption, budget.DefaultLink.String(), "download rate of devices, such as 250kbit/s or 100Mbit/s: new content is coded so that they download and decode it soonest")
	fl.StringVar(&f.device, "for-device", "", "class of the devices: armv7, arm64 or amd64 (default: the platform's)")
	fl.BoolVar(&f.smallest, "smallest", false, "count only bytes and not the devices' time, for networks paid by the byte")
	fl.BoolVar(&f.deepDelta, deepDelta, true, "with =false the same as --fast, its former name")
	hide(fl, deepDelta)
	fl.BoolVar(&f.o.Images.Fallback, "full-fallback", false, "add the full images, for devices without CURRENT")
	fl.BoolVar(&f.o.Images.FilesOnly, "files-only", false, filesOnly)
	fl.StringVar(&f.o.Artifact.Reader, "for", "", "shell-module: make an artifact that the shell app-update-module also installs: full images, in the smallest gzip, and nothing that it refuses")
	fl.StringVar(&f.o.Artifact.ForVersion, forVersion, "", "oldest version of mender-app on the devices, such as 1.0.0, or the features in their inventory (mender_app_features): the artifact needs nothing newer")
	fl.StringArrayVar(&f.budgets, decodeBudget, nil, "TIME[@CLASS] that a device's processor may take to decode the deltas, such as 10s@armv7, or a number of instructions, such as 8G: the artifact gets larger and decodes faster (repeatable, for each CLASS: armv7, arm64, amd64; default: any time)")
	fl.BoolVar(&f.o.Images.Skip, "skip-images", false, "ship no images, only manifests")
	fl.StringArrayVar(&f.o.Images.OnDevice, "on-device", nil, "image that the manifests use and the device already has (repeatable)")
	fl.StringArrayVar(&f.o.Application.Compose.Files, "compose-file", nil, "compose file in the manifests directory (repeatable; default: as docker compose)")
	fl.StringArrayVar(&f.o.Application.Compose.Profiles, "profile", nil, "compose profile to activate (repeatable; default: COMPOSE_PROFILES of .env)")
	fl.StringArrayVar(&f.o.Application.Compose.EnvFiles, "env-file", nil, "env file for compose (repeatable; default: .env)")
	fl.StringArrayVar(&f.fromHost, "env-from-host", nil, "variable of app-gen's own environment that compose files may use (repeatable; default: none)")
	fl.StringVar(&f.o.Application.Compose.Version, "compose-version", "", "oldest version of Docker Compose on the devices, such as 2.26 (mender_app_compose in their inventory): fields that it does not read are errors, with file and line")
	fl.StringArrayVar(&f.o.Application.EncryptTo, "encrypt-secrets-to", nil, "age recipient (age1…) of a device, or file of these, to encrypt the manifests' secrets to (repeatable)")
	fl.StringArrayVar(&f.o.Application.PlainSecrets, "plain-secret", nil, "file of the manifests, Compose secret or variable that may be shipped in plain, without a warning (repeatable)")
	fl.StringVarP(&f.ctrAddress, "k8s-ctr-address", "c", "", "k8s: address of containerd on the device; -c needs a / in it")
	fl.StringVarP(&f.namespace, "k8s-namespace", "s", "", "k8s: namespace to deploy to")
	fl.StringArrayVar(&f.o.Application.Values, "values", nil, "k8s: file with values, if the manifests directory is a Helm chart (repeatable; the last one wins)")
	fl.StringArrayVar(&f.env, "env", nil, "NAME=VALUE for the sub-module, which must declare the name, unless the device's operator allows it (repeatable)")
	addMenderFlags(fl, f, &f.provides, &f.depends, &f.scripts)
	fl.StringVar(&f.signCommand, "sign-command", "", "program that signs instead of --key: it reads the SHA-256 digest from standard input and prints the signature")
	fl.StringVar(&f.publicKey, "public-key", "", "PEM file of the public key that must match the signature of --sign-command or of a token")
	fl.StringVar(&f.o.Artifact.Expiry.Text, "expires", "", "last time of installation, on devices with require_unexpired: 90d, 36h, a date or a time; the key signs it")
	fl.StringVar(&f.revocations, "revocations", "", "list of app-gen revoke to put into the artifact")
	fl.StringVar(&f.o.Build.SBOM, "sbom", "", "file to write with the packages in the images (CycloneDX 1.6, JSON)")
	fl.StringVar(&f.o.Build.Provenance, "provenance", "", "file to write with the digests of images, bases and manifests (in-toto statement, SLSA provenance v1)")
	fl.BoolVar(&f.o.Artifact.NoAutoDepends, "no-depends", false, "do not depend on the application version of CURRENT")
	fl.StringVar(&f.o.Build.TempDir, "temp-dir", "", "directory for temporary files (default: TMPDIR, else beside the output)")
	fl.BoolVar(&f.noCache, "no-cache", false, "fetch and make everything again: neither use nor keep content in app-gen's directory in XDG_CACHE_HOME")
	fl.IntVar(&f.cacheSize, "cache-size", source.DefaultCacheLimit>>20, "maximum size of this directory in MiB")
	fl.BoolVar(&f.o.Build.Replace, "replace", false, "replace an artifact of this name that has other content, unless another release builds on it")
	fl.BoolVar(&f.dry, "dry-run", false, "find and read everything, print the plan, write nothing")
	fl.BoolVar(&f.o.Build.Strict, "strict", false, "make warnings errors: profiles that no service has, unset variables, plain secrets …")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "show no progress")
	fl.BoolVar(&f.json, "json", false, "print one JSON document, and show no progress")
	return c
}

// hide leaves an option out of --help: one for scripts that have it.
func hide(fl *pflag.FlagSet, name string) { fl.Lookup(name).Hidden = true }

// firstPage is what app-gen prints without options, where there is no app-gen.toml.
const firstPage = `app-gen makes App Artifacts: container images and manifests in one file that Mender
installs on devices. In a directory with a Compose file:

  app-gen init --device-type TYPE   write app-gen.toml, once
  app-gen release shop-1            make a release in releases/
  app-gen release shop-2            the next, as deltas over it
  app-gen releases                  what each release installs over
  app-gen inspect FILE.mender       what is in one

app-gen --help has all options and the exit codes.
`

// releaseCommand is app-gen -n NAME as a verb.
func releaseCommand() *cobra.Command {
	c := generateCommand()
	c.Use, c.Short, c.Example = "release NAME [options]", "make a release: the same as app-gen -n NAME", "  app-gen release shop-2"
	c.Long = `release makes the artifact NAME, as app-gen -n NAME does with the same options and with
app-gen.toml.

` + exitText
	c.Args = func(c *cobra.Command, args []string) error { return checkArguments(c, "NAME", args) }
	generate := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := c.Flags().Set("artifact-name", args[0]); err != nil {
			return err
		}
		return generate(c, nil)
	}
	return c
}

const (
	deepDelta    = "deep-delta"
	decodeBudget = "decode-budget"
	linkOption   = "link"
	forVersion   = "for-version"
)

const filesOnly = "make deltas that need only the files of the old images, not their layers, up to a fifth larger: for Kubernetes nodes whose containerd discards unpacked layers"

func (f *genFlags) run(c *cobra.Command, args []string) error {
	nothing := len(args) == 0 && c.Flags().NFlag() == 0
	configured, err := readConfig(c.Flags())
	switch {
	case err != nil:
		return err
	case nothing && !configured:
		_, err := io.WriteString(c.OutOrStdout(), firstPage)
		return err
	}
	if err := f.passthrough(args); err != nil {
		return err
	}
	if slices.Contains(f.o.Artifact.DeviceTypes, unknownType) {
		return &usageError{text: "the device type is still " + unknownType, hint: "write that of your devices into " + configFile + ": a device has it in /var/lib/mender/device_type"}
	}
	f.o.Images.Coding = generator.Coded
	if f.fast || !f.deepDelta {
		f.o.Images.Coding = generator.Fast
	}
	if f.deepDelta && c.Flags().Changed(deepDelta) {
		if err := readersOfDeltas(&f.o.Artifact); err != nil {
			return err
		}
	}
	defer func() {
		if f.fetched != "" {
			scratch.Remove(f.fetched)
		}
	}()
	targets, err := f.targets(c.Context())
	if err != nil {
		return err
	}
	for _, t := range targets {
		t.quiet = f.quiet || f.json
	}
	if err := generateAll(c, targets, f.dry); err != nil {
		if c.Context().Err() != nil && targets[0].options.Build.CacheDir != "" {
			return &keptError{errInterrupted.Error(), "what was fetched, and each image that was encoded, is kept: the same command goes on from there"}
		}
		return err
	}
	return f.report(c, targets)
}

// readersOfDeltas refuses deltas for readers that cannot apply them. Deltas that were
// not requested are left out for such readers.
func readersOfDeltas(a *generator.Artifact) error {
	hint := "leave --" + deepDelta + " out"
	if a.Reader == generator.ReaderShellModule {
		return &usageError{text: "--for " + a.Reader + ": it cannot read deltas", hint: hint}
	}
	// A text that is not a version is refused later, with the other options.
	if has, err := generator.FeaturesOf(a.ForVersion); err == nil && !generator.ReadsDeltas(has) {
		return &usageError{text: "--" + forVersion + " " + a.ForVersion + ": such devices cannot read deltas", hint: hint}
	}
	return nil
}

// targets are the artifacts to make: one for each platform.
func (f *genFlags) targets(ctx context.Context) ([]*target, error) {
	platforms, err := f.parsePlatforms()
	if err != nil {
		return nil, err
	}
	if len(platforms) == 0 { // the generator reports what is missing
		platforms = []image.Platform{{}}
	}
	if err := f.resolve(ctx); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(f.o.Images.Releases.Dirs, places.Remote) {
		if f.fetched, err = scratch.Dir(f.o.Build.TempDir, scratch.HostPrefix); err != nil {
			return nil, &write.Error{Err: err}
		}
	}
	var list []*target
	for _, p := range platforms {
		one := f.expanded(p)
		one.o.Application.Several = len(platforms) > 1
		if err := f.makeReleases(one.o.Build.Output); err != nil {
			return nil, err
		}
		if err := one.fetchReleases(ctx); err != nil {
			return nil, err
		}
		if err := one.components(); err != nil {
			return nil, err
		}
		if !f.split {
			list = append(list, &target{options: one.o})
			continue
		}
		each, err := one.splitByBase(ctx)
		if err != nil {
			return nil, err
		}
		list = append(list, each...)
	}
	return list, nil
}

// makeReleases makes the directory of an output that is called after its artifact: Git keeps
// no empty directory, so a fresh clone may lack it.
func (f *genFlags) makeReleases(output string) error {
	if f.dry || !strings.Contains(f.o.Build.Output, namePlaceholder) {
		return nil
	}
	if err := os.Mkdir(filepath.Dir(output), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return &write.Error{Err: err}
	}
	return nil
}

// fetchReleases puts directories in place of the URLs and registries that older releases
// are in.
func (f *genFlags) fetchReleases(ctx context.Context) error {
	r := &f.o.Images.Releases
	last := r.Last
	if f.o.Build.Replace {
		last = 0 // all that may build on what is replaced
	}
	bars := noBars()
	if !f.quiet && !f.json {
		bars = newBars()
	}
	defer bars.stop()
	for i, place := range r.Dirs {
		if !places.Remote(place) {
			continue
		}
		dir, err := os.MkdirTemp(f.fetched, "releases-*")
		if err != nil {
			return &write.Error{Err: err}
		}
		if err := bases.Fetch(ctx, place, dir, f.o.Artifact.Name, last, bars.event); err != nil {
			return err
		}
		r.Dirs[i] = dir
	}
	return nil
}

// components reads the given images and files.
func (f *genFlags) components() error {
	for i, s := range f.images {
		p, err := generator.ParsePair(s)
		if err != nil {
			return fmt.Errorf("--image %s: %w", s, err)
		}
		p.New.Own = s != f.given[i] && strings.Contains(p.New.String(), platformName(f.o.Application.Platform))
		f.o.Images.Pairs = append(f.o.Images.Pairs, p)
	}
	for _, s := range f.files {
		file, err := generator.ParseFile(s)
		if err != nil {
			return fmt.Errorf("--component %s: %w", s, err)
		}
		f.o.Images.Files = append(f.o.Images.Files, file)
	}
	return nil
}

// byTime reads what decides how new content is coded.
func (f *genFlags) byTime() error {
	link, err := budget.ParseLink(f.link)
	if err != nil {
		return &usageError{text: "--" + linkOption + ": " + err.Error()}
	}
	if !f.smallest {
		f.o.Images.Link = link
	}
	if f.device == "" {
		return nil
	}
	if f.o.Images.Device, err = budget.ClassNamed(f.device); err != nil {
		return &usageError{text: "--for-device: " + err.Error()}
	}
	return nil
}

// resolve turns the flags shared by all platforms into the generator's options.
func (f *genFlags) resolve(ctx context.Context) error {
	var err error
	for _, s := range f.budgets {
		b, err := budget.Parse(s)
		if err != nil {
			return &usageError{text: "--" + decodeBudget + ": " + err.Error()}
		}
		f.o.Images.Budgets = append(f.o.Images.Budgets, b)
	}
	if err := f.byTime(); err != nil {
		return err
	}
	if f.o.Artifact.Provides, err = keyValues("--provides", f.provides); err != nil {
		return err
	}
	if f.o.Artifact.Depends, err = keyLists("--depends", f.depends); err != nil {
		return err
	}
	if f.o.Artifact.Scripts, err = readScripts(f.scripts); err != nil {
		return err
	}
	if f.o.Application.Env, err = keyValues("--env", f.env); err != nil {
		return err
	}
	for name := range f.o.Application.Env {
		if err := names.CheckEnv(name); err != nil {
			return &usageError{text: "--env: " + err.Error()}
		}
	}
	if f.ctrAddress != "" && !strings.Contains(f.ctrAddress, "/") {
		return &usageError{text: fmt.Sprintf("--k8s-ctr-address %q is not the path of a socket", f.ctrAddress)}
	}
	for name, value := range map[string]string{"K8S_CTR_ADDRESS": f.ctrAddress, "K8S_NAMESPACE": f.namespace} {
		if value == "" {
			continue
		}
		if f.o.Application.Env == nil {
			f.o.Application.Env = map[string]string{}
		}
		f.o.Application.Env[name] = value
	}
	f.o.Artifact.Compression = mender.Compression(f.compression)
	if !slices.Contains(mender.Compressions, f.o.Artifact.Compression) {
		return &usageError{text: fmt.Sprintf("unknown compression %q", f.compression), hint: "none, gzip, lzma or zstd"}
	}
	if f.o.Artifact.Signing, err = f.signing(ctx); err != nil {
		return err
	}
	if err := errors.Join(f.expiry(), f.readRevocations()); err != nil {
		return err
	}
	if f.o.Build.ModTime, err = epoch(); err != nil {
		return err
	}
	if f.o.Build.TempDir == "" {
		f.o.Build.TempDir = os.Getenv("TMPDIR")
	}
	if f.cacheSize < 0 {
		return &usageError{text: "--cache-size is a number of MiB"}
	}
	if dir, err := source.CacheDir(); err == nil && !f.noCache {
		f.o.Build.CacheDir, f.o.Build.CacheLimit = dir, int64(f.cacheSize)<<20
	}
	if f.o.Application.Compose.Environ, err = fromHost(f.fromHost); err != nil {
		return err
	}
	f.o.Application.Compose.Host = onHost
	f.o.Build.Sources, err = source.LoadConfig()
	return err
}

// fromHost are these variables of app-gen's environment, as NAME=VALUE.
func fromHost(names []string) (list []string, err error) {
	for _, name := range names {
		value, set := os.LookupEnv(name)
		switch {
		case slices.Contains(manifests.PersonOwn, name):
			return nil, &usageError{text: "--env-from-host " + name + ": a device has no home directory, and nobody starts the project there"}
		case !set:
			return nil, &usageError{text: "--env-from-host " + name + ": the variable is not set here"}
		}
		list = append(list, name+"="+value)
	}
	return list, nil
}

// onHost reports whether app-gen's environment has a variable.
func onHost(name string) bool {
	_, set := os.LookupEnv(name)
	return set
}

// epoch is SOURCE_DATE_EPOCH (reproducible-builds.org), or 1970.
func epoch() (time.Time, error) {
	s := os.Getenv("SOURCE_DATE_EPOCH")
	if s == "" {
		return time.Unix(0, 0).UTC(), nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return time.Time{}, &usageError{text: fmt.Sprintf("SOURCE_DATE_EPOCH=%q is not a number of seconds", s)}
	}
	return time.Unix(n, 0).UTC(), nil
}

// keyValues reads KEY:VALUE options, as mender-artifact writes them.
func keyValues(option string, list []string) (map[string]string, error) {
	m := map[string]string{}
	for _, s := range list {
		k, v, ok := strings.Cut(s, ":")
		if !ok || k == "" {
			return nil, &usageError{text: fmt.Sprintf("%s %q is not KEY:VALUE", option, s)}
		}
		if _, twice := m[k]; twice {
			return nil, &usageError{text: fmt.Sprintf("%s: %s is given twice", option, k)}
		}
		m[k] = v
	}
	return m, nil
}

// keyLists reads KEY:VALUE options whose keys may have several values.
func keyLists(option string, list []string) (map[string][]string, error) {
	m := map[string][]string{}
	for _, s := range list {
		k, v, ok := strings.Cut(s, ":")
		switch {
		case !ok || k == "":
			return nil, &usageError{text: fmt.Sprintf("%s %q is not KEY:VALUE", option, s)}
		case slices.Contains(m[k], v):
			return nil, &usageError{text: fmt.Sprintf("%s %s is given twice", option, s)}
		}
		m[k] = append(m[k], v)
	}
	return m, nil
}
