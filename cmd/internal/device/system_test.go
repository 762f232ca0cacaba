package device

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mender-app/mender-app/modules/policy"
)

// TestSystem: where the operating system's version and Mender's provides come
// from, and that nothing of it is read without a bound.
func TestSystem(t *testing.T) {
	for _, c := range []struct {
		name   string
		files  map[string]string // below the directory of the test
		patch  bool
		want   policy.Platform
		failed string
	}{
		{name: "nothing", want: policy.Platform{Files: map[string]bool{}}},
		{name: "os-release", files: map[string]string{"os-release": "NAME=x\n# VERSION_ID=1\nVERSION_ID='12'\n"}, want: policy.Platform{Version: "12", Files: map[string]bool{}}},
		{name: "artifact_info wins", files: map[string]string{"os-release": "VERSION_ID=12\n", "artifact_info": "artifact_name=os-4.2\n"},
			want: policy.Platform{Version: "os-4.2", Files: map[string]bool{}}},
		{name: "the provides win", files: map[string]string{
			"artifact_info": "artifact_name=os-4.2\n",
			"bin/mender":    "#!/bin/sh\n[ \"$1\" = show-provides ] && echo rootfs-image.version=4.3 && echo a.b=c=d\n",
		}, want: policy.Platform{Version: "4.3", Files: map[string]bool{}, Provides: map[string]string{"rootfs-image.version": "4.3", "a.b": "c=d"}}},
		{name: "the C++ client comes first", files: map[string]string{
			"bin/mender": "#!/bin/sh\necho rootfs-image.version=1\n", "bin/mender-update": "#!/bin/sh\necho rootfs-image.version=2\n",
		}, want: policy.Platform{Version: "2", Files: map[string]bool{}, Provides: map[string]string{"rootfs-image.version": "2"}}},
		{name: "what mender-app recorded", files: map[string]string{"store/.mender-app/client/client.json": `{"installed":{"provides":{"rootfs-image.version":"9"}}}`},
			want: policy.Platform{Version: "9", Files: map[string]bool{}, Provides: map[string]string{"rootfs-image.version": "9"}}},
		{name: "a patch", files: map[string]string{"p": ""}, patch: true, want: policy.Platform{Files: map[string]bool{"p": true}}},
		{name: "no patch", patch: true, want: policy.Platform{Files: map[string]bool{"p": false}}},
		{name: "a client that fails", files: map[string]string{"bin/mender": "#!/bin/sh\nexit 3\n"}, failed: "show-provides: exit status 3"},
		{name: "a client that prints megabytes", files: map[string]string{"bin/mender": "#!/bin/sh\nwhile echo a=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; do :; done\n"}, failed: "more than 65536 bytes"},
		{name: "a large file", files: map[string]string{"os-release": strings.Repeat("a", maxSystemFile+1)}, failed: "is larger than 65536 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, content := range c.files {
				require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
				require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o755))
			}
			t.Setenv("PATH", filepath.Join(dir, "bin"))
			config := &Config{Store: filepath.Join(dir, "store"), SystemFiles: SystemFiles{filepath.Join(dir, "os-release"), filepath.Join(dir, "artifact_info")}}
			var files []string
			if c.patch {
				files = []string{filepath.Join(dir, "p")}
			}
			got, err := config.system(t.Context(), files)
			if c.failed != "" {
				require.ErrorContains(t, err, c.failed)
				return
			}
			require.NoError(t, err)
			for name, there := range c.want.Files {
				require.Equal(t, there, got.Files[filepath.Join(dir, name)])
			}
			require.Len(t, got.Files, len(c.want.Files))
			require.Equal(t, c.want.Version, got.Version)
			require.Equal(t, c.want.Provides, got.Provides)
		})
	}
}
