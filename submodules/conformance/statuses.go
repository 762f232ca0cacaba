package conformance

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/mender-app/mender-app/submodules"
)

// several calls STATUS with the fixture's application, and with one that is not there.
func (l *life) several() error {
	alone, err := l.status()
	if err != nil {
		return err
	}
	other := l.app + "-none"
	r := l.run(submodules.VerbStatus, l.app, other)
	if err := done(r); err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	if len(lines) != 2 {
		return fmt.Errorf("it prints %s, not two lines", excerpt(r.stdout))
	}
	for i, app := range []string{l.app, other} {
		var st struct {
			App string `json:"application"`
			submodules.Status
		}
		err := json.Unmarshal([]byte(lines[i]), &st)
		there := i == 0
		if err != nil || st.App != app || st.Alive != there || st.Healthy != there || there && len(st.Services) != len(alone.Services) {
			return fmt.Errorf("line %d is %s; it should be the status of %s", i+1, excerpt(lines[i]), app)
		}
	}
	return nil
}
