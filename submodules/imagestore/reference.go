package imagestore

import (
	"errors"
	"io"

	"github.com/mender-app/mender-app/submodules"
)

var errReference = submodules.Mark(errors.New("deltas of the shell reference (xdelta3) are not supported yet"), submodules.ErrContent)

func (rc *receiver) vcdiff(io.Reader) error      { return errReference }
func (rc *receiver) deepArchive(io.Reader) error { return errReference }
