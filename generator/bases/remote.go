package bases

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mender-app/mender-app/generator/places"
	"github.com/mender-app/mender-app/generator/source"
)

// Fetch downloads the releases of a place into the directory dir. If last is not 0, it
// downloads only what can count for the artifact of this name: the last releases that are
// not newer, and one of the same name. A place without any release yet has none.
func Fetch(ctx context.Context, text, dir, artifact string, last int, tell func(source.Event)) error {
	from, err := places.Open(text)
	if err != nil {
		return err
	}
	names, err := places.Releases(ctx, from)
	if err != nil {
		return &Error{Text: "releases in " + from.String(), Err: err}
	}
	for _, file := range wanted(names, artifact, last) {
		report := func(n int64) { tell(source.Event{Stage: "fetch", What: file, Done: n, Total: -1}) }
		if err := places.Download(ctx, from, file, filepath.Join(dir, file), report); err != nil {
			return &Error{Text: "release " + file + " in " + from.String(), Err: err}
		}
	}
	return nil
}

// wanted chooses the releases to download.
func wanted(names []string, artifact string, last int) []string {
	slices.SortFunc(names, func(a, b string) int { return compareWords(b, a) })
	names = slices.Compact(names)
	if last == 0 {
		return names
	}
	var list []string
	older := 0
	for _, n := range names {
		base := strings.TrimSuffix(n, ".mender")
		switch {
		case base == artifact:
			list = append(list, n)
		case older < last && !newer(base, artifact):
			list = append(list, n)
			older++
		}
	}
	return list
}
