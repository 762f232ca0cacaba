// Package recipes tests the recipes for Yocto, Buildroot and mender-convert with their own
// programs.
package recipes

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// checkouts is a list of directories, such as PATH, each with openembedded-core and, in its
// directory bitbake, the bitbake of that branch.
const checkouts = "MENDER_APP_OPENEMBEDDED"

// nobody is who runs bitbake, which refuses root.
const nobody = 65534

// The recipes are those of this tree's version.
func TestRecipesHaveTheVersion(t *testing.T) {
	name := strings.ReplaceAll(versionOf(t), "-", "~")
	for _, recipe := range []string{"mender-app", "mender-app-bin"} {
		found, err := filepath.Glob("../yocto/meta-mender-app/recipes-mender-app/mender-app/" + recipe + "_*.bb")
		require.NoError(t, err)
		require.Equal(t, []string{"../yocto/meta-mender-app/recipes-mender-app/mender-app/" + recipe + "_" + name + ".bb"}, found)
	}
	makefile, err := os.ReadFile("../buildroot/package/mender-app/mender-app.mk")
	require.NoError(t, err)
	require.Contains(t, string(makefile), "\nMENDER_APP_VERSION = "+versionOf(t)+"\n")

	// So is the Go that the sources need.
	module, err := os.ReadFile("../../go.mod")
	require.NoError(t, err)
	directive := regexp.MustCompile(`(?m)^go (.*)$`).FindSubmatch(module)
	require.NotNil(t, directive)
	recipe, err := os.ReadFile("../yocto/meta-mender-app/recipes-mender-app/mender-app/mender-app_" + name + ".bb")
	require.NoError(t, err)
	require.Contains(t, string(recipe), "\nMENDER_APP_GO = \""+string(directive[1])+"\"\n")
}

// bitbake parses the recipes, skips the source recipe where Go is too old for it, and
// unpacks the sums and archives of a release, without a network.
func TestBitbake(t *testing.T) {
	list := filepath.SplitList(os.Getenv(checkouts))
	if len(list) == 0 {
		t.Skip(checkouts + " names no checkout of openembedded-core with bitbake in it")
	}
	for _, core := range list {
		t.Run(filepath.Base(core), func(t *testing.T) { testBitbake(t, core) })
	}
}

func testBitbake(t *testing.T, core string) {
	dir, err := os.MkdirTemp("", "mender-app-yocto")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	layer := filepath.Join(dir, "meta-mender-app")
	require.NoError(t, os.CopyFS(layer, os.DirFS("../yocto/meta-mender-app")))
	downloads := filepath.Join(dir, "downloads")
	require.NoError(t, os.Mkdir(downloads, 0o755))

	// A release: the sources of the commit with their modules, and a tree of programs, of
	// which only LICENSE counts here.
	sums := download(t, downloads, "vendored", "mender-app-"+versionOf(t)+"-vendored.tar.gz", vendoredSources(t))
	sums += download(t, downloads, "arm64", "mender-app-"+versionOf(t)+"-linux-arm64.tar.gz", programs(t))
	require.NoError(t, os.WriteFile(filepath.Join(layer, "recipes-mender-app/mender-app/mender-app-sums.inc"), []byte(sums), 0o644))

	build := filepath.Join(dir, "build")
	write(t, filepath.Join(build, "conf/bblayers.conf"), fmt.Sprintf("BBPATH = \"${TOPDIR}\"\nBBFILES ?= \"\"\nBBLAYERS = \"%s/meta %s\"\n", core, layer))
	write(t, filepath.Join(build, "conf/local.conf"), fmt.Sprintf(`MACHINE = "qemuarm64"
DL_DIR = "%s"
BB_NO_NETWORK = "1"
CONNECTIVITY_CHECK_URIS = ""
PATCHRESOLVE = "noop"
BBMASK = "/meta/recipes-(?!devtools/go/)"
`, downloads))
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil || os.Getuid() != 0 {
			return err
		}
		return os.Lchown(path, nobody, nobody)
	}))
	bitbake := func(args ...string) (string, error) {
		c := exec.CommandContext(t.Context(), filepath.Join(core, "bitbake/bin/bitbake"), args...)
		c.Dir = build
		c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "LC_ALL=en_US.UTF-8", "LANG=en_US.UTF-8", "BUILDDIR=" + build}
		if os.Getuid() == 0 {
			c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		}
		out, err := c.CombinedOutput()
		return string(out), err
	}
	said, err := bitbake("-p")
	require.NoError(t, err, "%s", said)
	require.Contains(t, said, "0 errors")

	// -b takes a recipe without the others that it depends on.
	recipes := []string{"mender-app-bin", "mender-app"}
	file := func(recipe string) string {
		return filepath.Join(layer, "recipes-mender-app/mender-app", recipe+"_"+strings.ReplaceAll(versionOf(t), "-", "~")+".bb")
	}
	if filepath.Base(core) == "scarthgap" {
		recipes = recipes[:1]
		said, err = bitbake("-e", "mender-app")
		require.Error(t, err)
		require.Contains(t, said, "take mender-app-bin")
	}
	for _, recipe := range recipes {
		said, err = bitbake("-b", file(recipe), "-c", "unpack")
		require.NoError(t, err, "%s", said)
		environment, err := bitbake("-e", "-b", file(recipe))
		require.NoError(t, err, "%s", environment)
		sources := value(t, environment, "S")
		if recipe == "mender-app" {
			require.FileExists(t, filepath.Join(sources, "src/github.com/mender-app/mender-app/vendor/modules.txt"))
		} else {
			require.FileExists(t, filepath.Join(sources, "usr/share/doc/mender-app/LICENSE"))
		}
		require.Equal(t, "arm64", value(t, environment, "MENDER_APP_ARCH"))
		for _, variable := range []string{"RREPLACES", "RCONFLICTS"} {
			require.Contains(t, value(t, environment, variable+":"+recipe), "mender-app-update-module")
		}
		packages := strings.Fields(value(t, environment, "PACKAGES"))
		require.Subset(t, packages, []string{recipe, recipe + "-k8s", recipe + "-submodules", recipe + "-completions", recipe + "-doc"})
		files := installed(t)
		for file, suffix := range map[string]string{
			"/usr/share/mender/modules/v3/app": "", "/usr/share/mender/app-modules/v1/docker-compose": "", "/usr/bin/mender-app": "",
			"/etc/mender/mender-app.conf": "", "/usr/lib/systemd/system/mender-app-resume.service": "",
			"/usr/share/mender/app-modules/v1/k8s": "-k8s", "/etc/mender/mender-app-k8s.conf": "-k8s",
			"/usr/share/mender/app-modules/v1/executable": "-submodules", "/usr/share/man/man8/mender-app.8": "-doc",
		} {
			require.Contains(t, files, file)
			require.Equal(t, recipe+suffix, packageOf(t, environment, file), file)
		}
		for _, file := range files {
			require.NotEmpty(t, packageOf(t, environment, file), "%s is in no package", file)
		}
	}
}

// packageOf is the first package that takes an installed file, as bitbake shares them out; ""
// if there is none.
func packageOf(t *testing.T, environment, file string) string {
	t.Helper()
	for _, name := range strings.Fields(value(t, environment, "PACKAGES")) {
		if !strings.Contains(environment, "\nFILES:"+name+"=") {
			continue
		}
		for _, pattern := range strings.Fields(value(t, environment, "FILES:"+name)) {
			for path := file; path != "/"; path = filepath.Dir(path) { // a directory is taken whole
				taken, err := filepath.Match(strings.TrimSuffix(pattern, "/"), path)
				require.NoError(t, err)
				if taken {
					return name
				}
			}
		}
	}
	return ""
}

// installed lists what the recipes install: it is not built, and its programs are empty.
func installed(t *testing.T) []string {
	t.Helper()
	from, tree := t.TempDir(), t.TempDir()
	for _, program := range []string{"app", "docker-compose", "mender-app", "k8s"} {
		write(t, filepath.Join(from, program), "")
	}
	c := exec.Command("make", "-s", "-C", "../..", "install", "FROM="+from, "DESTDIR="+tree, "PROGRAMS=app docker-compose mender-app k8s", "SUBMODULES=deb systemd python executable")
	c.Env = environment()
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s", out)
	var files []string
	require.NoError(t, filepath.WalkDir(tree, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			files = append(files, strings.TrimPrefix(path, tree))
		}
		return err
	}))
	return files
}

// Yocto and Buildroot build the programs from the vendored sources alone.
func TestVendoredSourcesAreWhole(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	dir := t.TempDir()
	tar := exec.Command("tar", "-xzf", "-", "--strip-components=1", "-C", dir)
	tar.Stdin = bytes.NewReader(vendoredSources(t))
	out, err := tar.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, arch := range []string{"arm", "arm64", "amd64", "riscv64"} {
		list := exec.Command("go", "list", "-deps", "./cmd/app", "./cmd/docker-compose", "./cmd/k8s", "./cmd/mender-app", "./cmd/app-gen")
		list.Dir = dir
		list.Env = append(os.Environ(), "GOFLAGS=-mod=vendor", "GOPROXY=off", "GOTOOLCHAIN=local", "GOARCH="+arch, "CGO_ENABLED=0", "GOMODCACHE="+filepath.Join(dir, "none"))
		out, err = list.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}

// versionOf is the version of this tree.
func versionOf(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../cmd/internal/version/version.go")
	require.NoError(t, err)
	found := regexp.MustCompile(`(?m)^const Number = "(.*)"$`).FindSubmatch(text)
	require.NotNil(t, found)
	return string(found[1])
}

// vendoredSources is what make release writes of the commit. It is made once.
func vendoredSources(t *testing.T) []byte {
	t.Helper()
	if vendored != nil {
		return vendored
	}
	c := exec.Command("../vendored", "HEAD", "mender-app-"+versionOf(t))
	c.Env = append(os.Environ(), "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*")
	var errors bytes.Buffer
	c.Stderr = &errors
	tar, err := c.Output()
	require.NoError(t, err, "%s", errors.String())
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, err = z.Write(tar)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	vendored = out.Bytes()
	return vendored
}

var vendored []byte

// programs is an archive of a release's programs, of which only LICENSE is real.
func programs(t *testing.T) []byte {
	t.Helper()
	tree := t.TempDir()
	license, err := os.ReadFile("../../LICENSE")
	require.NoError(t, err)
	write(t, filepath.Join(tree, "usr/share/doc/mender-app/LICENSE"), string(license))
	out, err := exec.Command("tar", "-czf", "-", "-C", tree, ".").Output()
	require.NoError(t, err)
	return out
}

// download puts a file where bitbake has its downloads, and returns the line with its sum.
func download(t *testing.T, downloads, name, file string, content []byte) string {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(downloads, file), content, 0o644))
	sum := sha256.Sum256(content)
	return fmt.Sprintf("MENDER_APP_SUM_%s = \"%s\"\n", name, hex.EncodeToString(sum[:]))
}

// value is that of a variable in what bitbake -e prints.
func value(t *testing.T, environment, variable string) string {
	t.Helper()
	for line := range strings.Lines(environment) {
		if v, ok := strings.CutPrefix(line, variable+"=\""); ok {
			return strings.TrimSuffix(strings.TrimSpace(v), "\"")
		}
	}
	require.Fail(t, "no "+variable)
	return ""
}

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
}
