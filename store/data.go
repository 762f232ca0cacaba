package store

import "path/filepath"

const dataName = "data"

// DataDir is the directory of the copy of a release's data, made before the next release
// was started. It is removed with the release.
func (a *App) DataDir(id string) string { return filepath.Join(a.releaseDir(id), dataName) }
