package store

import "path/filepath"

// DataName is the directory of data: of a release, its copy; of an application, what the
// sub-module keeps of it. See FORMAT.md.
const DataName = "data"

// DataDir is the directory of the copy of a release's data, made before the next release
// was started. It is removed with the release.
func (a *App) DataDir(id string) string { return filepath.Join(a.releaseDir(id), DataName) }
