package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrNoWayBack: no older release is kept.
var ErrNoWayBack = errors.New("no older release is kept")

// FindKept finds a kept release by its name, its number or its artifact's name. "" is the
// newest that was installed before the current one, so that it never leads forward again.
func (a *App) FindKept(name string) (string, error) {
	if len(a.Kept) == 0 {
		return "", fmt.Errorf("%w of %s; install an older artifact", ErrNoWayBack, a.Name)
	}
	if name == "" {
		for _, id := range a.Kept {
			if a.Current == "" || Number(id) < Number(a.Current) {
				return id, nil
			}
		}
		return "", fmt.Errorf("%w than %s, which %s runs; mender-app rollback %s %s goes forward again",
			ErrNoWayBack, a.Current, a.Name, a.Name, a.Kept[0])
	}
	i := slices.IndexFunc(a.Kept, func(id string) bool {
		number, _, _ := strings.Cut(id, "-")
		if id == name || number == name {
			return true
		}
		r, err := a.Release(id)
		return err == nil && r.ArtifactName == name
	})
	if i < 0 {
		return "", fmt.Errorf("%w: %s of %s is not kept; kept: %s", ErrNoRelease, name, a.Name, strings.Join(a.Kept, ", "))
	}
	return a.Kept[i], nil
}
