package policy

import (
	"fmt"

	"github.com/mender-app/mender-app/artifact/version"
)

// CheckNotOlder returns an error if the next version of an application is older
// than the installed one, or cannot be compared with it. An installed release without
// a version, such as an adopted one, is older than anything.
func CheckNotOlder(application, next, installed string) error {
	if installed == "" {
		return nil
	}
	order, err := version.Compare(next, installed)
	if err != nil {
		return fmt.Errorf("version %q of %s cannot be compared with the installed %q, and refuse_older is set: %w", next, application, installed, err)
	}
	if order < 0 {
		return fmt.Errorf("version %s of %s is older than the installed %s, and refuse_older is set: to go back, use mender-app rollback %s",
			next, application, installed, application)
	}
	return nil
}
