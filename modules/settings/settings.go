// Package settings keeps what the device and an operator set for applications: values and
// overrides, services that are switched on or off, and processors that are reserved for
// some. It must not know how any of it is used.
package settings

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Trusted refuses a file that others than its owner, root or this user, can change: what
// it says is done as root.
func Trusted(path string) error {
	dir := filepath.Dir(path)
	// Who can change the directory above can put another one in its place.
	for _, p := range []string{path, dir, filepath.Dir(dir)} {
		st, err := os.Lstat(p)
		if err != nil {
			return err
		}
		if st.Mode()&fs.ModeSymlink != 0 {
			return fmt.Errorf("%s is a link: what it leads to is not checked, so put the file itself there", p)
		}
		if st.Mode()&0o022 != 0 {
			return fmt.Errorf("%s can be changed by others than its owner: chmod go-w", p)
		}
		if sys, ok := st.Sys().(*syscall.Stat_t); ok && sys.Uid != 0 && int(sys.Uid) != os.Geteuid() {
			return fmt.Errorf("%s does not belong to root", p)
		}
	}
	return nil
}
