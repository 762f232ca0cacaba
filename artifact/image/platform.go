package image

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/mender-app/mender-app/artifact/clip"
)

// Platform is what an image runs on, in the terms of the OCI image specification
// (GOOS, GOARCH, variant). The zero value means that it is not known.
type Platform struct {
	OS      string
	Arch    string
	Variant string
}

// ParsePlatform reads "os/arch[/variant]" or "arch" or "arch/variant" with
// the spellings Docker and containerd accept (linux/arm/v7, linux/arm64/v8,
// aarch64, x86_64, armhf, arm32v7) and normalises it.
func ParsePlatform(s string) (Platform, error) {
	bad := func() (Platform, error) {
		return Platform{}, fmt.Errorf("malformed platform %q: want os/arch or os/arch/variant, as in linux/arm/v7", clip.Text(s))
	}
	if s == "" || len(s) > 64 {
		return bad()
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("_-./", rune(c)) {
			return bad()
		}
	}
	parts := strings.Split(strings.ToLower(s), "/")
	for _, p := range parts {
		if strings.Trim(p, ".") == "" {
			return bad()
		}
	}
	var p Platform
	switch len(parts) {
	case 1:
		if !knownArch(parts[0]) {
			return bad()
		}
		p = Platform{OS: "linux", Arch: parts[0]}
	case 2:
		p = Platform{OS: parts[0], Arch: parts[1]}
		if knownArch(parts[0]) && !knownArch(parts[1]) {
			p = Platform{OS: "linux", Arch: parts[0], Variant: parts[1]}
		}
	case 3:
		p = Platform{OS: parts[0], Arch: parts[1], Variant: parts[2]}
	default:
		return bad()
	}
	p = p.Normalize()
	if knownArch(p.OS) {
		return bad()
	}
	return p, nil
}

func knownArch(s string) bool {
	switch (Platform{OS: "linux", Arch: s}).Normalize().Arch {
	case "386", "amd64", "arm", "arm64", "loong64", "mips", "mipsle", "mips64", "mips64le", "ppc64", "ppc64le", "riscv64", "s390x", "wasm":
		return true
	}
	return false
}

// Known reports whether p's architecture is one that container images are made for. Any
// other may be misspelt.
func (p Platform) Known() bool { return knownArch(p.Arch) }

// Normalize spells p as Docker and containerd do: lower case, Go's names of
// the architectures, linux/arm means linux/arm/v7, and the variants that
// every machine of an architecture has (arm64/v8, amd64/v1) are left out.
// The zero Platform stays zero.
func (p Platform) Normalize() Platform {
	p = Platform{strings.ToLower(p.OS), strings.ToLower(p.Arch), strings.ToLower(p.Variant)}
	if p.OS == "macos" {
		p.OS = "darwin"
	}
	if p.Variant != "" && p.Variant[0] >= '0' && p.Variant[0] <= '9' {
		p.Variant = "v" + p.Variant
	}
	switch p.Arch {
	case "i386", "i486", "i586", "i686", "x86":
		p.Arch, p.Variant = "386", ""
	case "x86_64", "x86-64":
		p.Arch = "amd64"
	case "aarch64", "arm64v8":
		p.Arch = "arm64"
	case "armhf", "armv7", "armv7l", "arm32v7":
		p.Arch, p.Variant = "arm", "v7"
	case "armv6", "armv6l", "arm32v6":
		p.Arch, p.Variant = "arm", "v6"
	case "armel": // containerd reads Debian's name so
		p.Arch, p.Variant = "arm", "v6"
	case "armv5", "armv5l", "armv5tel", "armv5tejl", "arm32v5":
		p.Arch, p.Variant = "arm", "v5"
	}
	switch {
	case p.Arch == "arm" && p.Variant == "":
		p.Variant = "v7"
	case p.Arch == "arm64" && (p.Variant == "v8" || p.Variant == "v8.0"):
		p.Variant = ""
	case p.Arch == "amd64" && p.Variant == "v1":
		p.Variant = ""
	}
	return p
}

// String writes p as "os/arch" or "os/arch/variant".
func (p Platform) String() string {
	if p.OS == "" && p.Arch == "" {
		return "unknown"
	}
	s := cmp.Or(p.OS, "unknown") + "/" + cmp.Or(p.Arch, "unknown")
	if p.Variant != "" {
		s += "/" + p.Variant
	}
	return s
}

// Complete reports whether p names an os and an architecture.
func (p Platform) Complete() bool { return p.OS != "" && p.Arch != "" }

// Or takes from q what p does not name. A variant belongs to its architecture.
func (p Platform) Or(q Platform) Platform {
	if p.OS == "" {
		p.OS = q.OS
	}
	if p.Arch == "" {
		p.Arch, p.Variant = q.Arch, q.Variant
	}
	return p.Normalize()
}

// Fit says how well an image's platform suits a wanted one.
type Fit int

// The values of Fit; a greater one is the better choice, so that the best of
// several images is the one with the greatest Fit.
const (
	NoFit Fit = 0
	// Every value between NoFit and ExactFit is a fall-back: it runs, but was
	// built for an older variant, and the caller says so in a warning.
	ExactFit Fit = 100
	// supposedFit is less than that of any variant.
	supposedFit Fit = 1
)

// Fallback reports whether the image runs on the machine and was built for an older
// variant.
func (f Fit) Fallback() bool { return f > NoFit && f < ExactFit }

// Match says how well an image for the platform have suits a machine of the
// platform p: exactly; as a fall-back, for an older variant of the same
// architecture (arm v7 runs v6 and v5, amd64 v3 runs v2 and v1); or not at all.
// Another architecture does not match, even if the machine could run it.
func (p Platform) Match(have Platform) Fit {
	p, have = p.Normalize(), have.Normalize()
	if p.OS != have.OS || p.Arch != have.Arch {
		return NoFit
	}
	if p.Variant == have.Variant {
		return ExactFit
	}
	want, ok1 := p.level()
	got, ok2 := have.level()
	if !ok1 || !ok2 || got >= want || want-got >= int(ExactFit) {
		return NoFit
	}
	return ExactFit - Fit(want-got)
}

// Suit is Match for images that may not say their platform: what have does not name is
// supposed to be p's. Any image that says its platform and matches suits better.
func (p Platform) Suit(have Platform) Fit {
	fit := p.Match(have.Or(p))
	if fit > NoFit && !have.Complete() {
		return supposedFit
	}
	return fit
}

// level orders the variants of the architectures whose older variants run on
// the newer ones.
func (p Platform) level() (int, bool) {
	if p.Variant == "" {
		switch p.Arch {
		case "arm64":
			return 80, true
		case "amd64":
			return 10, true
		}
		return 0, false
	}
	switch p.Arch {
	case "arm", "arm64", "amd64":
	default:
		return 0, false
	}
	major, minor, _ := strings.Cut(strings.TrimPrefix(p.Variant, "v"), ".")
	n, err := strconv.ParseUint(major, 10, 4)
	if err != nil || n == 0 || n > 9 {
		return 0, false
	}
	m := uint64(0)
	if minor != "" {
		if m, err = strconv.ParseUint(minor, 10, 4); err != nil || m > 9 {
			return 0, false
		}
	}
	return int(n*10 + m), true
}
