package hooks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/mender-app/mender-app/artifact/metered"
	"github.com/mender-app/mender-app/modules/policy"
	"github.com/mender-app/mender-app/modules/settings"
)

// executable returns the file of a release's hook. No link leads out of the manifests.
func executable(manifests, name string) (string, error) {
	dir := filepath.Join(manifests, policy.HooksDir)
	path := filepath.Join(dir, name)
	if st, err := os.Lstat(dir); err != nil || !st.IsDir() {
		return "", fmt.Errorf("the manifests have no directory %s, but the policy names the hook %s", policy.HooksDir, name)
	}
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("%s/%s is missing in the manifests, but the policy names it", policy.HooksDir, name)
	case err != nil:
		return "", err
	case !st.Mode().IsRegular():
		return "", fmt.Errorf("%s/%s is not a file", policy.HooksDir, name)
	case st.Mode()&0o111 == 0:
		return "", fmt.Errorf("%s/%s is not executable", policy.HooksDir, name)
	}
	return path, nil
}

// trusted refuses a hook of the device that is not settings.Trusted, or not executable.
func trusted(path string) error {
	f, err := settings.Trusted(path)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err == nil && st.Mode()&0o111 == 0 {
		err = errors.New("it is not an executable file")
	}
	return errors.Join(err, f.Close())
}

// environ is the whole environment of a hook.
func (c Call) environ(ctx context.Context) []string {
	mode := "manual"
	if c.Automatic {
		mode = "automatic"
	}
	set := map[string]string{
		"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "HOME": "/root",
		"MENDER_APP_HOOK": c.Name, "MENDER_APP_APPLICATION": c.Application,
		"MENDER_APP_OPERATION": c.Operation, "MENDER_APP_MODE": mode,
		"MENDER_APP_EVENT": c.Event, "MENDER_APP_DIRECTION": c.Direction,
		"MENDER_APP_OLD_VERSION": c.Old.Version, "MENDER_APP_OLD_DIR": c.Old.Dir,
		"MENDER_APP_NEW_VERSION": c.New.Version, "MENDER_APP_NEW_DIR": c.New.Dir,
		"MENDER_APP_HANDOVER": c.Handover, "MENDER_APP_VALUES": c.Values,
		"MENDER_APP_RESULT": c.Result, "MENDER_APP_DATA": c.Data,
	}
	if end, ok := ctx.Deadline(); ok {
		set["MENDER_APP_DEADLINE"] = strconv.Itoa(max(int(time.Until(end).Seconds()), 1))
	}
	env := make([]string, 0, len(set))
	for name, value := range set {
		env = append(env, name+"="+value)
	}
	sort.Strings(env)
	return env
}

// Bounds of what is logged of a hook's output.
const (
	maxLine  = 1 << 10 // bytes
	maxLines = 200
)

// lines logs what a hook writes, line by line, bounded.
type lines struct {
	log   func(string)
	line  []byte
	count int
	last  string // the last line, also of those that are not logged
}

// Write implements io.Writer; it never fails, so that a hook is not killed by its own
// output.
func (l *lines) Write(p []byte) (int, error) {
	for _, b := range p {
		if b == '\n' {
			l.flush()
		} else if len(l.line) < maxLine {
			l.line = append(l.line, b)
		}
	}
	return len(p), nil
}

func (l *lines) flush() {
	text := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(string(l.line), "?"))
	text = strings.TrimSpace(text)
	l.line = l.line[:0]
	if text == "" {
		return
	}
	l.last = strings.TrimPrefix(text, "error: ")
	if l.count++; l.count <= maxLines {
		l.log(text)
	}
}

func (l *lines) end() {
	l.flush()
	if l.count > maxLines {
		l.log("(" + metered.Count(l.count-maxLines, "more line") + ")")
	}
}
