package store

import "path/filepath"

const dataName = "data"

// DataDir is where the copy of a release's data is, that was made before the next release
// was started. It is removed with the release.
func (a *App) DataDir(id string) string { return filepath.Join(a.releaseDir(id), dataName) }
