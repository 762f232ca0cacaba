package names

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/mender-app/mender-app/artifact/clip"
)

// AlwaysEnv are the names that metadata may set in the environment of every
// sub-module.
var AlwaysEnv = []string{"K8S_CTR_ADDRESS", "K8S_NAMESPACE"}

var envName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Z][A-Z0-9_]{0,63}$`)
})

// reservedEnv are prefixes of names that mean something to mender-app and to
// programs that a sub-module starts: shells, loaders, interpreters, engine clients.
var reservedEnv = []string{
	"ALL_PROXY", "BASH", "CDPATH", "COMPOSE", "CONTAINERD", "DOCKER", "ENV", "FTP_PROXY", "GIT", "GO", "HOME", "HTTP", "IFS",
	"JAVA", "KUBE", "LANG", "LC_", "LD_", "MENDER", "MODULE_TMPDIR", "NODE", "NO_PROXY", "OPTIONS", "PATH", "PERL",
	"PROMPT_COMMAND", "PYTHON", "RUBY", "SHELL", "SSL", "TMPDIR", "XDG",
}

// CheckEnv returns an error if an artifact may not set a variable named s for a
// sub-module. A name has at most 64 capital letters, digits and "_", and no prefix
// that means something to other programs. The sub-module gets the variable only if
// it declares the name, or the operator allows it.
func CheckEnv(s string) error {
	if !envName().MatchString(s) {
		return fmt.Errorf("the name %q is not one of capital letters, digits and _", clip.Text(s))
	}
	if slices.ContainsFunc(reservedEnv, func(r string) bool { return strings.HasPrefix(s, r) }) {
		return fmt.Errorf("the name %q means something to other programs", s)
	}
	return nil
}
