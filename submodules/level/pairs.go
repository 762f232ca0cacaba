package level

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/artifact/names"
)

// Everything stands in ALLOW_OTHERS for all applications, and for what belongs to no single
// one.
const Everything = "*"

// Pairs are the words of ALLOW_OTHERS: shop:kiosk lets shop use what kiosk has.
type Pairs []string

// Check refuses what ALLOW_OTHERS cannot have.
func (p Pairs) Check() error {
	for _, w := range p {
		user, owner, ok := strings.Cut(w, ":")
		if !ok || names.Check(user) != nil || owner != Everything && names.Check(owner) != nil {
			return fmt.Errorf("configuration: ALLOW_OTHERS: %q is no pair such as shop:kiosk, which lets shop use what kiosk has, or shop:*", w)
		}
	}
	return nil
}

// Allow reports whether an application may use what another one has.
func (p Pairs) Allow(user string, owner func(name string) bool) bool {
	return slices.ContainsFunc(p, func(w string) bool {
		of, name, _ := strings.Cut(w, ":")
		return of == user && (name == Everything || owner(name))
	})
}
